"""The collectives of a compiled program: over which axes of the mesh, how many bytes, how often, and for which line."""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
from jax.sharding import Mesh

from tfdist_jax._explain._hlo import Executed, Instruction, Module

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
"""What XLA calls them."""


@final
@dataclasses.dataclass(frozen=True)
class Collective:
    """Alike collectives of a program: of one kind and line, over the same axes, run equally often.

    Attributes:
        kind: As XLA calls it, such as "all-reduce".
        axes: The mesh's axes along which devices communicate, in the mesh's order.
        group: How many devices communicate with each other. Fewer than the axes have, if XLA has taken a collective apart.
        count: How many of them there are in the program.
        bytes: How many bytes a device gets from all of them, each run once: the size of their results.
        times: How often each runs in a step, more than once in a loop; None if that is not known before the step runs.
        is_branch: Whether it is in a branch, and so may not run.
        line: The user's line that it comes from, as "train.py:57 (`loss = x.std()`)"; empty if none is known.
    """

    kind: str
    axes: tuple[str, ...]
    group: int
    count: int
    bytes: int
    times: int | None
    is_branch: bool
    line: str

    @property
    def runs(self) -> int | None:
        """How many collectives a step runs; None if that is not known."""
        return None if self.times is None else self.count * self.times

    @property
    def bytes_per_step(self) -> int | None:
        """How many bytes a device gets in a step; None if that is not known."""
        return None if self.times is None else self.bytes * self.times


def find_collectives(module: Module, mesh: Mesh) -> tuple[Collective, ...]:
    """Return the collectives of a program, in the order in which they run first.

    Args:
        module: The program.
        mesh: Over which its arguments are laid out.
    """
    found: dict[Collective, list[int]] = collections.defaultdict(list)
    for one in _distinct(module):
        kind, num_bytes = _kind(one.instruction), _result_bytes(one.instruction)
        axes, group = _axes_and_group(one.instruction, mesh)
        if group > 1:
            line = module.user_line(one.instruction)
            alike = Collective(kind, axes, group, 0, 0, one.times, one.is_branch, line)
            found[alike].append(num_bytes)
    return tuple(dataclasses.replace(one, count=len(sizes), bytes=sum(sizes)) for one, sizes in found.items())


def _distinct(module: Module) -> Iterator[Executed]:
    """Yield the collectives. Those that a TPU runs beside other operations are printed in each of these: they are yielded once."""
    seen = set()
    for one in module.executed():
        if not _kind(one.instruction):
            continue
        chain = re.search(r'chain_id="(\d+)"', one.instruction.attributes)
        key = (one.sequence, chain[1]) if chain else None
        if key is None or key not in seen:
            seen.add(key)
            yield one


def _kind(instruction: Instruction) -> str:
    """Return the kind of a collective, empty for other instructions."""
    kind = instruction.operation
    if instruction.opcode == "recv":  # Between TPU slices, such as `_xla_megascale_transfer_type="ALL_REDUCE"`.
        between = re.search(r'_xla_megascale_transfer_type="(\w+)"', instruction.attributes)
        kind = between[1].lower().replace("_", "-") if between else ""
    return kind if kind in KINDS else ""


def _result_bytes(instruction: Instruction) -> int:
    # What is received comes with the state of the transfer.
    arrays = instruction.arrays[:1] if instruction.opcode == "recv" else instruction.arrays
    return sum(array.num_bytes for array in arrays)


def _axes_and_group(instruction: Instruction, mesh: Mesh) -> tuple[tuple[str, ...], int]:
    """Return along which axes, and among how many devices each, a collective communicates."""
    if instruction.opcode == "recv":
        slices = np.vectorize(lambda device: getattr(device, "slice_index", 0))(mesh.devices)
        return _axes_along(slices, mesh), len(set(slices.flat))
    if pairs := instruction.attribute("source_target_pairs"):
        groups = _parse_lists(pairs)
        around = [len(ring) for ring in _rings(groups)]
        return _axes_within(groups, mesh), max(around, default=1)
    groups = parse_groups(instruction.attributes, mesh.size)
    return _axes_within(groups, mesh), max(map(len, groups))


