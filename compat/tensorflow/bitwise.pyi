# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._ops._binary import (
    bitwise_and as bitwise_and,
    bitwise_or as bitwise_or,
    bitwise_xor as bitwise_xor,
    invert as invert,
    left_shift as left_shift,
    right_shift as right_shift,
)
