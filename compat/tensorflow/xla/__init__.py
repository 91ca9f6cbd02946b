"""`tf.xla`: what has XLA compile a part of a program; here it compiles all of it."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(__name__, {}, modules="experimental")
__dir__ = __getattr__.names
