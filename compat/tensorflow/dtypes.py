"""`tf.dtypes`: element types and conversions between them.

See https://www.tensorflow.org/api_docs/python/tf/dtypes.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_tensors._dtypes": (
            "DType as_dtype bfloat16 bool=bool_ complex128 complex64 double float16 float32 float64 half int16 "
            "int32 int64 int8 string uint16 uint32 uint64 uint8"
        ),
        "_ops._cast": "cast complex saturate_cast",
    },
)
__dir__ = __getattr__.names
