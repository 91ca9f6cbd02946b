# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.train._objects import (
    PythonState as PythonState,
)
