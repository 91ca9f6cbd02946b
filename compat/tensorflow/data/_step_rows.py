"""What one step of a saved position is: so many rows. Positions count steps, and other steps lead to other samples."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax

from tfdist_jax.compat.tensorflow.data._failures import Failure, guarded


def rows_of(batch: Any) -> int:
    """Return how many rows a batch has; 1 if it is a single value."""
    shape: Any = next((leaf.shape for leaf in jax.tree.leaves(batch) if hasattr(leaf, "shape")), ())
    return shape[0] if len(shape) else 1


def skip_batches(steps: Iterator[Any], count: int, rows_of: Callable[[Any], int] = rows_of) -> int | None:
    """Take so many steps of an iterator, and return how many rows the first of them has; 0 if there is none, None if all fail."""
    rows: int | None = 0
    is_known = False
    for step in itertools.islice(guarded(steps), count):
        if not is_known:
            is_known = type(step) is not Failure
            rows = rows_of(step) if is_known else None
    return rows


def peek_first(steps: Iterator[Any], note: Callable[[Any], None]) -> Iterator[Any]:
    """Return an iterator over the steps, which goes on after an error; `note` sees the first step before."""

    def parts() -> Iterator[Iterator[Any]]:
        for step in guarded(steps):
            if type(step) is not Failure:
                note(step)
                yield iter((step,))
                break
            yield step  # Raises its error, and is over.
        yield steps

    return itertools.chain.from_iterable(parts())


def require_same_rows(before: int | None, now: int | None) -> None:
    """Compare the first step of an iteration that was saved with that of the one that goes on there.

    Args:
        before: How many rows it had; None if nobody knew it yet.
        now: How many it has.

    Raises:
        ValueError: If these are more or fewer.
    """
    if before not in (None, now):
        raise ValueError(
            f"The position was saved in the middle of data whose first step had {before} rows; here it has {now}. Steps of "
            "another size would leave samples out or take them again: go on with the same global batch, or change it where "
            "an iteration over the data is over, such as the end of an epoch."
        )
