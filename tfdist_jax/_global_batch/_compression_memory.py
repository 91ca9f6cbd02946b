"""What replicas keep of compressed gradients from step to step: arrays `[replicas, ...]` by the paths of parameters."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tfdist_jax._sharding._compression import RESIDUAL, Compression, Memory, init_replica_memory
from tfdist_jax._sharding._layout import Layout, LayoutRule, axes_of, restrict, state_leaves, tree_layouts
from tfdist_jax._sharding._mesh import manual_axes

Compressed = Mapping[str, Mapping[str, Any]]
"""Arrays `[replicas, ...]` by the path of a parameter and by what they are."""


def plan_memory(
    state_layout: LayoutRule, params: Any, mesh: Mesh, resume: Compressed | None
) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
    """Return how what replicas keep at first is made, or what follows from what others have kept: a function, arguments and shardings."""
    layouts = jax.tree.leaves(tree_layouts(state_layout, params, mesh))
    wanted = memory_types(layouts, params, mesh)
    shardings = jax.tree.map(lambda one: one.sharding, wanted)
    if resume is None:
        forms = dict(_kept(layouts, params))
        init = lambda: {path: _of_all(init_replica_memory(*form), mesh) for path, form in forms.items()}
        return init, (), shardings
    _check_types(resume, wanted, any_replicas=True)
    # What another strategy has left may lie on other devices.
    given = jax.tree.map(lambda array: jax.device_get(array) if _is_here(array) else array, resume)
    share = lambda memory: _share_out(memory, mesh)
    return share, (given,), shardings


def memory_types(layouts: Sequence[Layout], params: Any, mesh: Mesh) -> dict[str, dict[str, jax.ShapeDtypeStruct]]:
    """Return the shapes, types and shardings of what replicas keep of each parameter's gradient, of those of which they keep something."""
    specs = dict(zip(_paths(params), [layout.spec for layout in layouts], strict=True))
    axes = manual_axes(mesh)
    types: dict[str, dict[str, jax.ShapeDtypeStruct]] = {}
    for path, (method, shape) in _kept(layouts, params):
        of_xla = restrict(specs[path], [axis for axis in axes_of(specs[path]) if axis not in axes])
        types[path] = {}
        for name, one in jax.eval_shape(functools.partial(init_replica_memory, method, shape)).items():
            sharding = NamedSharding(mesh, PartitionSpec(axes, *(of_xla if name == RESIDUAL else ())))
            types[path][name] = jax.ShapeDtypeStruct((_num_devices(mesh), *one.shape), one.dtype, sharding=sharding)
    return types


def take_memories(
    given: Compressed | None, layouts: Sequence[Layout], params: Any, mesh: Mesh
) -> tuple[list[Memory], dict[str, Any]]:
    """Return what is kept of each parameter's gradient, and the types of all of it by path.

    Raises:
        ValueError: If it is not what the strategy makes for such parameters and so many replicas.
    """
    wanted = memory_types(layouts, params, mesh)
    if wanted and given is None:
        methods = ", ".join(dict.fromkeys(str(form) for _, (form, _) in _kept(layouts, params)))
        raise ValueError(
            f"Gradients travel as {methods}, of which replicas keep something from step to step. Make it with `memory = "
            "strategy.init_compression(params)` and hand it on: `(loss, aux), grads, memory = value_and_grad(params, batch, "
            "compression=memory)`."
        )
    _check_types(given or {}, wanted, any_replicas=False)
    return [(given or {}).get(path, {}) for path in _paths(params)], wanted


def put_memories(memories: Sequence[Memory], wanted: Mapping[str, Any], params: Any) -> dict[str, Any]:
    """Return what is kept of each parameter's gradient by path, laid out as it was."""
    kept = {path: dict(one) for path, one in zip(_paths(params), memories, strict=True) if one}
    return jax.tree.map(lambda one, like: jax.lax.with_sharding_constraint(one, like.sharding), kept, dict(wanted))


def _kept(layouts: Sequence[Layout], params: Any) -> list[tuple[str, tuple[Compression, tuple[int, ...]]]]:
    """Return the path, the form and the shape of each parameter of whose gradient replicas keep something."""
    triples = zip(_paths(params), [layout.wire for layout in layouts], jax.tree.leaves(params), strict=True)
    return [
        (path, (form, tuple(leaf.shape)))
        for path, form, leaf in triples
        if isinstance(form, Compression) and form.has_memory
    ]


def _paths(params: Any) -> list[str]:
    """Return a name for each parameter: its path, which a single array has not."""
    paths = [leaf.path if leaf is not None else "" for leaf in state_leaves(params)]
    return [path or "params" for path in paths]


def _num_devices(mesh: Mesh) -> int:
    return math.prod(mesh.shape[axis] for axis in manual_axes(mesh))


def _of_all(memory: Memory, mesh: Mesh) -> dict[str, jax.Array]:
    return {name: jnp.broadcast_to(one, (_num_devices(mesh), *one.shape)) for name, one in memory.items()}


def _share_out(memory: Compressed, mesh: Mesh) -> dict[str, Any]:
    """Return for so many replicas as there are now what others have kept: what is still to be sent is divided among them."""
    count = _num_devices(mesh)

    def share(name: str, array: Any) -> jax.Array:
        array = jnp.asarray(array)
        if len(array) == count:
            return array
        mine = array.sum(0) / count if name == RESIDUAL else array[0]
        return jnp.broadcast_to(mine, (count, *array.shape[1:]))

    return {path: {name: share(name, array) for name, array in one.items()} for path, one in memory.items()}


def _is_here(array: Any) -> bool:
    return not isinstance(array, Tracer) and getattr(array, "is_fully_addressable", True)


def _check_types(given: Compressed, wanted: Mapping[str, Any], *, any_replicas: bool) -> None:
    shapes = lambda memory: {
        (path, name): tuple(one.shape[any_replicas:]) for path, kept in memory.items() for name, one in kept.items()
    }
    found, expected = shapes(given), shapes(wanted)
    if found == expected:
        return
    differing = next(key for key in (*expected, *found) if found.get(key) != expected.get(key))
    path, name = differing
    remedy = (
        "Make it anew with `strategy.init_compression(params)`."
        if any_replicas
        else "Make it with `strategy.init_compression(params)`, or, of what another number of replicas has kept, with "
        "`strategy.init_compression(params, resume=memory)`."
    )
    raise ValueError(
        f"What replicas keep of compressed gradients does not fit: {name!r} of {path!r} should have the shape {expected.get(differing)}, "
        f"but has {found.get(differing)}{', without replicas' if any_replicas else ''}. {remedy}"
    )
