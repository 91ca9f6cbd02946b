"""Layouts: from the path and shape of a state leaf to how it lies over the mesh."""

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, final

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tfdist_jax._sharding._compression import Compression, Int8
from tfdist_jax._sharding._mesh import STAGE, manual_axes

WHOLE = PartitionSpec()

DEVICE_MEMORY = "device"
HOST_MEMORY = "pinned_host"


@final
@dataclasses.dataclass(frozen=True)
class Layout:
    """How an array of the state lies over a mesh.

    Where a loss function uses a parameter, it is gathered over the axes of the batch that `spec` names, but for those in `local`; along
    others, such as `tensor`, XLA divides what is computed with it.

    Attributes:
        spec: How it lies.
        gradient: How its gradient lies, if not as it does itself: over axes of the batch, too, along dimensions that `spec` leaves whole.
        local: Axes of the batch over which it is not gathered: the loss function sees a replica's own part, such as its experts, and
            communicates itself, as `td.run_experts` does.
        memory_kind: In which memory it lies between steps, as in `jax.sharding.NamedSharding`: that of the devices if None, or
            "pinned_host". A step of `strategy.jit` computes with all of it on the devices.
        wire: In which form its gradient travels between replicas: as it is if None, or compressed, such as `td.BFloat16()`; "int8" is
            `td.Int8(error_feedback=False)`.

    Example:
        >>> import jax, tfdist_jax as td
        >>> P = jax.sharding.PartitionSpec
        >>> td.Layout(P(("expert", "fsdp")), local=("expert",)).gathered == P("fsdp")
        True
    """

    spec: PartitionSpec = WHOLE
    gradient: PartitionSpec | None = None
    local: tuple[str, ...] = ()
    memory_kind: str | None = None
    wire: Compression | str | None = None

    @property
    def local_axes(self) -> tuple[str, ...]:
        """Those axes of the batch over which a loss function sees a part."""
        return tuple(axis for axis in axes_of(self.spec) if axis in self.local)

    @property
    def gathered(self) -> PartitionSpec:
        """How the part that a loss function sees lies over the mesh."""
        return make_spec([tuple(axis for axis in names_of(entry) if axis not in self.local) for entry in self.spec])


@final
@dataclasses.dataclass(frozen=True)
class StateLeaf:
    """An array of a training's state, as a strategy sees it.

    Attributes:
        path: Where it is, such as `0/blocks/3/kernel`. In the state and where a loss is differentiated, paths begin differently;
            optimizers have arrays whose paths end like those of parameters.
        shape: Its shape.
        dtype: Its type.
        axis_names: What Flax calls its dimensions (`nnx.with_partitioning`, `linen.with_partitioning`), if anything.
        is_optimizer_state: Whether it belongs to an optimizer: lies in a state of Optax, or below the name `opt_state`.

    Example:
        >>> import jax, tfdist_jax as td
        >>> leaf = td.StateLeaf("0/blocks/kernel", (1024, 8), "float32")
        >>> leaf.size, td.FSDP().state_layout(leaf).spec == jax.sharding.PartitionSpec("data")
        (8192, True)
    """

    path: str
    shape: tuple[int, ...]
    dtype: Any
    axis_names: tuple[Any, ...] | None = None
    is_optimizer_state: bool = False

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


LayoutRule = Callable[[StateLeaf], Layout]
"""What is known of an array of the state to its layout."""


def tree_layouts(rule: LayoutRule, tree: Any, mesh: Mesh) -> Any:
    """Apply `rule` to every array of `tree`.

    Args:
        rule: Gives a leaf's layout.
        tree: Pytree of arrays or `jax.ShapeDtypeStruct`; what has no shape is not asked for.
        mesh: Over which the leaves are laid out.

    Returns:
        A pytree of the same structure with a `Layout` for each leaf.

    Raises:
        ValueError: If a layout names an axis that the mesh has not, or splits a dimension that does not divide or is not there.
    """
    layouts = [Layout() if leaf is None else _checked(rule(leaf), leaf, mesh) for leaf in state_leaves(tree)]
    return jax.tree.unflatten(jax.tree.structure(tree), layouts)


