# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.xla._compile import (
    compile as compile,
    jit_scope as jit_scope,
)
