"""`tf.autograph`."""

from tfdist_jax.compat.tensorflow._names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {"_autograph._convert": "to_code to_graph", "_autograph._settings": "set_verbosity trace"},
    modules="experimental",
)
__dir__ = __getattr__.names