def state_leaves(tree: Any) -> list[StateLeaf | None]:
    """Return what strategies see of each leaf of a tree, in order; None for one that has no shape."""
    optimizers = [path for path, node in _leaves(tree, _is_of_optax) if _is_of_optax(node)]
    seen: list[StateLeaf | None] = []
    for path, box in _leaves(tree, _is_box):
        names = [_name(key) for key in path]
        is_optimizer_state = "opt_state" in names or any(path[: len(one)] == one for one in optimizers)
        for leaf in jax.tree.leaves(box):
            if not hasattr(leaf, "shape"):
                seen.append(None)
                continue
            shape = tuple(leaf.shape)
            seen.append(StateLeaf("/".join(names), shape, leaf.dtype, _axis_names(box), is_optimizer_state))
    return seen


@final
class NotedLayouts:
    """A rule, and the layouts that it gave for a state, with which those of the same parameters are compared later."""

    def __init__(self, rule: LayoutRule) -> None:
        """Note the layouts of `rule`."""
        self._rule = rule
        self._noted: dict[tuple[str, tuple[int, ...]], dict[str, Layout]] = {}

    def note(self, leaf: StateLeaf) -> Layout:
        """Return the layout of an array of a state that is being made."""
        layout = self._rule(leaf)
        if not leaf.is_optimizer_state:
            self._alike(leaf)[leaf.path] = layout
        return layout

    def find(self, leaf: StateLeaf) -> Layout:
        """Return the layout of a parameter whose path may begin differently than in the state; warn if it is another one there."""
        layout = self._rule(leaf)
        there = {path: one for path, one in self._alike(leaf).items() if f"/{path}".endswith(f"/{leaf.path}")}
        if there and layout not in there.values():
            path, other = next(iter(there.items()))
            warnings.warn(
                f"{leaf.path} is laid out {layout.spec} where its gradient is computed, but {other.spec} in the state, at {path}: it is "
                "moved in each step. Let the strategy's `state_layout` go by the ends of paths, whose beginnings differ.",
                stacklevel=2,
            )
        return layout

    def _alike(self, leaf: StateLeaf) -> dict[str, Layout]:
        return self._noted.setdefault((leaf.path.rpartition("/")[2], leaf.shape), {})


def tree_paths(tree: Any) -> list[str]:
    """Return the paths of a tree's arrays, as rules see them."""
    return ["/".join(map(_name, path)) for path, _ in _leaves(tree, _is_box)]


def leaf_paths(tree: Any) -> list[str]:
    """Return the path of each array of a tree, in the order of `jax.tree.leaves`: one of Flax's boxes may have several."""
    return ["/".join(map(_name, path)) for path, node in _leaves(tree, _is_box) for _ in jax.tree.leaves(node)]


def tree_shardings(rule: LayoutRule, tree: Any, mesh: Mesh) -> Any:
    """Return the sharding of every array of `tree`, as `tree_layouts`."""
    return make_shardings(tree_layouts(rule, tree, mesh), mesh)


def make_shardings(layouts: Any, mesh: Mesh) -> Any:
    """Return the shardings that layouts are over a mesh."""
    return jax.tree.map(lambda layout: NamedSharding(mesh, layout.spec, memory_kind=layout.memory_kind), layouts)


def bring_to_devices(tree: Any, shardings: Any) -> Any:
    """Return arrays in the devices' memory, for a program to compute with, those that lie in another."""

    def bring(leaf: Any, sharding: Any) -> Any:
        if sharding.memory_kind in (None, DEVICE_MEMORY):
            return leaf
        return jax.device_put(leaf, sharding.with_memory_kind(DEVICE_MEMORY))

    return jax.tree.map(bring, tree, shardings)


def lay_out_shapes(rule: LayoutRule, tree: Any, mesh: Mesh) -> Any:
    """Return a tree in which each `jax.ShapeDtypeStruct` without a sharding has the one that `rule` gives."""
    has_none = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct) and leaf.sharding is None
    if not any(map(has_none, jax.tree.leaves(tree))):
        return tree
    lay_out = lambda leaf, sharding: (
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding) if has_none(leaf) else leaf
    )
    return jax.tree.map(lay_out, tree, tree_shardings(rule, tree, mesh))


def find_idle_axes(mesh: Mesh, shardings: Any, *, has_stages: bool = False) -> list[str]:
    """Return the axes of several devices over which neither rows, stages nor any array of a state is split."""
    used = {name for sharding in jax.tree.leaves(shardings) for name in axes_of(sharding.spec)}
    used |= {*manual_axes(mesh)} - ({STAGE} if not has_stages else set())
    return [name for name, size in mesh.shape.items() if size > 1 and name not in used]


