# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.nn._activations import (
    stateless_dropout as stateless_dropout,
)
