"""Runs a schedule: one loop over its ticks, in which each device looks up what it has to do."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._pipeline._schedule import Schedule
from tfdist_jax._pipeline._slots import IDLE, SlotTable
from tfdist_jax._pipeline._stages import Mode, Stages
from tfdist_jax._sharding._keys import fold_keys
from tfdist_jax._sharding._mesh import STAGE

Now = Mapping[str, jax.Array]
"""What this device does at a tick, from the columns of a `SlotTable`."""


class Sums(Protocol):
    """How the results of microbatches are put together."""

    def start(self, results: Any) -> Any:
        """Return that of none, from the shapes of one microbatch's."""
        ...

    def add(self, total: Any, results: Any, number: Any) -> Any:
        """Return the total with the results of a microbatch."""
        ...

    def of_none(self, results: Any) -> Any:
        """Return the results of a microbatch without rows, from those of any: what is the same for all has to be so here, too."""
        ...

    def add_seen(self, total: list[Any], seen: list[Any]) -> list[Any]:
        """Return the total of what a stage's layers have seen, with that of a microbatch."""
        ...

    def seen_by_none(self, seen: list[Any]) -> list[Any]:
        """Return what layers have seen of a microbatch without rows, from that of any."""
        ...


@final
@dataclasses.dataclass(frozen=True)
class Executor:
    """A pipeline of a training, in a program of replicas.

    Attributes:
        schedule: The schedule.
        table: The same, with slots.
        stages: The functions of stages, for each number of rows that some microbatch has.
        sizes: How many rows the microbatches of each replica have: `[replicas, microbatches]`.
        row_axes: The axes over which rows are split.
        sums: How the results of microbatches are put together.
        mode: How stages are run.
        in_order: Whether only one transfer may be under way at a time, as where all devices share a few threads.
    """

    schedule: Schedule
    table: SlotTable
    stages: Mapping[int, Stages]
    sizes: np.ndarray
    row_axes: tuple[str, ...]
    sums: "Sums"
    mode: Mode
    in_order: bool

    def run(
        self, shared: list[jax.Array], layers: Any, data: Any, extra: Any
    ) -> tuple[Any, list[Any], tuple[Any, Any]]:
        """Run all ticks.

        Args:
            shared: Parameters that all stages have.
            layers: Those of layers, `[stages of this device, layers of a stage, ...]`.
            data: The replica's rows, `[microbatches, rows, ...]`.
            extra: Other arguments, with the replica's own keys.

        Returns:
            What the results of all microbatches add up to, zeros on devices without the last stage; what layers have seen, zeros for those
            of other devices; and the gradients by shared parameters that this device has made, with those by its own. Sums of short numbers
            are in float32.
        """
        run = _Run(self, shared, layers, data, extra)
        device = jax.lax.axis_index(STAGE)
        columns = {name: jnp.asarray(column)[:, device] for name, column in self.table.columns.items()}
        columns |= {f"any_{name}": jnp.asarray(column) for name, column in self.table.is_any.items()}
        totals, _ = jax.lax.scan(lambda carry, now: (run.tick(carry, now), None), run.start(), columns)
        places = jnp.arange(self.schedule.num_chunks) * self.schedule.num_devices + device

        def in_order(seen: jax.Array | None) -> jax.Array | None:
            if seen is None:
                return None
            of_all = jnp.zeros((self.schedule.num_stages, *seen.shape[1:]), seen.dtype).at[places].set(seen)
            return of_all.reshape(self.schedule.num_stages * seen.shape[1], *seen.shape[2:])

        return totals["results"], [*map(in_order, totals["seen"])], (totals["shared"], totals["layers"])

    @property
    def largest(self) -> Stages:
        """The functions for the most rows."""
        return self.stages[max(self.stages)]


