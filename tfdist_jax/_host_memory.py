"""The host's memory: how much there is, and that what is freed stays with the process instead of going to the system after every step."""

import contextlib
import ctypes
import os
import sys

# Where Linux says how much memory the processes of a container may have.
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

_VARIABLE = "TFDIST_CPU_MALLOC"
# By these, the user has set the allocator.
_OWN_SETTINGS = ("MALLOC_", "GLIBC_TUNABLES")

# The parameters of `mallopt` in glibc's malloc.h.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8

# The largest blocks that stay: a small share of the memory, since around ten of the same size may lie unused between others.
_SHARE_OF_MEMORY = 64
_MOST = 1 << 30


def count_bytes() -> int:
    """Return how many bytes this process may have, swap included: the machine's, or fewer in a container."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + _swap()]
    for path in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError), open(path) as file:  # None, or not in a container.
            limits.append(int(file.read()))
    return min(limits)


def _swap() -> int:
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("SwapTotal:"))
    return 0


def keep_freed_memory(*, in_one_arena: bool) -> None:
    """Let the allocator keep blocks of up to a 64th of the memory, and of 1 GiB, for the next time.

    XLA asks for a program's memory anew each time that it runs on CPU. Blocks of over 128 KiB to 32 MiB go back to the system at once,
    which then clears them page by page: half of the time of some steps. Without effect where the C library is not glibc, where the
    user has set its allocator, and where TFDIST_CPU_MALLOC is `off`.

    Args:
        in_one_arena: Whether all threads that have not allocated yet share the main arena, in which blocks may be larger than 64 MiB.
            Other threads wait for each other there.
    """
    is_off = os.environ.get(_VARIABLE, "").lower() in ("off", "0", "false")
    if is_off or any(name.startswith(_OWN_SETTINGS) for name in os.environ) or not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none.
    if mallopt is None:
        return
    largest = min(count_bytes() // _SHARE_OF_MEMORY, _MOST)
    mallopt(_MMAP_THRESHOLD, largest)
    mallopt(_TRIM_THRESHOLD, 2 * largest - 1)  # Of what is free at the end of the heap; an int, as glibc takes it.
    if in_one_arena:
        mallopt(_ARENA_MAX, 1)
