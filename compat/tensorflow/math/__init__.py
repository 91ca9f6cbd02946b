"""`tf.math`: arithmetic, element by element and over axes.

See https://www.tensorflow.org/api_docs/python/tf/math.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_ops._elementwise": (
            "abs acos acosh angle asin asinh atan atanh bessel_i0 bessel_i0e bessel_i1 bessel_i1e ceil conj cos cosh "
            "digamma erf erfc erfcinv erfinv exp expm1 floor imag is_finite is_inf is_nan lbeta lgamma log log1p "
            "log_sigmoid logical_not ndtri negative real reciprocal reciprocal_no_nan rint round rsqrt sigmoid sign "
            "sin sinh sqrt square tan tanh"
        ),
        "_ops._binary": (
            "accumulate_n add add_n atan2 betainc divide divide_no_nan equal floordiv floormod greater greater_equal "
            "igamma igammac less less_equal logical_and logical_or logical_xor maximum minimum mod multiply "
            "multiply_no_nan nextafter not_equal polygamma polyval pow scalar_mul squared_difference subtract truediv "
            "xdivy xlog1py xlogy zeta"
        ),
        "_ops._reductions": (
            "argmax argmin bincount confusion_matrix count_nonzero cumprod cumsum cumulative_logsumexp "
            "is_non_decreasing is_strictly_increasing reduce_all reduce_any reduce_euclidean_norm "
            "reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_std reduce_sum reduce_variance "
            "zero_fraction"
        ),
        "_ops._segments": (
            "segment_max segment_mean segment_min segment_prod segment_sum unsorted_segment_max "
            "unsorted_segment_mean unsorted_segment_min unsorted_segment_prod unsorted_segment_sqrt_n "
            "unsorted_segment_sum"
        ),
        "_ops._sorting": "approx_max_k approx_min_k in_top_k invert_permutation top_k",
        "nn._activations": "log_softmax softmax softplus softsign",
        "linalg._matrices": "l2_normalize",
    },
    modules="special",
)
__dir__ = __getattr__.names