@final
class _Run:
    """One run: what does not change from tick to tick."""

    def __init__(self, executor: Executor, shared: Any, layers: Any, data: Any, extra: Any) -> None:
        self._of, self._shared, self._layers, self._data, self._extra = executor, shared, layers, data, extra
        self._device = jax.lax.axis_index(STAGE)
        self._last = executor.schedule.num_stages - 1

    def start(self) -> dict[str, Any]:
        """Return empty slots and sums."""
        stages, sizes = self._of.largest, self._of.table.sizes
        slots = lambda shapes, count: jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), shapes)
        totals = lambda tree: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, _sum_type(leaf.dtype)), tree)
        return {
            "input": slots(stages.x, sizes["input"]),
            "cotangent": slots(stages.floats, sizes["cotangent"]),
            "saved": slots(stages.saved, sizes["saved"]),
            "kept": slots(stages.kept, sizes["kept"]),
            "results": self._of.sums.start(stages.results),
            "seen": slots(stages.seen, self._of.schedule.num_chunks),
            "shared": totals(self._shared),
            "layers": totals(self._layers),
        }

    def tick(self, carry: dict[str, Any], now: Now) -> dict[str, Any]:
        """Do what is due, and hand it on."""
        carry = dict(carry)
        y = self._forward(carry, now)
        of_x = self._backward(carry, now)
        if self._of.schedule.is_split:
            self._weight(carry, now)
        self._hand_on(carry, now, y, of_x)
        return carry

    def _forward(self, carry: dict[str, Any], now: Now) -> Any:
        stages = self._of.largest
        number, k, params = self._due(now, "forward")

        def compute(totals: Any) -> Any:
            *totals, of_layers = totals
            x = _take(carry["input"], now["forward_input"])
            y, saved, seen = self._by_size(number, "forward", (stages.x, stages.saved, stages.seen), params, k, x)
            finish = functools.partial(self._finish, number, params, y)
            none = lambda totals: (zeros(stages.floats), totals)
            cotangent, totals = self._choose(k == self._last, now["any_last"], finish, none, tuple(totals))
            chunk = now["forward_chunk"]
            of_layers = _put(of_layers, chunk, self._of.sums.add_seen(_take(of_layers, chunk), seen))
            return (y, saved, cotangent), (*totals, of_layers)

        totals = carry["results"], carry["shared"], carry["seen"]
        idle = stages.x, stages.saved, stages.floats
        (y, saved, cotangent), totals = self._if_due(now, "forward", compute, idle, totals)
        carry["results"], carry["shared"], carry["seen"] = totals
        carry["saved"] = _put(carry["saved"], now["forward_saved"], saved)
        carry["cotangent"] = _put(carry["cotangent"], now["forward_cotangent"], cotangent)
        return y

    def _finish(self, number: Any, params: Any, y: Any, totals: Any) -> Any:
        stages = self._of.largest
        results, shared = totals
        like = stages.results, self._shared, stages.floats
        found, of_shared, cotangent = self._by_size(number, "finish", like, params, y)
        return cotangent, (self._of.sums.add(results, found, number), _add(shared, of_shared))

    def _backward(self, carry: dict[str, Any], now: Now) -> Any:
        stages = self._of.largest
        number, k, params = self._due(now, "backward")
        is_split = self._of.schedule.is_split

        def compute(totals: Any) -> Any:
            shared, layers = totals
            given = [_take(carry[name], now[f"backward_{name}"]) for name in ("input", "saved", "cotangent")]
            like = stages.floats, stages.kept if is_split else params[1]
            of_x, made = self._by_size(number, "backward", like, params, k, *given)
            if stages.has_first:
                first = lambda shared: _add(shared, self._by_size(number, "backward_first", self._shared, params, of_x))
                shared = self._choose(k == 0, now["any_first"], first, lambda shared: shared, shared)
            if is_split:
                return (of_x, made), (shared, layers)
            return (of_x, zeros(stages.kept)), (shared, _add_at(layers, now["backward_chunk"], made))

        totals = carry["shared"], carry["layers"]
        (of_x, kept), totals = self._if_due(now, "backward", compute, (stages.floats, stages.kept), totals)
        carry["shared"], carry["layers"] = totals
        carry["kept"] = _put(carry["kept"], now["backward_kept"], kept)
        return of_x

    def _weight(self, carry: dict[str, Any], now: Now) -> None:
        number, k, params = self._due(now, "weight")

        def compute(layers: Any) -> Any:
            kept = _take(carry["kept"], now["weight_kept"])
            made = self._by_size(number, "weight", params[1], params, k, kept)
            return (), _add_at(layers, now["weight_chunk"], made)

        _, carry["layers"] = self._if_due(now, "weight", compute, (), carry["layers"])

    def _hand_on(self, carry: dict[str, Any], now: Now, y: Any, of_x: Any) -> None:
        """Give the next device what it takes, and the one before its cotangents."""
        devices, is_ring = self._of.schedule.num_devices, self._of.schedule.num_chunks > 1
        pairs = [(i, (i + 1) % devices) for i in range(devices if is_ring else devices - 1)]
        if not pairs:
            return
        leaves, tree = jax.tree.flatten(y)
        sent = [(leaf, pairs) for leaf in leaves] + [(leaf, [(j, i) for i, j in pairs]) for leaf in of_x]
        got: list[jax.Array] = []
        for leaf, to in sent:
            if got and self._of.in_order:
                got[-1], leaf = jax.lax.optimization_barrier((got[-1], leaf))
            got.append(jax.lax.ppermute(leaf, STAGE, to))
        y, of_x = tree.unflatten(got[: len(leaves)]), got[len(leaves) :]
        carry["input"] = _put(carry["input"], now["arriving_input"], y)
        carry["cotangent"] = _put(carry["cotangent"], now["arriving_cotangent"], of_x)

    def _due(self, now: Now, name: str) -> tuple[Any, Any, Any]:
        """Return the microbatch that is due, of which stage, and its parameters."""
        chunk = now[f"{name}_chunk"]
        stage = chunk * self._of.schedule.num_devices + self._device
        return jnp.maximum(now[name], 0), stage, (self._shared, _take(self._layers, chunk))

    def _if_due(self, now: Now, name: str, compute: Callable[..., Any], shapes: Any, totals: Any) -> Any:
        """Return `compute(totals)`, or zeros and what the totals were if nothing is due."""
        idle = lambda totals: (zeros(shapes), totals)
        return self._choose(now[name] != IDLE, now[f"any_{name}"], compute, idle, totals)

    def _choose(self, is_due: Any, is_any: Any, yes: Callable[..., Any], no: Callable[..., Any], *args: Any) -> Any:
        """Return `yes(*args)` if it is due, else `no(*args)`; where devices communicate, all compute it if it is due on any."""
        choose = self._of.mode.choose
        if not self._of.mode.is_uniform:
            return choose(is_due, yes, no, *args)
        return jax.lax.cond(is_any, lambda *args: choose(is_due, yes, no, *args), no, *args)

    def _by_size(self, number: Any, name: str, like: Any, params: Any, *given: Any) -> Any:
        """Return what a function of stages gives for a microbatch, filled up to the shapes that it has for the most rows."""
        rows, extra = _take(self._data, number), fold_keys(self._extra, number)
        sizes = sorted({*self._of.sizes.flat})
        if len(sizes) == 1:
            return getattr(self._of.largest, name)(params, *given, rows, extra)

        def branch(size: int) -> Callable[..., Any]:
            if not size:
                return functools.partial(self._of_none, name, like, params, extra)
            stages = self._of.stages[size]
            shapes = [getattr(stages, kind, None) for kind in _GIVEN[name]]

            def compute(rows: Any, *given: Any) -> Any:
                rows = jax.tree.map(lambda leaf: leaf[:size], rows)
                cut = [
                    each if shape is None else cut_to(each, shape) for each, shape in zip(given, shapes, strict=True)
                ]
                return fill_up_to(getattr(stages, name)(params, *cut, rows, extra), like)

            return compute

        own = jnp.asarray(np.searchsorted(sizes, self._of.sizes))
        which = own[jax.lax.axis_index(self._of.row_axes), number]
        return jax.lax.switch(which, [branch(size) for size in sizes], rows, *given)

    def _of_none(self, name: str, like: Any, params: Any, extra: Any, rows: Any, *given: Any) -> Any:
        """Return what a function of stages gives for a microbatch without rows."""
        sums, none = self._of.sums, zeros(like)
        if name not in ("forward", "finish"):
            return none
        found = getattr(self._of.largest, name)(params, *given, rows, extra)
        if name == "finish":
            return sums.of_none(found[0]), *none[1:]
        return *none[:-1], sums.seen_by_none(found[-1])


