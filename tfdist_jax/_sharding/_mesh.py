"""Device meshes: the one place where devices get names."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

Device = Any
"""A `jax.Device`, which to type checkers is no class."""

DATA = "data"
"""Mesh axis over which the batch is split: one replica per index."""


def make_mesh(axes: Mapping[str, int], *, devices: Sequence[Device] | None = None) -> Mesh:
    """Lay devices out on a named grid.

    Args:
        axes: Axis name to size, slowest-varying first. The sizes must multiply to the number of devices.
        devices: The devices to use; all visible ones if None. If they are of several TPU slices, the first axis goes over
            the slices, which a slower network connects.

    Returns:
        A mesh with `axes` as its shape. XLA lays arrays out over every axis (`AxisType.Auto`).

    Raises:
        ValueError: If the sizes do not multiply to the device count, a device is named twice, or the number of slices does
            not divide the first axis.

    Example:
        >>> make_mesh({"data": jax.device_count()}).axis_names
        ('data',)
    """
    devices = jax.devices() if devices is None else list(devices)
    if len(set(devices)) != len(devices):
        raise ValueError(f"A mesh needs different devices, got {list(map(str, devices))}. Name each device once.")
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
def replicas(mesh: Mesh) -> tuple[Device, ...]:
    """Return the device on which each replica's own values lie: the first at each index of the data axis.

    Raises:
        ValueError: If the mesh has no data axis.
        NotImplementedError: If the devices of one replica belong to several processes.
    """
    if DATA not in mesh.shape:
        raise ValueError(
            f"The strategy's mesh needs an axis {DATA!r}, over which batches are split, but has {dict(mesh.shape)}. "
            "Add it, with size 1 if all devices share each batch."
        )
    first = mesh.axis_names.index(DATA)
    groups = np.moveaxis(mesh.devices, first, 0).reshape(mesh.shape[DATA], -1)
    for group in groups:
        if len(owners := {device.process_index for device in group}) > 1:
            raise NotImplementedError(
                f"A replica lies on devices of the processes {sorted(owners)}, but each must have whole ones. Let the data axis, "
                "not another one, go over the processes: make it the mesh's first."
            )
    return tuple(groups[:, 0])


@functools.lru_cache(maxsize=256)
def num_replicas(mesh: Mesh) -> int:
    """Return into how many parts a batch is split: the size of the data axis; errors as `replicas`."""
    return len(replicas(mesh))


@functools.lru_cache(maxsize=256)
def data_mesh(devices: tuple[Device, ...] | None) -> Mesh:
    """Make the mesh with one replica for each of `devices`, or of all visible ones."""
    devices = devices or tuple(jax.devices())
    return make_mesh({DATA: len(devices)}, devices=devices)