def _axes_along(values: np.ndarray, mesh: Mesh) -> tuple[str, ...]:
    """Return the axes of the mesh along which values change."""
    changes = [bool((np.diff(values, axis=axis) != 0).any()) for axis in range(values.ndim)]
    return tuple(name for name, does in zip(mesh.axis_names, changes, strict=True) if does)


def _axes_within(groups: Sequence[Sequence[int]], mesh: Mesh) -> tuple[str, ...]:
    """Return the axes of the mesh along which the devices of a group differ, which are numbered in the mesh's order."""
    shape = mesh.devices.shape
    places = [np.stack(np.unravel_index(np.array(group, int), shape)) for group in groups if len(group)]
    return tuple(
        name for axis, name in enumerate(mesh.axis_names) if any(len(set(place[axis])) > 1 for place in places)
    )


def _rings(pairs: Sequence[Sequence[int]]) -> list[set[int]]:
    """Return the devices that reach each other by sending."""
    rings: list[set[int]] = []
    for pair in pairs:
        joined = [ring for ring in rings if not ring.isdisjoint(pair)]
        rings = [ring for ring in rings if ring not in joined] + [set(pair).union(*joined)]
    return rings


def parse_groups(attributes: str, num_devices: int) -> list[list[int]]:
    """Return which devices communicate with each other, numbered in the mesh's order.

    Args:
        attributes: Of a collective. XLA writes its groups one by one, as a reshaped and transposed range, or as axes of a mesh.
        num_devices: How many devices there are: all communicate if there are no groups.

    Example:
        >>> parse_groups("replica_groups={{0,1},{2,3}}", 4)
        [[0, 1], [2, 3]]
        >>> parse_groups("replica_groups=[2,2]<=[2,2]T(1,0)", 4)
        [[0, 2], [1, 3]]
        >>> parse_groups("replica_groups=mesh['data'=2,'tensor'=2] {'data'}", 4)
        [[0, 2], [1, 3]]
    """
    _, _, text = attributes.partition("replica_groups=")
    if text.startswith("mesh["):
        return _parse_mesh_groups(text)
    if iota := re.match(r"\[([\d,]+)\]<=(\[[\d,]+\](?:T\([\d,]+\))?)", text):
        return _parse_iota(iota[2]).reshape(_numbers(iota[1])).tolist()
    return _parse_lists(text.partition("}}")[0] + "}") or [list(range(num_devices))]


def _parse_lists(text: str) -> list[list[int]]:
    return [_numbers(group) for group in re.findall(r"\{([\d,]+)\}", text)]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _parse_iota(text: str) -> np.ndarray:
    """Return the numbers that "[4,2]T(1,0)" stands for: 0 to 7 in an array of that shape, transposed."""
    shape, _, order = text.partition("T")
    numbers = np.arange(math.prod(_numbers(shape))).reshape(_numbers(shape))
    return numbers.transpose(_numbers(order)) if order else numbers


def _parse_mesh_groups(text: str) -> list[list[int]]:
    """Return the groups of "mesh['a'=2,'b'=4], device_ids=(...) {'a','b':(2)2}": along an axis, or `(outer)size` a part of it."""
    written = re.match(r"mesh\[(.*?)\](?:, device_ids=\((.*?\)?)\))? \{(.*?)\}", text)
    if written is None:
        raise ValueError(f"Groups of devices are expected as axes of a mesh, got {text[:80]!r}.")
    axes, order, chosen = written.groups()
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", axes)}
    devices = np.arange(math.prod(sizes.values()))
    if order:
        devices = _parse_iota(order).reshape(-1) if order.startswith("[") else np.array(_numbers(order))
    index = dict(zip(sizes, np.unravel_index(np.arange(devices.size), tuple(sizes.values())), strict=True))
    for name, outer, size in re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", chosen):
        inner = sizes[name] // (int(outer) * int(size)) if outer else 1
        within = index[name] // inner % (int(size) if outer else sizes[name])
        index[name] = index[name] - within * inner
    groups: dict[tuple[int, ...], list[int]] = collections.defaultdict(list)
    for device, place in zip(devices.tolist(), zip(*index.values(), strict=True), strict=True):
        groups[tuple(map(int, place))].append(device)
    return list(groups.values())
