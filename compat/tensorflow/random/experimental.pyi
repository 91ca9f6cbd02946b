# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.random._generator import (
    Algorithm as Algorithm,
    Generator as Generator,
    create_rng_state as create_rng_state,
    get_global_generator as get_global_generator,
    set_global_generator as set_global_generator,
)
from tfdist_jax.compat.tensorflow.random._samplers import (
    fold_in as _stateless_fold_in,
    split as _stateless_split,
    stateless_shuffle as stateless_shuffle,
)
stateless_fold_in = _stateless_fold_in
stateless_split = _stateless_split
