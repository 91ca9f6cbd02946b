"""`tf.train.experimental`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(__name__, {"train._objects": "PythonState"})
__dir__ = __getattr__.names
