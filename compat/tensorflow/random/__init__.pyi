# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.nn._candidate_sampling import (
    all_candidate_sampler as all_candidate_sampler,
    fixed_unigram_candidate_sampler as fixed_unigram_candidate_sampler,
    log_uniform_candidate_sampler as log_uniform_candidate_sampler,
    uniform_candidate_sampler as uniform_candidate_sampler,
)
from tfdist_jax.compat.tensorflow.random._generator import (
    Algorithm as Algorithm,
    Generator as Generator,
    create_rng_state as create_rng_state,
    get_global_generator as get_global_generator,
    set_global_generator as set_global_generator,
)
from tfdist_jax.compat.tensorflow.random._random_state import (
    set_seed as set_seed,
)
from tfdist_jax.compat.tensorflow.random._samplers import (
    categorical as categorical,
    fold_in as fold_in,
    gamma as gamma,
    normal as normal,
    poisson as poisson,
    shuffle as shuffle,
    split as split,
    stateless_binomial as stateless_binomial,
    stateless_categorical as stateless_categorical,
    stateless_gamma as stateless_gamma,
    stateless_normal as stateless_normal,
    stateless_poisson as stateless_poisson,
    stateless_truncated_normal as stateless_truncated_normal,
    stateless_uniform as stateless_uniform,
    truncated_normal as truncated_normal,
    uniform as uniform,
)
from tfdist_jax.compat.tensorflow.random import (
    experimental as experimental,
)
