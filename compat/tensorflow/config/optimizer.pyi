# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.config._hints import (
    get_experimental_options as get_experimental_options,
    get_jit as get_jit,
    set_experimental_options as set_experimental_options,
    set_jit as set_jit,
)
