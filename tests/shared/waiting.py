"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable

from environment import LIMIT_S


def wait_until(is_so: Callable[[], object]) -> None:
    """Return once something is so; the test fails if that takes too long."""
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)
