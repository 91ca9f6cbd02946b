"""Host batches to arrays over the mesh: splitting, padding, transfer ahead of the step."""

import collections
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from tfdist_jax._sharding._mesh import replicas
from tfdist_jax._sharding._placement import batch_shardings, put, spans_processes
from tfdist_jax._sharding._values import PerReplica

Batch = TypeVar("Batch")
Placed = TypeVar("Placed")


@functools.lru_cache
def split_sizes(rows: int, num_replicas: int) -> tuple[int, ...]:
    """Share `rows` out over replicas: ceil(rows / num_replicas) each until they are used up.

    The rule of `tf.distribute`'s batch splitting; `rows` is the size of this batch, so a short last batch may
    leave replicas empty.

    Example:
        >>> import tfdist_jax as td
        >>> td.split_sizes(10, 4), td.split_sizes(6, 4), td.split_sizes(5, 4)
        ((3, 3, 3, 1), (2, 2, 2, 0), (2, 2, 1, 0))
    """
    each = -(-rows // num_replicas)
    return tuple(max(0, min(each, rows - replica * each)) for replica in range(num_replicas))


def num_rows(batch: Any) -> int:
    """Return the leading size that all arrays of `batch` share.

    Raises:
        ValueError: If the batch holds no array, a scalar, or arrays of different lengths.
    """
    leaves = jax.tree.leaves(batch)
    lengths = {np.shape(leaf)[:1] for leaf in leaves}
    if len(lengths) != 1 or () in lengths:
        raise ValueError(
            "A batch needs one or more arrays with the same number of rows, got the shapes "
            f"{[np.shape(leaf) for leaf in leaves]}. Put the examples on the first axis of every array."
        )
    return lengths.pop()[0]


def split_rows(batch: Batch, num_replicas: int) -> list[Batch]:
    """Cut a host batch into the replicas' parts, by `split_sizes`."""
    ends = list(itertools.accumulate(split_sizes(num_rows(batch), num_replicas)))
    return [
        jax.tree.map(lambda leaf, a=start, b=end: leaf[a:b], batch)
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]


def put_rows(batch: Any, mesh: Mesh) -> Any:
    """Lay a host batch out over the batch axes of `mesh`, each device receiving only its rows.

    Args:
        batch: Pytree of arrays whose number of rows the number of replicas divides.
        mesh: The mesh of the strategy.

    Returns:
        The same tree with arrays sharded by rows, and over an axis `sequence` by tokens; 64-bit ones as JAX's configuration says.
    """
    return put(batch, batch_shardings(batch, mesh))


def split_batch(batch: Any, mesh: Mesh) -> Any:
    """Split the rows of a host batch over the replicas.

    Returns:
        The same tree with a `PerReplica` per array, on the replicas' devices; by `split_sizes`, with differing
        shapes where the rows do not divide evenly. With several processes these are copies, which each has of all.
    """
    count = len(replicas(mesh))
    if len(set(split_sizes(num_rows(batch), count))) == 1:
        return jax.tree.map(lambda leaf: PerReplica(leaf, count, is_rows=True), put_rows(batch, mesh))
    homes = [jax.local_devices()[0]] * count if spans_processes(mesh) else replicas(mesh)
    parts = [jax.device_put(part, home) for part, home in zip(split_rows(batch, count), homes, strict=True)]
    return jax.tree.map(lambda *values: PerReplica.uneven(values), *parts)


def pad_to_equal(batch: Any, num_replicas: int) -> tuple[Any, tuple[int, ...]]:
    """Fill a host batch of any size up with zeros to equal parts.

    Args:
        batch: Pytree of host arrays `[rows, ...]`, or of random keys.
        num_replicas: Number of parts.

    Returns:
        The batch as arrays `[R * ceil(rows / R), ...]`, and how many rows of each replica's part are real
        (`split_sizes`).
    """
    rows = num_rows(batch)
    sizes = split_sizes(rows, num_replicas)
    missing = sizes[0] * num_replicas - rows
    if missing:
        batch = jax.tree.map(lambda leaf: _pad_rows(leaf, missing), batch)
    return batch, sizes


def add_mask(batch: Any, name: str, sizes: Sequence[int], length: int) -> Any:
    """Add to a batch which of its rows are real.

    Args:
        batch: A mapping of host arrays `[parts * length, ...]`.
        name: Where it is put.
        sizes: How many rows of each part are real.
        length: How many rows each part has.

    Returns:
        The mapping as a dict, with an array of booleans at `name`.

    Raises:
        ValueError: If there is something at `name`.
        TypeError: If the batch is no mapping.
    """
    if not isinstance(batch, Mapping):
        raise TypeError(
            f"A mask is added to batches that are mappings, such as {{'x': x, {name!r}: mask}}, got {type(batch).__name__}."
        )
    if name in batch:
        raise ValueError(f"The batch has {name!r} already. Give the mask of real rows another name: mask='is_real'.")
    return {**batch, name: np.concatenate([np.arange(length) < size for size in sizes])}


def _pad_rows(array: Any, missing: int) -> Any:
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        padded = _pad_rows(jax.random.key_data(array), missing)
        return jax.random.wrap_key_data(padded, impl=jax.random.key_impl(array))
    array = np.asarray(array)
    return np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))


