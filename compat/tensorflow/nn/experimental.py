"""`tf.nn.experimental`."""

from tfdist_jax.compat.tensorflow._names import LazyNames

__getattr__ = LazyNames(__name__, {"_ops._activations": "stateless_dropout"})
__dir__ = __getattr__.names
