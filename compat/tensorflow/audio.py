"""`tf.audio`: WAV files of 16-bit samples.

See https://www.tensorflow.org/api_docs/python/tf/audio.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(__name__, {"io._wave": "decode_wav encode_wav"})
__dir__ = __getattr__.names
