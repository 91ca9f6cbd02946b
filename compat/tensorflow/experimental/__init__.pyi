# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._functions._async import (
    async_clear_error as async_clear_error,
    async_scope as async_scope,
)
from tfdist_jax.compat.tensorflow.data._optional import (
    Optional as Optional,
)
from tfdist_jax.compat.tensorflow.experimental import (
    numpy as numpy,
)
