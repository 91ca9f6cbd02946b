# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.profiler import (
    experimental as experimental,
)
