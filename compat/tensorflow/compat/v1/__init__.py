"""`tf.compat.v1`: of TensorFlow 1's names those that programs of TensorFlow 2 use too.

See https://www.tensorflow.org/api_docs/python/tf/compat/v1.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "compat.v1._switches": (
            "disable_eager_execution disable_v2_behavior enable_control_flow_v2 enable_eager_execution "
            "enable_resource_variables enable_tensor_equality enable_v2_behavior enable_v2_tensorshape "
            "assign assign_add assign_sub control_flow_v2_enabled executing_eagerly_outside_functions resource_variables_enabled"
        ),
        "_ops._graph_compat": "executing_eagerly",
        "compat._values": "dimension_value",
        "random._random_state": "set_random_seed=set_seed",
        "_platform._logging": "get_logger",
        "compat.v1._session_config": "ConfigProto GPUOptions",
    },
    modules="app feature_column flags gfile keras logging",
)
__dir__ = __getattr__.names
