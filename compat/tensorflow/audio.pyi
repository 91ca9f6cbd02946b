# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.io._wave import (
    decode_wav as decode_wav,
    encode_wav as encode_wav,
)
