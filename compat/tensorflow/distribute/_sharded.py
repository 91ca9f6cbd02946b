"""`tf.distribute.experimental.FSDPStrategy`: variables in parts, which TensorFlow's strategies do not have."""

import functools
from collections.abc import Sequence
from typing import final

import jax

import tfdist_jax
from tfdist_jax._stateful._storage import ShardedStorage, Storage
from tfdist_jax.compat.tensorflow._platform._devices import resolve_devices
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


@final
class FSDPStrategy(Strategy):
    """Fully sharded data parallelism: each device keeps 1/N of each large variable, optimizers' included, and of the batch.

    Not one of TensorFlow's: used like `tf.distribute.MirroredStrategy`, with the same results. In a step each device gathers all variables
    of the model, but none that an optimizer keeps of them: gradients are scattered, and the optimizer changes the parts where they are.
    A step that uses variables after it has applied gradients to them, or applies them in a loop or conditional, has the optimizer's
    variables whole on each device while it runs.
    """

    def __init__(self, devices: Sequence[str] | None = None, *, min_size: int = 1024) -> None:
        """Split variables over devices.

        Args:
            devices: Such as ["/gpu:0", "/gpu:1"]; all of JAX's default devices if None.
            min_size: Variables with fewer elements, and those with no dimension that the number of devices divides, stay whole on every
                device.

        Raises:
            ValueError: If a device is named twice, or `min_size` is no positive number.
        """
        if not isinstance(min_size, int) or min_size < 1:
            raise ValueError(f"`min_size` must be a number of elements, 1 or more, got {min_size!r}.")
        chosen = tuple(jax.local_devices() if devices is None else resolve_devices(devices))
        super().__init__(tfdist_jax.FSDP(chosen, min_size))

    @functools.cached_property
    def storage(self) -> Storage:
        """How variables are kept: a part on each device."""
        return ShardedStorage(self.native.mesh, self.native.state_layout)
