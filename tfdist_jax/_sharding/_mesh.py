"""Device meshes: the one place where devices get names."""

import functools
import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, PartitionSpec

from tfdist_jax._device_scope import Device as Device

DATA = "data"
"""Mesh axis over which the batch is split: one replica per index."""

FSDP_AXIS = "fsdp"
"""Mesh axis over which the batch is split, too, and each copy of the state."""

EXPERT = "expert"
"""Mesh axis over which the batch is split, too, and a model's experts, to which rows' parts are sent."""

SEQUENCE = "sequence"
"""Mesh axis over which the tokens of each row are split: the second dimension of the batch's arrays."""

STAGE = "stage"
"""Mesh axis over which the stages of a pipeline lie."""

Axes = Mapping[str, int] | Sequence[tuple[str, int]]
"""Axes of a mesh and their sizes, slowest-varying first."""

TENSOR = "tensor"
"""Mesh axis over which arrays are split that XLA computes with in parts."""


def make_mesh(axes: Mapping[str, int], *, devices: Sequence[Device] | None = None) -> Mesh:
    """Lay devices out on a named grid.

    Args:
        axes: Axis name to size, slowest-varying first. The sizes must multiply to the number of devices; one of them may be -1, for as
            many as are left.
        devices: The devices to use; all visible ones if None. If they are of several TPU slices, the first axis goes over
            the slices, which a slower network connects.

    Returns:
        A mesh with `axes` as its shape. XLA lays arrays out over every axis (`AxisType.Auto`).

    Raises:
        ValueError: If the sizes do not multiply to the device count, a device is named twice, or the number of slices does
            not divide the first axis.

    Example:
        >>> import jax, tfdist_jax as td
        >>> td.make_mesh({"data": jax.device_count()}).axis_names
        ('data',)
    """
    devices = jax.devices() if devices is None else list(devices)
    if len(set(devices)) != len(devices):
        raise ValueError(f"A mesh needs different devices, got {list(map(str, devices))}. Name each device once.")
    axes = _with_rest(axes, len(devices))
    wanted = math.prod(axes.values())
    if wanted != len(devices):
        raise ValueError(
            f"`axes` needs {wanted} devices ({dict(axes)}) but {len(devices)} are visible. "
            "Change an axis size, or restrict devices with CUDA_VISIBLE_DEVICES."
        )
    kinds = (AxisType.Auto,) * len(axes)
    slices = {getattr(device, "slice_index", 0) for device in devices if device.platform == "tpu"}
    if len(slices) > 1:
        return Mesh(_over_slices(axes, len(slices), devices), tuple(axes), axis_types=kinds)
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=kinds, devices=devices)


def _with_rest(axes: Mapping[str, int], num_devices: int) -> Mapping[str, int]:
    known = math.prod(size for size in axes.values() if size != -1)
    if any(size < 1 and size != -1 for size in axes.values()) or list(axes.values()).count(-1) > 1:
        raise ValueError(f"The sizes of axes are 1 or more, and at most one is -1 for what is left, got {dict(axes)}.")
    if -1 in axes.values() and num_devices % known:
        raise ValueError(f"{num_devices} devices do not divide over {dict(axes)}. Change a size, or use other devices.")
    return {name: num_devices // known if size == -1 else size for name, size in axes.items()}


def _over_slices(axes: Mapping[str, int], num_slices: int, devices: Sequence[Device]) -> np.ndarray:
    (first, size), *rest = axes.items()
    if size % num_slices:
        raise ValueError(
            f"The first axis, {first!r} with {size} indices, has to go over {num_slices} TPU slices, which do not divide it. "
            "Change its size, or put an axis first that they divide."
        )
    within = (size // num_slices, *(size for _, size in rest))
    return mesh_utils.create_hybrid_device_mesh(within, (num_slices, *(1 for _ in rest)), devices)


@functools.lru_cache(maxsize=256)
def batch_axes(mesh: Mesh) -> tuple[str, ...]:
    """Return the axes over which rows are split, in the mesh's order: `DATA`, `FSDP_AXIS` and `EXPERT`, those that there are.

    Raises:
        ValueError: If there is none.
    """
    axes = tuple(name for name in mesh.axis_names if name in (DATA, FSDP_AXIS, EXPERT))
    if not axes:
        raise ValueError(
            f"The strategy's mesh needs an axis {DATA!r}, over which batches are split, but has {dict(mesh.shape)}. "
            "Add it, with size 1 if all devices share each batch."
        )
    return axes


@functools.lru_cache(maxsize=256)
def batch_spec(mesh: Mesh, ndim: int = 1) -> PartitionSpec:
    """Return how arrays of rows are laid out: split over all batch axes, `P(DATA)` if that is the only one; of tokens, over `SEQUENCE`."""
    first, *others = batch_axes(mesh)
    rows = (first, *others) if others else first
    return PartitionSpec(rows, SEQUENCE) if ndim > 1 and SEQUENCE in mesh.shape else PartitionSpec(rows)


@functools.lru_cache(maxsize=256)
def manual_axes(mesh: Mesh) -> tuple[str, ...]:
    """Return the axes along which a program sees its own part: those of rows, of tokens and of stages. Others are left to XLA."""
    return tuple(name for name in mesh.axis_names if name in (*batch_axes(mesh), SEQUENCE, STAGE))


@functools.lru_cache(maxsize=256)
def replicas(mesh: Mesh) -> tuple[Device, ...]:
    """Return the device on which each replica's own values lie: the first at each index of the batch axes.

    Raises:
        ValueError: If the mesh has no batch axis.
        NotImplementedError: If the devices of one replica belong to several processes.
    """
    groups = replica_groups(mesh)
    for group in groups:
        if len(owners := {device.process_index for device in group}) > 1:
            raise NotImplementedError(
                f"A replica lies on devices of the processes {sorted(owners)}, but each must have whole ones for this. Let the axes of the "
                "batch, not others, go over the processes: make them the mesh's first. Give all processes the same batches where they "
                "cannot, with `strategy.put(batch)` or `strategy.prefetch(batches)`."
            )
    return tuple(groups[:, 0])


@functools.lru_cache(maxsize=256)
def replica_groups(mesh: Mesh) -> np.ndarray:
    """Return the devices of each replica, which see the same rows: `[replicas, devices]`.

    Raises:
        ValueError: If the mesh has no batch axis.
    """
    axes = batch_axes(mesh)
    first = np.moveaxis(mesh.devices, [mesh.axis_names.index(axis) for axis in axes], range(len(axes)))
    return first.reshape(num_replicas(mesh), -1)


@functools.lru_cache(maxsize=256)
def num_replicas(mesh: Mesh) -> int:
    """Return into how many parts a batch is split: the size of its axes."""
    return math.prod(mesh.shape[axis] for axis in batch_axes(mesh))


def data_mesh(devices: tuple[Device, ...] | None) -> Mesh:
    """Return the mesh with one replica for each of `devices`, or of all visible ones; the same each time."""
    return named_mesh(((DATA, -1),), devices)


def named_mesh(axes: Axes, devices: tuple[Device, ...] | None) -> Mesh:
    """Return the mesh that `make_mesh` makes, the same each time."""
    pairs = axes.items() if isinstance(axes, Mapping) else axes
    return _cached_mesh(tuple(pairs), devices or tuple(jax.devices()))


@functools.lru_cache(maxsize=256)
def _cached_mesh(axes: tuple[tuple[str, int], ...], devices: tuple[Device, ...]) -> Mesh:
    return make_mesh(dict(axes), devices=devices)
