# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.compat.v1._flags import (
    run as run,
)
