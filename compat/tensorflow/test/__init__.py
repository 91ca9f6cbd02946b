"""`tf.test`: what there is to test with.

See https://www.tensorflow.org/api_docs/python/tf/test.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "test._testing": (
            "TestCase compute_gradient gpu_device_name is_built_with_cuda is_built_with_gpu_support is_built_with_rocm "
            "is_built_with_xla is_gpu_available main"
        ),
    },
)
__dir__ = __getattr__.names
