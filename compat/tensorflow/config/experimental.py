"""`tf.config.experimental`: older names, memory and precision.

See https://www.tensorflow.org/api_docs/python/tf/config/experimental.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "config._devices": (
            "VirtualDeviceConfiguration=LogicalDeviceConfiguration get_device_details get_memory_growth "
            "get_memory_info get_memory_usage get_virtual_device_configuration=get_logical_device_configuration "
            "get_visible_devices list_logical_devices list_physical_devices set_memory_growth "
            "set_virtual_device_configuration=set_logical_device_configuration set_visible_devices"
        ),
        "config._hints": "disable_mlir_bridge enable_mlir_bridge",
        "config._numerics": (
            "enable_op_determinism enable_tensor_float_32_execution tensor_float_32_execution_enabled"
        ),
    },
)
__dir__ = __getattr__.names
