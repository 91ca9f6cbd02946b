"""`tf.random`: random numbers.

See https://www.tensorflow.org/api_docs/python/tf/random.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "random._samplers": (
            "categorical fold_in gamma normal poisson shuffle split stateless_binomial stateless_categorical "
            "stateless_gamma stateless_normal stateless_poisson stateless_truncated_normal stateless_uniform "
            "truncated_normal uniform"
        ),
        "random._random_state": "set_seed",
        "random._generator": "Algorithm Generator create_rng_state get_global_generator set_global_generator",
        "nn._candidate_sampling": (
            "all_candidate_sampler fixed_unigram_candidate_sampler log_uniform_candidate_sampler "
            "uniform_candidate_sampler"
        ),
    },
    modules="experimental",
)
__dir__ = __getattr__.names
