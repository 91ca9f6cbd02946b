# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.summary._kinds import (
    summary_scope as summary_scope,
)
from tfdist_jax.compat.tensorflow.summary._recording import (
    get_step as get_step,
    set_step as set_step,
)
