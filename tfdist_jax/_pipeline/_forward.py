"""Runs the stages of a model without their gradients: each microbatch goes on to the next stage at every tick."""

import dataclasses
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._pipeline._executor import lay_in_order, send
from tfdist_jax._pipeline._microbatches import Microbatches, zeros
from tfdist_jax._pipeline._slots import IDLE
from tfdist_jax._sharding._entries import put, take
from tfdist_jax._sharding._mesh import STAGE


@final
@dataclasses.dataclass(frozen=True)
class ForwardExecutor:
    """A pipeline of an evaluation, in a program of replicas.

    What a stage hands on is taken at the next tick, so that nothing waits and there are no slots: devices go through as many microbatches
    as there are of them, with their first stage, then with the second one of each, and so on.

    Attributes:
        num_devices: Over how many devices stages lie.
        num_chunks: How many stages a device has.
        microbatches: What is computed of each.
        in_order: Whether only one transfer may be under way at a time.
    """

    num_devices: int
    num_chunks: int
    microbatches: Microbatches
    in_order: bool

    def run(self, shared: list[jax.Array], layers: Any) -> tuple[Any, list[Any]]:
        """Run all ticks; returns what `Executor.run` does, but gradients."""
        given, stages = self.microbatches, self.microbatches.largest
        device, last = jax.lax.axis_index(STAGE), self.num_devices * self.num_chunks - 1
        none = jax.tree.map(lambda leaf: jnp.zeros((self.num_chunks, *leaf.shape), leaf.dtype), stages.seen)

        def tick(carry: Any, now: Any) -> tuple[Any, None]:
            x, *totals = carry
            number, chunk = jnp.maximum(now["number"], 0), now["chunk"]
            k, params = chunk * self.num_devices + device, (shared, take(layers, chunk))

            def compute(results: Any, seen: Any) -> Any:
                like = stages.x, stages.saved, stages.seen
                y, _, noted = given.by_size(number, "forward", like, params, k, x)
                found = lambda results: given.sums.add(
                    results, given.by_size(number, "compute", stages.results, params, y), number
                )
                results = given.choose(k == last, now["any_last"], found, lambda results: results, results)
                return y, results, put(seen, chunk, given.sums.add_seen(take(seen, chunk), noted))

            idle = lambda results, seen: (zeros(stages.x), results, seen)
            y, *totals = given.choose(now["number"] != IDLE, now["any"], compute, idle, *totals)
            return (self._hand_on(y), *totals), None

        start = zeros(stages.x), given.sums.start(stages.results), none
        (_, results, seen), _ = jax.lax.scan(tick, start, self._columns(device))
        return results, lay_in_order(seen, self.num_devices, self.num_chunks)

    def _columns(self, device: Any) -> dict[str, jax.Array]:
        """What this device computes at each tick, and whether any does."""
        numbers, chunks = order_forward(self.num_devices, self.num_chunks, self.microbatches.sizes.shape[1])
        is_due = numbers != IDLE
        is_last = is_due[:, -1] & (chunks[:, -1] == self.num_chunks - 1)
        own = {name: jnp.asarray(table)[:, device] for name, table in (("number", numbers), ("chunk", chunks))}
        return own | {"any": jnp.asarray(is_due.any(1)), "any_last": jnp.asarray(is_last)}

    def _hand_on(self, y: Any) -> Any:
        """Give the next device what it takes; the last one has something for the first if that has another stage."""
        leaves, tree = jax.tree.flatten(y)
        senders = self.num_devices if self.num_chunks > 1 else self.num_devices - 1
        pairs = [(i, (i + 1) % self.num_devices) for i in range(senders)]
        return tree.unflatten(send([(leaf, pairs) for leaf in leaves], in_order=self.in_order))


def order_forward(devices: int, chunks: int, microbatches: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which microbatch each device computes at each tick, `IDLE` for none, and with which of its stages: `[ticks, devices]`."""
    groups = -(-microbatches // devices)
    in_last = microbatches - (groups - 1) * devices
    ticks = ((groups - 1) * chunks + chunks - 1) * devices + in_last + devices - 1
    # A device does what the one before it did a tick earlier.
    step = np.arange(ticks)[:, None] - np.arange(devices)
    rounds, place = np.divmod(step, devices)
    group, chunk = np.divmod(rounds, chunks)
    number = group * devices + place
    is_due = (step >= 0) & (number < microbatches)
    return np.where(is_due, number, IDLE).astype(np.int32), np.where(is_due, chunk, 0).astype(np.int32)
