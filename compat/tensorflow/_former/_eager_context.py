"""`tensorflow.python.eager.context`: what it tells of devices and of how the program runs."""

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn, final

from tfdist_jax.compat.tensorflow._former._views import find_public
from tfdist_jax.compat.tensorflow._platform._devices import requested_device


def num_gpus() -> int:
    """Return how many GPUs the program sees."""
    return len(find_public("tf.config").list_logical_devices("GPU"))


@contextlib.contextmanager
def eager_mode() -> Iterator[None]:
    """Run a block eagerly, which is how it runs in any case."""
    yield


def graph_mode() -> NoReturn:
    """Refuse to make graphs.

    Raises:
        NotImplementedError: Always.
    """
    find_public("tf.compat.v1.disable_eager_execution")()
    raise AssertionError


@final
class Context:
    """What `context()` returns."""

    def executing_eagerly(self) -> bool:
        """Whether operations run at once."""
        return find_public("tf.executing_eagerly")()

    @property
    def device_spec(self) -> Any:
        """The device that `tf.device` asks for, as a `tf.DeviceSpec`."""
        return find_public("tf.DeviceSpec").from_string(requested_device())

    def num_gpus(self) -> int:
        """Return how many GPUs the program sees."""
        return num_gpus()

    def devices(self) -> list[str]:
        """Return the names of the devices."""
        return [device.name for device in self.list_logical_devices()]

    def list_logical_devices(self, device_type: str | None = None) -> Any:
        """Return the devices that programs run on."""
        return find_public("tf.config").list_logical_devices(device_type)

    def list_physical_devices(self, device_type: str | None = None) -> Any:
        """Return the machine's devices."""
        return find_public("tf.config").list_physical_devices(device_type)


_context = Context()


def context() -> Context:
    """Return what is known of this process."""
    return _context
