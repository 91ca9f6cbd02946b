"""`tf.autograph.experimental`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {"_functions._autograph._convert": "Feature do_not_convert set_loop_options"},
)
__dir__ = __getattr__.names
