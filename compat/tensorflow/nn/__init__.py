"""`tf.nn`: activations, losses, convolutions, pooling and normalization.

See https://www.tensorflow.org/api_docs/python/tf/nn.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "nn._activations": (
            "crelu dropout elu embedding_lookup gelu leaky_relu log_softmax relu relu6 selu silu softmax softplus "
            "softsign swish=silu"
        ),
        "_ops._elementwise": "sigmoid tanh",
        "nn._losses": (
            "compute_average_loss l2_loss log_poisson_loss scale_regularization_loss "
            "sigmoid_cross_entropy_with_logits softmax_cross_entropy_with_logits "
            "sparse_softmax_cross_entropy_with_logits weighted_cross_entropy_with_logits"
        ),
        "nn._conv": (
            "atrous_conv2d atrous_conv2d_transpose conv1d conv1d_transpose conv2d conv2d_transpose conv3d "
            "conv3d_transpose conv_transpose convolution depth_to_space depthwise_conv2d "
            "depthwise_conv2d_backprop_filter depthwise_conv2d_backprop_input separable_conv2d space_to_depth"
        ),
        "nn._pooling": "avg_pool avg_pool1d avg_pool2d avg_pool3d max_pool max_pool1d max_pool2d max_pool3d pool",
        "nn._normalization": (
            "batch_norm_with_global_normalization batch_normalization bias_add local_response_normalization "
            "lrn=local_response_normalization moments normalize_moments sufficient_statistics weighted_moments"
        ),
        "nn._space_to_batch": "space_to_batch",
        "_ops._sorting": "approx_max_k approx_min_k in_top_k top_k",
        "linalg._matrices": "l2_normalize",
        "_ops._reductions": "zero_fraction",
        "sparse._embedding": "embedding_lookup_sparse safe_embedding_lookup_sparse",
        "nn._ctc": "collapse_repeated ctc_greedy_decoder ctc_loss ctc_unique_labels",
        "nn._candidate_sampling": (
            "all_candidate_sampler compute_accidental_hits fixed_unigram_candidate_sampler nce_loss "
            "sampled_softmax_loss"
        ),
        "nn._morphology": "dilation2d erosion2d max_pool_with_argmax",
    },
    modules="experimental",
)
__dir__ = __getattr__.names