def _leaves(tree: Any, is_leaf: Callable[[Any], bool]) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf)


def _name(key: Any) -> str:
    return jax.tree_util.keystr((key,), simple=True)


def _is_of_optax(node: Any) -> bool:
    return isinstance(node, tuple) and type(node).__module__.partition(".")[0] == "optax" and hasattr(node, "_fields")


def _is_box(node: Any) -> bool:
    """Whether a node is one of Flax's that hold one array and what is to be known of it."""
    return type(node).__module__.partition(".")[0] == "flax" and (
        hasattr(node, "get_metadata") or hasattr(node, "unbox")
    )


def _axis_names(box: Any) -> tuple[Any, ...] | None:
    if not _is_box(box):
        return None
    if not hasattr(box, "get_metadata"):
        return getattr(box, "names", None)
    metadata = box.get_metadata()
    return next(
        (tuple(metadata[key]) for key in ("out_sharding", "sharding_names", "sharding") if metadata.get(key)), None
    )


def _checked(layout: Layout, leaf: StateLeaf, mesh: Mesh) -> Layout:
    for spec in (layout.spec, layout.gradient or WHOLE):
        where = f"{leaf.path or 'The state'} of shape {leaf.shape} is to be laid out {spec}"
        if len(spec) > len(leaf.shape):
            raise ValueError(f"{where}, but has only {len(leaf.shape)} dimensions. Name at most one entry for each.")
        names = axes_of(spec)
        if unknown := [name for name in names if name not in mesh.shape]:
            raise ValueError(f"{where}, but the mesh has no axis {unknown[0]!r}, only {dict(mesh.shape)}.")
        if len(set(names)) < len(names):
            raise ValueError(f"{where}, which names an axis twice. An axis can split one dimension.")
        for dimension, entry in enumerate(spec):
            parts = math.prod(mesh.shape[name] for name in names_of(entry))
            if leaf.shape[dimension] % parts:
                raise ValueError(
                    f"{where}, but its dimension {dimension} does not divide into {parts} parts. Change its size or the layout."
                )
    layout = _with_form(layout, leaf, mesh)
    check_local(layout, leaf.path)
    gradient = [*(layout.gradient or layout.spec), *[None] * len(leaf.shape)]
    if any(entry is not None and gradient[dimension] != entry for dimension, entry in enumerate(layout.spec)):
        raise ValueError(
            f"The gradient of {leaf.path or 'the state'} is to be laid out {layout.gradient}, which does not split it as {layout.spec} "
            "does. A gradient is split as its parameter is, and along other dimensions."
        )
    return layout


def _with_form(layout: Layout, leaf: StateLeaf, mesh: Mesh) -> Layout:
    """Return a layout whose gradient travels in a form that it can."""
    where = leaf.path or "the state"
    if layout.wire == "int8":
        return dataclasses.replace(layout, wire=Int8(error_feedback=False))
    if layout.wire is None:
        return layout
    if not isinstance(layout.wire, Compression):
        raise ValueError(
            f"The gradient of {where} is to travel as {layout.wire!r}; it may as None or 'int8', or as one of td.BFloat16(), td.Int8(), "
            "td.PowerSGD() and td.TopK()."
        )
    split = [axis for axis in axes_of(layout.spec) if axis in manual_axes(mesh) and mesh.shape[axis] > 1]
    if split and layout.wire.has_memory:
        raise ValueError(
            f"The gradient of {where} is to travel as {layout.wire}, for which each replica has to know its whole gradient from step to "
            f"step, but it is laid out {layout.spec}: over {split} each has a part, and gradients are scattered while they are computed. "
            "Use `td.Int8(error_feedback=False)` or `td.BFloat16()`, or a strategy of which each replica holds all parameters, such as "
            "`td.Mirrored()` or `td.ZeRO1()`."
        )
    return layout


def check_local(layout: Layout, path: str) -> None:
    """Require that the parts that stay parts lie side by side once the others are gathered.

    Raises:
        ValueError: If they do not.
    """
    if misplaced := [entry for entry in layout.spec if _gathers_before(names_of(entry), layout.local)]:
        raise ValueError(
            f"{path or 'The state'} is to be laid out {layout.spec}, of which parts along {layout.local} stay parts, but in "
            f"{misplaced[0]!r} these come behind others, over which it is gathered. Put them first."
        )


