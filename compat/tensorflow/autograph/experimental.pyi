# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._functions._autograph._convert import (
    Feature as Feature,
    do_not_convert as do_not_convert,
    set_loop_options as set_loop_options,
)
