# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.profiler._profiler import (
    Profile as Profile,
    Trace as Trace,
    start as start,
    stop as stop,
)
