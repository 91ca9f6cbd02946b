"""`tf.sparse`: tensors most of whose elements are zero.

See https://www.tensorflow.org/api_docs/python/tf/sparse.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_tensors._sparse_tensor": "SparseTensor",
        "sparse._arithmetic": (
            "concat expand_dims eye map_values reduce_max reduce_sum reorder reshape sampled_addmm softmax "
            "sparse_dense_matmul to_dense to_indicator transpose"
        ),
        "sparse._selection": (
            "add bincount fill_empty_rows from_dense mask maximum minimum reset_shape retain slice split"
        ),
        "sparse._crossing": "cross cross_hashed",
        "_ops._segments": (
            "segment_mean=sparse_segment_mean segment_sqrt_n=sparse_segment_sqrt_n segment_sum=sparse_segment_sum"
        ),
    },
)
__dir__ = __getattr__.names
