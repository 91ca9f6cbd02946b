# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.experimental.numpy._random import (
    poisson as poisson,
    rand as rand,
    randint as randint,
    randn as randn,
    random as random,
    seed as seed,
    standard_normal as standard_normal,
    uniform as uniform,
)