_GIVEN = {
    "forward": ("stage", "x"),
    "finish": ("x",),
    "backward": ("stage", "x", "saved", "floats"),
    "backward_first": ("floats",),
    "weight": ("stage", "kept"),
}
"""What functions of stages are given, by the names of what has the shapes of it."""


def zeros(shapes: Any) -> Any:
    """Return zeros of the shapes and types of a tree."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def cut_to(tree: Any, shapes: Any) -> Any:
    """Return the beginnings of arrays, of other shapes."""
    return jax.tree.map(lambda leaf, shape: leaf[tuple(slice(size) for size in shape.shape)], tree, shapes)


def fill_up_to(tree: Any, shapes: Any) -> Any:
    """Fill arrays up with zeros to other shapes.

    Raises:
        ValueError: If there is no room.
    """

    def fill(leaf: Any, shape: Any) -> Any:
        missing = [(0, wanted - has) for has, wanted in zip(leaf.shape, shape.shape, strict=True)]
        if leaf.dtype != shape.dtype or any(count < 0 for _, count in missing):
            raise ValueError(
                f"With fewer rows, what is kept of a microbatch has the shape {leaf.shape} and type {leaf.dtype} where it has "
                f"{shape.shape} and {shape.dtype} with more: it is another function. Give each replica a number of rows that "
                "the microbatches divide."
            )
        return jnp.pad(leaf, missing) if any(count for _, count in missing) else leaf

    return jax.tree.map(fill, tree, shapes)


def _sum_type(dtype: Any) -> Any:
    return jnp.promote_types(dtype, jnp.float32)


def _take(slots: Any, index: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), slots)


def _put(slots: Any, index: Any, values: Any) -> Any:
    return jax.tree.map(lambda leaf, value: jax.lax.dynamic_update_index_in_dim(leaf, value, index, 0), slots, values)


def _add(totals: Any, values: Any) -> Any:
    return jax.tree.map(lambda total, value: total + value.astype(total.dtype), totals, values)


def _add_at(totals: Any, index: Any, values: Any) -> Any:
    return _put(totals, index, _add(_take(totals, index), values))
