# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.tpu import (
    experimental as experimental,
)
