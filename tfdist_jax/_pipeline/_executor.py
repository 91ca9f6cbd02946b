"""Runs a schedule: one loop over its ticks, in which each device looks up what it has to do."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._pipeline._microbatches import Microbatches, zeros
from tfdist_jax._pipeline._schedule import Schedule
from tfdist_jax._pipeline._slots import IDLE, SlotTable
from tfdist_jax._sharding._entries import put, take
from tfdist_jax._sharding._mesh import STAGE

Now = Mapping[str, jax.Array]
"""What this device does at a tick, from the columns of a `SlotTable`."""


@final
@dataclasses.dataclass(frozen=True)
class Executor:
    """A pipeline of a training, in a program of replicas.

    Attributes:
        schedule: The schedule.
        table: The same, with slots.
        microbatches: What is computed of each.
        in_order: Whether only one transfer may be under way at a time, as where all devices share a few threads.
    """

    schedule: Schedule
    table: SlotTable
    microbatches: Microbatches
    in_order: bool

    def run(self, shared: list[jax.Array], layers: Any) -> tuple[Any, list[Any], tuple[Any, Any]]:
        """Run all ticks.

        Args:
            shared: Parameters that all stages have.
            layers: Those of layers, `[stages of this device, layers of a stage, ...]`.

        Returns:
            What the results of all microbatches add up to, zeros on devices without the last stage; what layers have seen, zeros for those
            of other devices; and the gradients by shared parameters that this device has made, with those by its own. Sums of short numbers
            are in float32.
        """
        run = _Run(self, shared, layers)
        device = jax.lax.axis_index(STAGE)
        columns = {name: jnp.asarray(column)[:, device] for name, column in self.table.columns.items()}
        columns |= {f"any_{name}": jnp.asarray(column) for name, column in self.table.is_any.items()}
        totals, _ = jax.lax.scan(lambda carry, now: (run.tick(carry, now), None), run.start(), columns)
        seen = lay_in_order(totals["seen"], self.schedule.num_devices, self.schedule.num_chunks)
        return totals["results"], seen, (totals["shared"], totals["layers"])


@final
class _Run:
    """One run: what does not change from tick to tick."""

    def __init__(self, executor: Executor, shared: Any, layers: Any) -> None:
        self._of, self._shared, self._layers, self._all = executor, shared, layers, executor.microbatches
        self._device = jax.lax.axis_index(STAGE)
        self._last = executor.schedule.num_stages - 1

    def start(self) -> dict[str, Any]:
        """Return empty slots and sums."""
        stages, sizes = self._all.largest, self._of.table.sizes
        slots = lambda shapes, count: jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), shapes)
        totals = lambda tree: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, _sum_type(leaf.dtype)), tree)
        return {
            "input": slots(stages.x, sizes["input"]),
            "cotangent": slots(stages.floats, sizes["cotangent"]),
            "saved": slots(stages.saved, sizes["saved"]),
            "kept": slots(stages.kept, sizes["kept"]),
            "results": self._all.sums.start(stages.results),
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
        stages = self._all.largest
        number, k, params = self._due(now, "forward")

        def compute(totals: Any) -> Any:
            *totals, of_layers = totals
            x = take(carry["input"], now["forward_input"])
            y, saved, seen = self._all.by_size(number, "forward", (stages.x, stages.saved, stages.seen), params, k, x)
            finish = functools.partial(self._finish, number, params, y)
            none = lambda totals: (zeros(stages.floats), totals)
            cotangent, totals = self._all.choose(k == self._last, now["any_last"], finish, none, tuple(totals))
            chunk = now["forward_chunk"]
            of_layers = put(of_layers, chunk, self._all.sums.add_seen(take(of_layers, chunk), seen))
            return (y, saved, cotangent), (*totals, of_layers)

        totals = carry["results"], carry["shared"], carry["seen"]
        idle = stages.x, stages.saved, stages.floats
        (y, saved, cotangent), totals = self._if_due(now, "forward", compute, idle, totals)
        carry["results"], carry["shared"], carry["seen"] = totals
        carry["saved"] = put(carry["saved"], now["forward_saved"], saved)
        carry["cotangent"] = put(carry["cotangent"], now["forward_cotangent"], cotangent)
        return y

    def _finish(self, number: Any, params: Any, y: Any, totals: Any) -> Any:
        stages = self._all.largest
        results, shared = totals
        like = stages.results, self._shared, stages.floats
        found, of_shared, cotangent = self._all.by_size(number, "finish", like, params, y)
        return cotangent, (self._all.sums.add(results, found, number), _add(shared, of_shared))

    def _backward(self, carry: dict[str, Any], now: Now) -> Any:
        stages = self._all.largest
        number, k, params = self._due(now, "backward")
        is_split = self._of.schedule.is_split

        def compute(totals: Any) -> Any:
            shared, layers = totals
            given = [take(carry[name], now[f"backward_{name}"]) for name in ("input", "saved", "cotangent")]
            like = stages.floats, stages.kept if is_split else params[1]
            of_x, made = self._all.by_size(number, "backward", like, params, k, *given)
            if stages.has_first:
                first = lambda shared: _add(
                    shared, self._all.by_size(number, "backward_first", self._shared, params, of_x)
                )
                shared = self._all.choose(k == 0, now["any_first"], first, lambda shared: shared, shared)
            if is_split:
                return (of_x, made), (shared, layers)
            return (of_x, zeros(stages.kept)), (shared, _add_at(layers, now["backward_chunk"], made))

        totals = carry["shared"], carry["layers"]
        (of_x, kept), totals = self._if_due(now, "backward", compute, (stages.floats, stages.kept), totals)
        carry["shared"], carry["layers"] = totals
        carry["kept"] = put(carry["kept"], now["backward_kept"], kept)
        return of_x

    def _weight(self, carry: dict[str, Any], now: Now) -> None:
        number, k, params = self._due(now, "weight")

        def compute(layers: Any) -> Any:
            kept = take(carry["kept"], now["weight_kept"])
            made = self._all.by_size(number, "weight", params[1], params, k, kept)
            return (), _add_at(layers, now["weight_chunk"], made)

        _, carry["layers"] = self._if_due(now, "weight", compute, (), carry["layers"])

    def _hand_on(self, carry: dict[str, Any], now: Now, y: Any, of_x: Any) -> None:
        """Give the next device what it takes, and the one before its cotangents."""
        devices, is_ring = self._of.schedule.num_devices, self._of.schedule.num_chunks > 1
        pairs = [(i, (i + 1) % devices) for i in range(devices if is_ring else devices - 1)]
        if not pairs:
            return
        back = [(j, i) for i, j in pairs]
        leaves, tree = jax.tree.flatten(y)
        got = send([(leaf, pairs) for leaf in leaves] + [(leaf, back) for leaf in of_x], in_order=self._of.in_order)
        y, of_x = tree.unflatten(got[: len(leaves)]), got[len(leaves) :]
        carry["input"] = put(carry["input"], now["arriving_input"], y)
        carry["cotangent"] = put(carry["cotangent"], now["arriving_cotangent"], of_x)

    def _due(self, now: Now, name: str) -> tuple[Any, Any, Any]:
        """Return the microbatch that is due, of which stage, and its parameters."""
        chunk = now[f"{name}_chunk"]
        stage = chunk * self._of.schedule.num_devices + self._device
        return jnp.maximum(now[name], 0), stage, (self._shared, take(self._layers, chunk))

    def _if_due(self, now: Now, name: str, compute: Callable[..., Any], shapes: Any, totals: Any) -> Any:
        """Return `compute(totals)`, or zeros and what the totals were if nothing is due."""
        idle = lambda totals: (zeros(shapes), totals)
        return self._all.choose(now[name] != IDLE, now[f"any_{name}"], compute, idle, totals)


def send(leaves: Sequence[tuple[jax.Array, list[tuple[int, int]]]], *, in_order: bool) -> list[jax.Array]:
    """Give arrays to other devices along `stage`.

    Args:
        leaves: Each, and from which device to which it goes.
        in_order: Whether one goes after another.
    """
    got: list[jax.Array] = []
    for leaf, to in leaves:
        if got and in_order:
            got[-1], leaf = jax.lax.optimization_barrier((got[-1], leaf))
        got.append(jax.lax.ppermute(leaf, STAGE, to))
    return got


def lay_in_order(seen: Sequence[jax.Array | None], devices: int, chunks: int) -> list[jax.Array | None]:
    """Return what layers have seen, `[stages of this device, layers of a stage, ...]`, as `[all layers, ...]`; zeros for others."""
    places = jnp.arange(chunks) * devices + jax.lax.axis_index(STAGE)

    def lay(leaf: jax.Array | None) -> jax.Array | None:
        if leaf is None:
            return None
        of_all = jnp.zeros((devices * chunks, *leaf.shape[1:]), leaf.dtype).at[places].set(leaf)
        return of_all.reshape(devices * chunks * leaf.shape[1], *leaf.shape[2:])

    return [*map(lay, seen)]


def _sum_type(dtype: Any) -> Any:
    return jnp.promote_types(dtype, jnp.float32)


def _add(totals: Any, values: Any) -> Any:
    return jax.tree.map(lambda total, value: total + value.astype(total.dtype), totals, values)


def _add_at(totals: Any, index: Any, values: Any) -> Any:
    return put(totals, index, _add(take(totals, index), values))
