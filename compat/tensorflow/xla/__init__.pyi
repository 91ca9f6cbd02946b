# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.xla import (
    experimental as experimental,
)
