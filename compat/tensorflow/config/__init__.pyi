# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._functions._function import (
    functions_run_eagerly as _experimental_functions_run_eagerly,
    functions_run_eagerly as functions_run_eagerly,
    run_functions_eagerly as _experimental_run_functions_eagerly,
    run_functions_eagerly as run_functions_eagerly,
)
from tfdist_jax.compat.tensorflow._platform._devices import (
    get_soft_device_placement as get_soft_device_placement,
    set_soft_device_placement as set_soft_device_placement,
)
from tfdist_jax.compat.tensorflow.config._devices import (
    LogicalDevice as LogicalDevice,
    LogicalDeviceConfiguration as LogicalDeviceConfiguration,
    PhysicalDevice as PhysicalDevice,
    get_logical_device_configuration as get_logical_device_configuration,
    get_visible_devices as get_visible_devices,
    list_logical_devices as list_logical_devices,
    list_physical_devices as list_physical_devices,
    set_logical_device_configuration as set_logical_device_configuration,
    set_visible_devices as set_visible_devices,
)
from tfdist_jax.compat.tensorflow.distribute._resolver_base import (
    experimental_connect_to_cluster as experimental_connect_to_cluster,
    experimental_connect_to_host as experimental_connect_to_host,
)
from tfdist_jax.compat.tensorflow.config import (
    experimental as experimental,
    optimizer as optimizer,
    threading as threading,
)
experimental_functions_run_eagerly = _experimental_functions_run_eagerly
experimental_run_functions_eagerly = _experimental_run_functions_eagerly
