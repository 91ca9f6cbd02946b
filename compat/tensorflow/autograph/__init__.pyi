# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._functions._autograph._convert import (
    set_verbosity as set_verbosity,
    to_code as to_code,
    to_graph as to_graph,
    trace as trace,
)
from tfdist_jax.compat.tensorflow.autograph import (
    experimental as experimental,
)