@final
class prefetch(Iterator[Placed]):
    """Iterator over `place(item)` of every item, started `depth` items before it is asked for.

    Transfers to devices are asynchronous, so a batch placed early travels while earlier steps compute. An error comes in its own
    step, behind the batches before, and the next item after it.
    """

    def __init__(self, items: Iterable[Batch], place: Callable[[Batch], Placed], *, depth: int = 2) -> None:
        """Start nothing yet.

        Args:
            items: Host batches.
            place: Starts the transfer of one batch, such as `strategy.put`.
            depth: How many batches are on their way at a time.
        """
        self._placed = map(place, items)
        self._depth = depth
        self._waiting: collections.deque[tuple[Placed, None] | tuple[None, Exception]] = collections.deque()
        self._is_over = False

    def __next__(self) -> Placed:
        while not self._is_over and len(self._waiting) <= self._depth:
            self._start_next()
        if not self._waiting:
            raise StopIteration
        placed, error = self._waiting.popleft()
        if error is not None:
            raise error
        return placed  # pyright: ignore[reportReturnType]

    def _start_next(self) -> None:
        try:
            self._waiting.append((next(self._placed), None))
        except StopIteration:
            self._is_over = True
        except Exception as error:
            self._waiting.append((None, error))


@final
@jax.tree_util.register_pytree_node_class
class PaddedBatch:
    """A batch over the mesh whose last rows on some devices are padding.

    Attributes:
        data: Pytree of arrays `[R * ceil(rows / R), ...]`, sharded `P(DATA)`.
        sizes: Number of real rows of each replica, as `split_sizes` gives them.

    Example:
        >>> import numpy as np, tfdist_jax as td
        >>> batch = td.Mirrored().put(np.zeros((10, 3)))
        >>> batch.sizes, batch.data.shape
        ((2, 2, 2, 2, 2, 0, 0, 0), (16, 3))
    """

    __slots__ = ("data", "sizes")

    def __init__(self, data: Any, sizes: tuple[int, ...]) -> None:
        """Hold padded `data`, of which replica `r` has `sizes[r]` real rows."""
        self.data = data
        self.sizes = sizes

    def tree_flatten(self) -> tuple[tuple[Any], tuple[int, ...]]:
        """Return the arrays and the sizes, which are part of the program."""
        return (self.data,), self.sizes

    def __getitem__(self, key: object) -> Any:
        """Refuse to be taken for a batch whose rows are all real."""
        raise self._error()

    def __jax_array__(self) -> Any:
        """Refuse to be taken for an array whose rows are all real."""
        raise self._error()

    def _error(self) -> TypeError:
        return TypeError(
            f"{sum(self.sizes)} rows do not divide evenly over {len(self.sizes)} replicas, so this is a batch with rows that are padding, "
            "for `strategy.value_and_grad` and `strategy.evaluate`. For programs of your own, `strategy.put(batch, mask='mask')` adds "
            "which rows are real."
        )

    @classmethod
    def tree_unflatten(cls, sizes: tuple[int, ...], children: tuple[Any]) -> "PaddedBatch":
        """Rebuild from `tree_flatten`'s parts."""
        return cls(children[0], sizes)
