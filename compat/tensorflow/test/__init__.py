"""`tf.test`: what there is to test with.

See https://www.tensorflow.org/api_docs/python/tf/test.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "test._testing": (
            "compute_gradient disable_with_predicate gpu_device_name is_built_with_cuda is_built_with_gpu_support "
            "is_built_with_rocm is_built_with_xla is_cpu_target_available is_gpu_available main with_eager_op_as_function"
        ),
        "test._test_case": "TestCase",
    },
)
__dir__ = __getattr__.names
