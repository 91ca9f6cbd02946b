"""`tf.xla.experimental`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(__name__, {"xla._compile": "compile jit_scope"})
__dir__ = __getattr__.names