def _gathers_before(names: Sequence[str], local: Collection[str]) -> bool:
    """Whether an axis that stays split comes behind one over which a dimension is gathered: the parts would not lie side by side."""
    are_local = [name in local for name in names]
    return are_local != sorted(are_local, reverse=True)


def names_of(entry: Any) -> tuple[str, ...]:
    """Return the axes in one entry of a `PartitionSpec`."""
    return () if entry is None else entry if isinstance(entry, tuple) else (entry,)


def axes_of(spec: PartitionSpec) -> tuple[str, ...]:
    """Return the axes over which a layout splits an array.

    Example:
        >>> axes_of(PartitionSpec("tensor", None, ("data", "fsdp")))
        ('tensor', 'data', 'fsdp')
    """
    return tuple(name for entry in spec for name in names_of(entry))


def restrict(spec: PartitionSpec, axes: Collection[str]) -> PartitionSpec:
    """Return what `spec` says of some axes.

    Example:
        >>> restrict(PartitionSpec("tensor", ("data", "expert")), ["data"]) == PartitionSpec(None, "data")
        True
    """
    kept = [tuple(name for name in names_of(entry) if name in axes) for entry in spec]
    return make_spec(kept)


def make_spec(entries: Sequence[tuple[str, ...]]) -> PartitionSpec:
    """Return the layout that splits dimensions over some axes each."""
    return PartitionSpec(*(None if not names else names[0] if len(names) == 1 else names for names in entries))


def split_largest(spec: PartitionSpec, shape: tuple[int, ...], axis: str, parts: int) -> PartitionSpec | None:
    """Split the largest dimension that is whole, and that `parts` divides, over an axis; None if there is none.

    Example:
        >>> split_largest(PartitionSpec("tensor"), (64, 3, 16), "data", 8) == PartitionSpec("tensor", None, "data")
        True
    """
    entries = [names_of(entry) for entry in spec] + [()] * (len(shape) - len(spec))
    free = [d for d, size in enumerate(shape) if size and size % parts == 0 and not entries[d]]
    if not free:
        return None
    largest = max(free, key=lambda d: shape[d])
    entries[largest] = (axis,)
    last = int(np.flatnonzero([bool(names) for names in entries])[-1])
    return make_spec(entries[: last + 1])


def split_large(leaf: StateLeaf, axis: str, parts: int, min_size: int, spec: PartitionSpec = WHOLE) -> PartitionSpec:
    """Split an array of `min_size` elements or more over an axis as well, where it can be; warn of large ones where it cannot.

    Args:
        leaf: The array.
        axis: The axis.
        parts: Its size.
        min_size: Arrays with fewer elements are not worth a collective and stay whole.
        spec: How it lies over other axes.
    """
    if leaf.size < min_size or parts == 1:
        return spec
    split = split_largest(spec, leaf.shape, axis, parts)
    if split is None:
        _warn_of_whole_array(leaf, parts)
    return split or spec


_LARGE_BYTES = 1 << 20
_warned_of: set[tuple[tuple[int, ...], int]] = set()


@contextlib.contextmanager
def keeping_silent() -> Iterator[None]:
    """Let layouts be asked for that nobody trains with: without warnings, which come once each and are kept for those who do."""
    before = set(_warned_of)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        _warned_of.intersection_update(before)


def _warn_of_whole_array(leaf: StateLeaf, num_shards: int) -> None:
    """Warn of an array of a MiB or more that is whole on each device, once for each shape.

    Args:
        leaf: The array.
        num_shards: Number of devices over which it should have been split.
    """
    size = leaf.size * leaf.dtype.itemsize
    if size < _LARGE_BYTES or (leaf.shape, num_shards) in _warned_of:
        return
    _warned_of.add((leaf.shape, num_shards))
    warnings.warn(
        f"{leaf.path or 'The state'} of shape {leaf.shape} stays whole on each device, {size / 2**20:.1f} MiB: no dimension of it "
        f"is divisible by {num_shards}. Make one so, such as a vocabulary filled up to {-(-max(leaf.shape) // num_shards) * num_shards}.",
        stacklevel=2,
    )
