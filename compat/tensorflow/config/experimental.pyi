# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.config._devices import (
    LogicalDeviceConfiguration as _VirtualDeviceConfiguration,
    get_device_details as get_device_details,
    get_logical_device_configuration as _get_virtual_device_configuration,
    get_memory_growth as get_memory_growth,
    get_memory_info as get_memory_info,
    get_memory_usage as get_memory_usage,
    get_visible_devices as get_visible_devices,
    list_logical_devices as list_logical_devices,
    list_physical_devices as list_physical_devices,
    set_logical_device_configuration as _set_virtual_device_configuration,
    set_memory_growth as set_memory_growth,
    set_visible_devices as set_visible_devices,
)
from tfdist_jax.compat.tensorflow.config._hints import (
    disable_mlir_bridge as disable_mlir_bridge,
    enable_mlir_bridge as enable_mlir_bridge,
)
from tfdist_jax.compat.tensorflow.config._numerics import (
    enable_op_determinism as enable_op_determinism,
    enable_tensor_float_32_execution as enable_tensor_float_32_execution,
    tensor_float_32_execution_enabled as tensor_float_32_execution_enabled,
)
VirtualDeviceConfiguration = _VirtualDeviceConfiguration
get_virtual_device_configuration = _get_virtual_device_configuration
set_virtual_device_configuration = _set_virtual_device_configuration
