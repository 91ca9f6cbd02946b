# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.tpu._options import (
    XLAOptions as XLAOptions,
)
from tfdist_jax.compat.tensorflow.tpu import (
    experimental as experimental,
)
