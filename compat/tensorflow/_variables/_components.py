"""The components of a distributed variable: each replica's copy of it, or its own value, as a variable."""

from typing import Any, NoReturn, final

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from tfdist_jax._errors import NotCompilableError
from tfdist_jax._sharding._mesh import num_replicas, replicas
from tfdist_jax._sharding._placement import local, local_replicas
from tfdist_jax._stateful._state import CELLS, Cell, Merge, StateScope, load, store
from tfdist_jax._stateful._storage import PLAIN, Storage
from tfdist_jax.compat.tensorflow._platform._context import replica_context
from tfdist_jax.compat.tensorflow._tensors._tensor import free_value


@final
class ComponentStorage(Storage):
    """Lets a cell be a part of another one: what it holds lies in the other's array."""

    holds_arrays = False

    def __init__(self, whole: Cell, mesh: Mesh, replica: int) -> None:
        """Be the part of `whole`, which lies on `mesh`, that belongs to one of its replicas."""
        self._whole, self._mesh, self._replica = whole, mesh, replica

    def load(self, held: Any) -> jax.Array:
        """Return a copy of the part, on its replica's device: a step may give the whole's memory away."""
        array = load(self._whole)
        part = self._parts(array).get(replicas(self._mesh)[self._replica])
        if part is None:
            part = local(array)
        return free_value(jnp.copy(part[0] if self._is_own else part))

    def store(self, array: jax.Array, held: Any) -> None:
        """Change the part, and leave the others as they are."""
        with CELLS:
            before = load(self._whole)
            parts = self._parts(before)
            device = replicas(self._mesh)[self._replica]
            if device not in parts or self._mesh.size > num_replicas(self._mesh):
                raise NotImplementedError(
                    "This variable has no copy for each replica that could be changed alone. Use `assign` of the variable."
                )
            parts[device] = jax.device_put(array[None] if self._is_own else array, device)
            new = jax.make_array_from_single_device_arrays(before.shape, before.sharding, list(parts.values()))
            store(self._whole, new)

    def _parts(self, array: jax.Array) -> dict[Any, jax.Array]:
        """Return what this process's devices hold of the whole, if each replica has a part."""
        if not (self._is_own or array.is_fully_replicated):
            return {}
        return {shard.device: shard.data for shard in array.addressable_shards}

    @property
    def _is_own(self) -> bool:
        """Whether each replica has a value of its own."""
        return self._whole.storage.per_replica

    def adopt(self, cell: Cell, array: jax.Array) -> None:
        """Let a copy of a component be a variable by itself."""
        cell.storage = PLAIN
        PLAIN.adopt(cell, array)

    def read(self, scope: StateScope, cell: Cell) -> jax.Array:
        """Read the whole: a program takes its array, of which copies are alike."""
        if replica_context() is None:
            value = scope.read(self._whole)
            return value[self._replica] if self._is_own else value
        if self._is_own:
            raise RuntimeError(
                "Inside `strategy.run` each replica reads its own value of the variable: use its `read_value()`."
            )
        return scope.read(self._whole)

    def write(self, scope: StateScope, cell: Cell, array: jax.Array, merge: Merge) -> NoReturn:
        """Refuse: a program changes all copies."""
        raise NotCompilableError(
            "One replica's copy of a variable is assigned, which is for outside of compiled functions."
        )


def component_storages(whole: Cell, mesh: Mesh) -> dict[int, ComponentStorage]:
    """Return a storage for the component of each of this process's replicas, by their numbers."""
    return {i: ComponentStorage(whole, mesh, i) for i in local_replicas(mesh)}
