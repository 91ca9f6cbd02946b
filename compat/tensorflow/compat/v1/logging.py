"""`tf.compat.v1.logging`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_platform._logging": (
            "DEBUG ERROR FATAL INFO WARN debug error fatal flush get_verbosity info log log_if set_verbosity vlog warn "
            "warning"
        ),
    },
)
__dir__ = __getattr__.names
