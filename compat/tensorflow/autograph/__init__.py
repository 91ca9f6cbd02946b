"""`tf.autograph`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {"_functions._autograph._convert": "set_verbosity to_code to_graph trace"},
    modules="experimental",
)
__dir__ = __getattr__.names
