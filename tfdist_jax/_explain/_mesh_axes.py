"""A mesh as a picture, and what each of its axes is for."""

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any, final

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from tfdist_jax._sharding._layout import axes_of, state_leaves
from tfdist_jax._sharding._mesh import EXPERT, SEQUENCE, STAGE, batch_axes, manual_axes


@final
@dataclasses.dataclass(frozen=True)
class MeshAxis:
    """An axis of a mesh.

    Attributes:
        name: Its name.
        size: How many devices there are along it.
        purpose: What is split over it.
    """

    name: str
    size: int
    purpose: str


@final
@dataclasses.dataclass(frozen=True)
class MeshBlock:
    """Devices along the last two axes of a mesh that have several, at one place of the axes before these.

    Attributes:
        title: That place, such as "data 0"; empty if there are no other axes.
        rows: The name of the axis that goes down; empty if there is none.
        columns: The name of the axis that goes to the right.
        devices: The devices' numbers, `[rows, columns]`.
    """

    title: str
    rows: str
    columns: str
    devices: np.ndarray


def describe_axes(mesh: Mesh, state: Any) -> tuple[MeshAxis, ...]:
    """Say what a mesh's axes are for: by their names, and by how the arrays of a state lie over them."""
    parameters, optimizer_state = set(), set()
    for seen, leaf in zip(state_leaves(state), jax.tree.leaves(state), strict=True):
        if seen is not None and isinstance(sharding := getattr(leaf, "sharding", None), NamedSharding):
            (optimizer_state if seen.is_optimizer_state else parameters).update(axes_of(sharding.spec))
    axes = []
    for name, size in mesh.shape.items():
        purposes = ["rows of the batch"] if name in batch_axes(mesh) else []
        purposes += ["tokens of each row"] if name == SEQUENCE else []
        if name == STAGE:
            purposes.append("stages of a pipeline, and parameters of all stages, gathered once a step")
        elif name not in manual_axes(mesh):
            purposes.append("arrays, with which XLA divides what is computed")
        elif name == EXPERT:
            purposes.append("experts, to which tokens are sent")
        elif name in parameters:
            purposes.append("parameters, gathered where they are used")
        elif name in optimizer_state:
            purposes.append("the optimizer's state")
        axes.append(MeshAxis(name, size, "; ".join(purposes)))
    return tuple(axes)


def mesh_blocks(mesh: Mesh) -> list[MeshBlock]:
    """Cut a mesh into pictures of two dimensions."""
    several = [(name, size) for name, size in mesh.shape.items() if size > 1] or [(mesh.axis_names[-1], 1)]
    ids = np.array([device.id for device in mesh.devices.flat]).reshape([size for _, size in several])
    if len(several) == 1:
        return [MeshBlock("", "", several[0][0], ids[None])]
    *outer, (rows, _), (columns, _) = several
    return [
        MeshBlock(
            ", ".join(f"{name} {i}" for (name, _), i in zip(outer, place, strict=True)), rows, columns, ids[place]
        )
        for place in itertools.product(*(range(size) for _, size in outer))
    ]


def draw_mesh(mesh: Mesh, *, most: int = 16) -> list[str]:
    """Return lines of text that show which devices lie beside which; of more than `most` in a direction, the first and the last ones."""
    lines = []
    for block in _ends(mesh_blocks(mesh), most):
        lines += ["..."] if block is None else _draw_block(block, most)
    return lines


def _draw_block(block: MeshBlock, most: int) -> list[str]:
    rows = [[] if row is None else _ends(row, most) for row in _ends(block.devices, most)]
    width = len(str(block.devices.max()))
    drawn = [" ".join("..." if id_ is None else str(id_).rjust(width) for id_ in row) or "..." for row in rows]
    side = f"{block.rows} " if block.rows else ""
    margin = " " * len(side)
    sides = [side, *[margin] * (len(drawn) - 1)]
    heading = [block.title] if block.title else []
    return [*heading, margin + block.columns, *map("".join, zip(sides, drawn, strict=True))]


def _ends(items: Iterable[Any], most: int) -> list[Any]:
    """Return all items; of more than `most`, half of these from each end, with None between."""
    items = list(items)
    return items if len(items) <= most else [*items[: most // 2], None, *items[-(most // 2) :]]
