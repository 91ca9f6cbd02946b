"""`tf.config.experimental`: older names."""

from tfdist_jax.compat.tensorflow.config._devices import (
    LogicalDeviceConfiguration as VirtualDeviceConfiguration,
    get_logical_device_configuration as get_virtual_device_configuration,
    get_memory_growth as get_memory_growth,
    get_visible_devices as get_visible_devices,
    list_logical_devices as list_logical_devices,
    list_physical_devices as list_physical_devices,
    set_logical_device_configuration as set_virtual_device_configuration,
    set_memory_growth as set_memory_growth,
    set_visible_devices as set_visible_devices,
)
