"""`tf.autograph.experimental`."""

from tfdist_jax.compat.tensorflow._names import LazyNames

__getattr__ = LazyNames(
    __name__, {"_autograph._convert": "do_not_convert", "_autograph._settings": "Feature set_loop_options"}
)
__dir__ = __getattr__.names
