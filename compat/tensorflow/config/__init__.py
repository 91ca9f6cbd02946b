"""`tf.config`: devices and how XLA uses them.

See https://www.tensorflow.org/api_docs/python/tf/config.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_functions._function": (
            "experimental_functions_run_eagerly=functions_run_eagerly "
            "experimental_run_functions_eagerly=run_functions_eagerly functions_run_eagerly run_functions_eagerly"
        ),
        "config._devices": (
            "LogicalDevice LogicalDeviceConfiguration PhysicalDevice get_logical_device_configuration "
            "get_visible_devices list_logical_devices list_physical_devices set_logical_device_configuration "
            "set_visible_devices"
        ),
        "distribute._resolver_base": "experimental_connect_to_cluster experimental_connect_to_host",
        "_platform._devices": "get_soft_device_placement set_soft_device_placement",
    },
    modules="experimental optimizer threading",
)
__dir__ = __getattr__.names
