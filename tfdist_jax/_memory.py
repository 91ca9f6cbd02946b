"""Whether a compiled program fits into the memory of its devices."""

from typing import Any

from tfdist_jax._errors import make_out_of_memory_error
from tfdist_jax._host_memory import count_bytes


def require_memory(program: Any, name: str) -> None:
    """Refuse a program that cannot run, before it takes the memory of its arguments: what they hold would be gone.

    XLA knows when it has compiled a program how much that needs. On CPU devices it notices only while the program runs that there is
    less.

    Args:
        program: The compiled program.
        name: What it is called in the message.

    Raises:
        OutOfMemoryError: If it needs more memory than a device has.
    """
    stats = program.memory_analysis()
    # Not those of its shardings: a value of another trace that it uses is an input, too, which JAX refuses only when it runs.
    devices = program.runtime_executable().local_devices()
    device = devices[0]
    total = _memory_of(device)
    if stats is None or total is None:
        return
    count = len(devices) if device.platform == "cpu" else 1  # Those of a processor share its memory.
    given, made = stats.argument_size_in_bytes, stats.output_size_in_bytes - stats.alias_size_in_bytes
    needed = count * (given + made + stats.temp_size_in_bytes)
    if needed > total:
        raise make_out_of_memory_error[-1](
            f"Out of memory: `{name}` needs {_in_gib(needed)}, {_in_gib(count * stats.temp_size_in_bytes)} of them for intermediate "
            f"values; {device.device_kind} has {_in_gib(total)}. It has not run, and all values are as before. Let a step have fewer "
            "rows, or compute parts of it again in the gradient (`jax.checkpoint`, `tf.recompute_grad`)."
        )


def _memory_of(device: Any) -> int | None:
    """Return how many bytes there are; None if nobody says."""
    if device.platform != "cpu":
        return (device.memory_stats() or {}).get("bytes_limit")
    return count_bytes()


def _in_gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
