"""`tf.tpu`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(__name__, {"tpu._options": "XLAOptions"}, modules="experimental")
__dir__ = __getattr__.names
