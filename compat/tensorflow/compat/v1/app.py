"""`tf.compat.v1.app`: the program's start."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(__name__, {"compat.v1._flags": "run"})
__dir__ = __getattr__.names
