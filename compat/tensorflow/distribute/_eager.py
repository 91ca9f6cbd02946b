"""Replicas that need values while they run: one after the other, each on its device, meeting at collectives."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import Mesh

from tfdist_jax import PerReplica
from tfdist_jax._replica import is_per_replica, local_results
from tfdist_jax._sharding._mesh import Device
from tfdist_jax._sharding._placement import local
from tfdist_jax._stateful._eager_replicas import EagerReplicas, run_eagerly
from tfdist_jax._stateful._lockstep import LockStep
from tfdist_jax._stateful._merging import row_counts
from tfdist_jax._stateful._replica_state import is_replicated
from tfdist_jax.compat.tensorflow._functions._results import (
    SCALARS,
    Constant,
    is_constant,
    keep_variables,
    mark_replicated,
)
from tfdist_jax.compat.tensorflow._platform._context import entering_replica
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._no_value import NoValueError
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, map_in_order
from tfdist_jax.compat.tensorflow._tensors._per_replica_strings import strings_of_this_process
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow._variables._variable_creators import noting_creations
from tfdist_jax.compat.tensorflow.distribute._execution_contexts import EagerContext

if TYPE_CHECKING:
    from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy

NEEDS_VALUES = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError, NoValueError)
"""What is raised where a function that is being traced asks for a tensor's value."""


def run_with_values(
    strategy: "Strategy", fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Run `fn` for each replica with the values of its tensors.

    Args:
        strategy: The strategy.
        fn: The step.
        args: Its arguments; `PerReplica` values arrive as the replica's own.
        kwargs: Its arguments by name.

    Returns:
        What `fn` returns, with a `PerReplica` for each leaf; what is no tensor stays as it is if all return the same.
    """
    mesh = strategy.native.mesh
    replicas = EagerReplicas(mesh)

    def make_replica(lockstep: LockStep, i: int) -> Callable[[], Any]:
        own = lambda leaf: _own(leaf, i, replicas.devices[i], mesh)
        mine_args, mine_kwargs = map_in_order(own, (args, dict(kwargs)), is_leaf=is_per_replica)

        def replica() -> Any:
            context = EagerContext(strategy, lockstep, replicas, i)
            with entering_replica(strategy, context):
                results = in_order(keep_variables(fn(*mine_args, **mine_kwargs)))
                return mark_replicated(jax.tree.map(_value, results, is_leaf=is_constant), context.merged)

        return replica

    counts = row_counts((args, kwargs), strategy.num_replicas_in_sync)
    with noting_creations(), replicas.together():
        return _joined(run_eagerly(make_replica, replicas, counts), replicas)


def _own(leaf: Any, i: int, device: Device, mesh: Mesh) -> Any:
    value = local_results(leaf, mesh)[i] if isinstance(leaf, PerReplica) else local(leaf)
    return jax.device_put(value, device) if isinstance(value, jax.Array) else value


def _value(leaf: Any) -> Any:
    if isinstance(leaf, Constant):
        return leaf.value
    return leaf.read_value() if isinstance(leaf, Variable) else leaf


def _joined(results: Sequence[Any], replicas: EagerReplicas) -> Any:
    """Join what this process's replicas return, and what it must know of that which others do."""
    leaves, trees = zip(*(jax.tree.flatten(result, is_leaf=is_replicated) for result in results), strict=True)
    _must_be_alike(trees)
    told = replicas.tell("returns", [list(map(_kind, values)) for values in zip(*leaves, strict=True)])
    _must_be_alike([f"one of {len(kinds)} values" for kinds in told])
    kinds = [list(itertools.chain(*parts)) for parts in zip(*told, strict=True)]
    joined = functools.partial(_joined_leaf, replicas)
    return trees[0].unflatten(map(joined, kinds, zip(*leaves, strict=True)))


def _must_be_alike(structures: Sequence[Any]) -> None:
    differing = [structure for structure in structures if structure != structures[0]]
    if differing:
        raise ValueError(f"The replicas return different structures, such as {structures[0]} and {differing[0]}.")


def _kind(value: Any) -> Any:
    """Return what other processes are told of a replica's result: of a tensor its type, of Python's values themselves."""
    if isinstance(value, jax.Array):
        return ["tensor", list(value.shape), str(value.dtype)]
    return [type(value).__name__, value] if isinstance(value, bool | int | float | str) else None


def _joined_leaf(replicas: EagerReplicas, kinds: Sequence[Any], values: Sequence[Any]) -> Any:
    if is_replicated(values[0]):
        return values[0].value
    by_number = dict(zip(replicas.numbers, values, strict=True))
    own = [by_number.get(i) for i in range(len(kinds))]
    if all(isinstance(value, HostTensor) for value in values):
        return strings_of_this_process(own)
    if all(kind and kind[0] == "tensor" for kind in kinds):
        even = all(kind == kinds[0] for kind in kinds)
        return replicas.stacked(values) if even else PerReplica.uneven(replicas.of_all("returns tensors", values))
    equal = lambda value: value is values[0] or (isinstance(value, SCALARS) and value == values[0])
    if all(kind == kinds[0] for kind in kinds) and all(map(equal, values)):
        return values[0]
    return PerReplica.uneven([kind[1] if kind else value for kind, value in zip(kinds, own, strict=True)])
