"""`tf.nn.experimental`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(__name__, {"nn._activations": "stateless_dropout"})
__dir__ = __getattr__.names
