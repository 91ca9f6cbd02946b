"""`tf.profiler.experimental`: start and stop traces."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(__name__, {"profiler._profiler": "Profile Trace start stop"})
__dir__ = __getattr__.names
