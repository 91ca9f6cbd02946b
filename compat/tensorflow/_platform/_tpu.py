"""TPUs, and CPU devices in their place where that is asked for."""

import logging

from tfdist_jax._sharding._mesh import Device
from tfdist_jax.compat.tensorflow._platform._devices import emulated_cores, local_devices, make_room, named_devices
from tfdist_jax.compat.tensorflow._platform._errors import NoTPUError

_log = logging.getLogger("tfdist_jax")


def tpu_devices() -> list[Device]:
    """Return this process's TPU cores, or the CPU devices that stand for them.

    Raises:
        NoTPUError: If there are none.
    """
    cores = emulated_cores()
    if cores:
        make_room(cores)
        found = named_devices("TPU")
        if len(found) < cores:
            raise NoTPUError(
                None,
                None,
                f"{cores} TPU cores were to be emulated, but JAX has started with {len(found)} CPU device(s). Start the "
                f"program with `tfdist-jax run --emulate-tpu {cores}`.",
            )
        _log.warning("Emulating a TPU with %d cores on the processor.", cores)
        return found
    found = local_devices("TPU")
    if not found:
        raise NoTPUError(
            None,
            None,
            "No TPU was found on this machine. Run the program on a TPU VM with `pip install 'tfdist-jax[tpu]'`, or with "
            "`tfdist-jax run --emulate-tpu 8` to try it on the processor.",
        )
    return found
