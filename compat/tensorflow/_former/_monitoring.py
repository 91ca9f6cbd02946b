"""`tensorflow.python.eager.monitoring`: numbers that a process keeps about itself; nobody collects them here."""

import collections
import contextlib
from collections.abc import Callable
from typing import Any, final


@final
class _Cell:
    """One number of a metric."""

    def __init__(self) -> None:
        self._value: Any = 0

    def increase_by(self, value: Any) -> None:
        """Add to a counter."""
        self._value += value

    def set(self, value: Any) -> None:
        """Set a gauge."""
        self._value = value

    def add(self, value: Any) -> None:
        """Add a value to a distribution; only how many there were is kept."""
        self._value += 1

    def value(self) -> Any:
        """Return the number."""
        return self._value


@final
class _Metric:
    """A number for each combination of labels."""

    def __init__(self, name: str, *args: Any, **kwargs: Any) -> None:
        self.name = name
        self._cells: collections.defaultdict[tuple[Any, ...], _Cell] = collections.defaultdict(_Cell)

    def get_cell(self, *labels: Any) -> _Cell:
        """Return the number for some labels."""
        return self._cells[labels]


Counter = IntGauge = StringGauge = BoolGauge = Sampler = _Metric


@final
class ExponentialBuckets:
    """Limits of a distribution's buckets."""

    def __init__(self, scale: float, growth_factor: float, bucket_count: int) -> None:
        """Keep the limits."""
        self.limits = [scale * growth_factor**i for i in range(bucket_count)]


@final
class MonitoredTimer(contextlib.ContextDecorator):
    """A context, or decorator, whose time would be counted."""

    def __init__(self, cell: Any = None, *args: Any, **kwargs: Any) -> None:
        """Keep the number that it would be added to."""
        self.cell = cell

    def __enter__(self) -> "MonitoredTimer":
        """Start."""
        return self

    def __exit__(self, *exception: Any) -> None:
        """End."""


def monitored_timer(cell: Any) -> Callable[[Any], Any]:
    """Return a decorator that leaves a function as it is."""
    return lambda func: func
