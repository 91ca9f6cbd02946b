"""`tf.experimental`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__, {"data._optional": "Optional", "_functions._async": "async_clear_error async_scope"}, modules="numpy"
)
__dir__ = __getattr__.names
