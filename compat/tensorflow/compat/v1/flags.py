"""`tf.compat.v1.flags`: flags of the command line, which are those of `absl`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "compat.v1._flags": (
            "DEFINE_bool DEFINE_boolean DEFINE_enum DEFINE_float DEFINE_integer DEFINE_list DEFINE_multi_float "
            "DEFINE_multi_integer DEFINE_multi_string DEFINE_string FLAGS mark_flag_as_required mark_flags_as_required"
        ),
    },
)
__dir__ = __getattr__.names
