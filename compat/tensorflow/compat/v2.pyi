# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow import *

def enable_v2_behavior() -> None: ...
