"""Replicas that run with values instead of traces: one after the other, each on its device, meeting at collectives."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tfdist_jax._cluster import DisagreementError
from tfdist_jax._multiprocess._gathering import allgather_arrays
from tfdist_jax._sharding._mesh import DATA, num_replicas, replicas
from tfdist_jax._sharding._placement import local, local_replicas, spans_processes
from tfdist_jax._sharding._values import PerReplica
from tfdist_jax._stateful._lockstep import LockStep
from tfdist_jax._stateful._replica_state import ReplicaScope
from tfdist_jax._stateful._state import Cell, Merge, StateScope, entering
from tfdist_jax._stateful._transaction import ReplicaTransaction


@final
class EagerReplicas:
    """The replicas of a mesh, of which this process runs its own.

    Attributes:
        numbers: Which of all replicas run in this process.
        devices: Their devices.
    """

    def __init__(self, mesh: Mesh) -> None:
        """Run on `mesh`.

        Raises:
            NotImplementedError: If a replica has several devices, which only one program can use together.
        """
        if mesh.size > num_replicas(mesh):
            raise NotImplementedError(
                "A step that needs the values of tensors while it runs takes one device for each replica, but the strategy's "
                f"mesh has {dict(mesh.shape)}. Let the step be compiled: no `numpy()`, `if` or `print` on a tensor's value."
            )
        self.numbers = local_replicas(mesh)
        self.devices = [replicas(mesh)[i] for i in self.numbers]
        self._mesh = mesh
        self._are_elsewhere = spans_processes(mesh)

    def of_all(self, what: str, values: Sequence[Any]) -> list[Any]:
        """Return trees of all replicas on this process's first device, given those of its own replicas.

        Raises:
            DisagreementError: If other processes are at another place of the step than `what`.
        """
        if not self._are_elsewhere:
            return [jax.device_put(value, self.devices[0]) for value in values]
        leaves = [jax.tree.leaves(value) for value in values]
        tree = jax.tree.structure(values[0])
        told = self._round(what, len(leaves[0]), [np.asarray(leaf) for leaf in itertools.chain(*leaves)])
        found = [
            arrays[start : start + count] for count, arrays in told for start in range(0, len(arrays), max(count, 1))
        ]
        # By process, whose replicas need not lie next to each other.
        owners = [device.process_index for device in replicas(self._mesh)]
        by_process = sorted(range(len(owners)), key=owners.__getitem__)
        with jax.enable_x64(True):  # As they were.
            placed = [tree.unflatten(jax.device_put(one, self.devices[0])) for one in found]
        return [value for _, value in sorted(zip(by_process, placed, strict=True), key=lambda pair: pair[0])]

    def tell(self, what: str, value: Any) -> list[Any]:
        """Return what all processes say, of which JSON can be made.

        Raises:
            DisagreementError: If other processes are at another place of the step than `what`.
        """
        return [said for said, _ in self._round(what, value)] if self._are_elsewhere else [value]

    def _round(self, what: str, value: Any, arrays: Sequence[np.ndarray] = ()) -> list[tuple[Any, list[np.ndarray]]]:
        told = allgather_arrays("a step that needs the values of tensors", [what, value], arrays, self._mesh)
        for process, ((place, said), _) in enumerate(told):
            if place == _FAILED != what:
                raise DisagreementError(f"Process {process} has left the step with an error: {said}")
            if place != what != _FAILED:
                raise DisagreementError(
                    f"Process {process} {place} in a step where this one {what}. Every replica must make the same calls of "
                    "all_reduce, all_gather, merge_call and apply_gradients, and change the same variables."
                )
        return [(said, given) for (_, said), given in told]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Tell the other processes of an error inside, for which they would wait else; unless all know."""
        try:
            yield
        except DisagreementError:
            raise
        except Exception as error:
            self.tell(_FAILED, f"{type(error).__name__}: {error}")
            raise

    def stacked(self, values: Sequence[jax.Array]) -> PerReplica:
        """Hold tensors of all replicas, of one shape and type, given those of this process's replicas."""
        blocks = [jax.device_put(value, device)[None] for value, device in zip(values, self.devices, strict=True)]
        shape = (num_replicas(self._mesh), *blocks[0].shape[1:])
        sharding = NamedSharding(self._mesh, PartitionSpec(DATA))
        return PerReplica(jax.make_array_from_single_device_arrays(shape, sharding, blocks), shape[0])


