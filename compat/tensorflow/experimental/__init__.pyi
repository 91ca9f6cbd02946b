# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.data._optional import (
    Optional as Optional,
)
from tfdist_jax.compat.tensorflow.experimental import (
    numpy as numpy,
)
