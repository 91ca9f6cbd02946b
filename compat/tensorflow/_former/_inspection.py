"""`tensorflow.python.util.tf_inspect`: Python's `inspect`."""

import inspect
from typing import Any

getfullargspec = getargspec = inspect.getfullargspec


def __getattr__(name: str) -> Any:
    return getattr(inspect, name)