_FAILED = "has failed"


@final
class _DeviceScope(StateScope):
    """The cells as one device holds them."""

    @property
    def is_traced(self) -> bool:
        return False

    def __init__(self, transaction: ReplicaTransaction, device: Any) -> None:
        self._transaction = transaction
        self._device = device

    def read(self, cell: Cell) -> jax.Array:
        array = self._transaction.read(cell)
        if cell.storage.per_replica:
            (own,) = (shard.data for shard in array.addressable_shards if shard.device == self._device)
            return own[0]
        return _copy_on(array, self._device)

    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        raise RuntimeError("A replica writes to its own scope, never to the surrounding one.")


def _copy_on(value: jax.Array, device: Any) -> jax.Array:
    """Return the copy of an array that a device holds; a new one there, if it holds none or only a part."""
    held = [shard.data for shard in value.addressable_shards if shard.device == device and value.is_fully_replicated]
    return held[0] if held else jax.device_put(local(value), device)


def run_eagerly(
    make_replica: Callable[[LockStep, int], Callable[[], Any]], replicas: EagerReplicas, counts: tuple[int, ...]
) -> list[Any]:
    """Run replicas one after the other, each on its device, with values instead of traces.

    Args:
        make_replica: Gives the function of one of `replicas`; it communicates through the `LockStep`'s `exchange`.
        replicas: Those that run in this process, and the way to the others; to be called inside `replicas.together()`.
        counts: How much each of all replicas counts in means.

    Returns:
        The results of this process's replicas, in order.

    Raises:
        DisagreementError: If replicas of other processes make other collective calls, or have failed.
    """
    devices = replicas.devices
    lockstep = LockStep(len(devices))
    transaction = ReplicaTransaction()
    scopes = [ReplicaScope(_DeviceScope(transaction, device)) for device in devices]

    def inside(i: int) -> Callable[[], Any]:
        fn = make_replica(lockstep, i)

        def replica() -> Any:
            with entering(scopes[i]), jax.default_device(devices[i]):
                return fn()

        return replica

    with transaction:
        results = lockstep.run([inside(i) for i in range(len(devices))])
        _merge_writes(transaction, scopes, replicas, counts)
    return results


def _merge_writes(
    transaction: ReplicaTransaction, scopes: Sequence[ReplicaScope], replicas: EagerReplicas, counts: tuple[int, ...]
) -> None:
    """Settle what the replicas wrote; one that wrote nothing counts with the value it saw."""
    written = {id(cell): (cell, merge) for one in scopes for cell, _, merge in one.writes()}
    replicas.tell("ends", [merge.name for _, merge in written.values()])
    changes = []
    for cell, merge in written.values():
        values, array = [one.read(cell) for one in scopes], transaction.read(cell)
        has_copies = array.is_fully_replicated and array.sharding.addressable_devices == set(replicas.devices)
        if cell.storage.per_replica:
            new = replicas.stacked(values).data
        elif merge is Merge.SAME and has_copies:
            # Each device keeps its own copy: replicas may have been told to let them differ.
            new = _copies(values, array.sharding, replicas.devices)
        else:
            everyone = replicas.of_all("settles variables", values)
            new = cell.storage.merge(everyone, _copy_on(array, replicas.devices[0]), merge, counts)
        changes.append((cell, new))
    transaction.store(changes)


def _copies(values: Sequence[jax.Array], sharding: Any, devices: Sequence[Any]) -> jax.Array:
    placed = [jax.device_put(value, device) for value, device in zip(values, devices, strict=True)]
    return jax.make_array_from_single_device_arrays(placed[0].shape, sharding, placed)
