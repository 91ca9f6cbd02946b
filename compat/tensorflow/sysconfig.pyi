# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._platform._version import (
    get_build_info as get_build_info,
)
