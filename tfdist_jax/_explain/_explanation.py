"""What a compiled step is: where its arrays lie, what memory it takes, how devices communicate in it, what it computes."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, final

import jax
from jax.sharding import Mesh, NamedSharding

from tfdist_jax._explain._collectives import Collective, find_collectives
from tfdist_jax._explain._flops import Flops, count_bytes_written, count_flops
from tfdist_jax._explain._hlo import parse_module
from tfdist_jax._explain._html import make_page
from tfdist_jax._explain._mesh_axes import MeshAxis, describe_axes
from tfdist_jax._explain._sections import make_sections, write_text
from tfdist_jax._explain._speed import Speed, make_speed
from tfdist_jax._explain._state_table import StateRow, make_state_table
from tfdist_jax._internals import setting
from tfdist_jax._pipeline import PipelinePlan


@final
@dataclasses.dataclass(frozen=True)
class Memory:
    """The memory that a step takes on each device, in bytes.

    Attributes:
        arguments: Of the state, the batch and what else it is given.
        results: Of what it returns.
        reused: Of those results that take the memory of arguments.
        temporary: Of what it needs in between.
        host_arguments: Of what it is given in the memory of the device's host, which counts for none of the others.
    """

    arguments: int
    results: int
    reused: int
    temporary: int
    host_arguments: int = 0

    @property
    def total(self) -> int:
        """What a device must have while the step runs."""
        return self.arguments + self.results - self.reused + self.temporary


@final
@dataclasses.dataclass(frozen=True)
class Home:
    """Where variables lie between steps that no device keeps meanwhile.

    Attributes:
        name: The place.
        taken: How many bytes of them the step copies to each device.
        brought: How many bytes it brings back, of those that it changes.
    """

    name: str
    taken: int
    brought: int


@final
@dataclasses.dataclass(frozen=True, repr=False)
class Explanation:
    """What a step is, once compiled. As text, a report; `write_html` writes it as a page with pictures.

    Attributes:
        name: The step's name.
        mesh: The devices.
        axes: What the mesh's axes are for.
        state: What a device holds of the state, alike arrays in one row.
        memory: The memory that the step takes on each device; None if XLA does not say.
        collectives: How devices communicate, in the order in which they do so first.
        flops: The floating point operations of a step on one device.
        speed: What these are in a second; None if it was not said how long a step takes.
        homes: Where variables lie between steps that no device keeps meanwhile.
        pipeline: Which device computes what and when, if the strategy has stages.

    Example:
        >>> import numpy as np, tfdist_jax as td
        >>> strategy = td.Mirrored()
        >>> compute = strategy.value_and_grad(lambda w, x: (x @ w).mean(), has_aux=False)
        >>> explanation = strategy.explain(compute, np.ones((4, 2), np.float32), strategy.put(np.ones((16, 4), np.float32)))
        >>> [(one.kind, one.axes, one.runs) for one in explanation.collectives]
        [('all-reduce', ('data',), 1)]
    """

    name: str
    mesh: Mesh
    axes: tuple[MeshAxis, ...]
    state: tuple[StateRow, ...]
    memory: Memory | None
    collectives: tuple[Collective, ...]
    flops: Flops
    speed: Speed | None
    homes: tuple[Home, ...] = ()
    pipeline: PipelinePlan | None = None

    def __repr__(self) -> str:
        return write_text(self)

    def write_html(self, path: str | PathLike[str]) -> None:
        """Write a page that needs no other files.

        Args:
            path: The file, which is replaced.
        """
        Path(path).write_text(make_page(self.name, self.mesh, make_sections(self)), encoding="utf-8")


def explain(  # noqa: PLR0913
    step: Any,
    args: Sequence[Any],
    mesh: Mesh,
    *,
    seconds: float | None = None,
    peak_flops: float | None = None,
    pipeline: PipelinePlan | None = None,
) -> Explanation:
    """Compile a step and say what it does; see `Strategy.explain`.

    Args:
        step: Has `lower`, as what `jax.jit` returns.
        args: What the step is called with, the state first.
        mesh: The devices that it runs on.
        seconds: How long a step takes.
        peak_flops: How many operations a second a device can do.
        pipeline: What the strategy says of its pipeline.
    """
    if not hasattr(step, "lower"):
        raise TypeError(
            f"A step that can be compiled is needed, such as of `strategy.jit`, but got {step!r}. Wrap it: `strategy.jit(step)`."
        )
    lowered = step.lower(*args)
    with _keeping_lines():
        compiled = lowered.compile()
    _check_devices(compiled, mesh)
    program = read_program(compiled, mesh)
    kind = mesh.devices.flat[0].device_kind
    return Explanation(
        name=getattr(step, "__name__", type(step).__name__),
        mesh=mesh,
        axes=describe_axes(mesh, args[0]),
        state=make_state_table(args[0]),
        memory=program.memory,
        collectives=program.collectives,
        flops=program.flops,
        speed=None
        if seconds is None
        else make_speed(program.flops, seconds=seconds, device_kind=kind, peak=peak_flops),
        homes=tuple(Home(name, *sizes) for name, sizes in getattr(step, "homes", {}).items()),
        pipeline=pipeline,
    )


@final
@dataclasses.dataclass(frozen=True)
class ProgramCosts:
    """What a compiled program costs a device.

    Attributes:
        memory: The memory that it takes; None if XLA does not say.
        collectives: How devices communicate.
        flops: The operations of its products.
        written: About how many bytes it writes.
    """

    memory: Memory | None
    collectives: tuple[Collective, ...]
    flops: Flops
    written: int


def read_program(compiled: Any, mesh: Mesh) -> ProgramCosts:
    """Return what a compiled program costs each device of the mesh that it runs on."""
    module, found = parse_module(compiled.as_text()), compiled.memory_analysis()
    memory = None if found is None else _memory_of(found)
    return ProgramCosts(memory, find_collectives(module, mesh), count_flops(module), count_bytes_written(module))


@contextlib.contextmanager
def _keeping_lines() -> Iterator[None]:
    """Let programs that JAX has kept in files not stand for one whose lines are others: as programs they are the same."""
    name = "jax_compilation_cache_include_metadata_in_key"
    before = setting(name)
    jax.config.update(name, True)
    try:
        yield
    finally:
        jax.config.update(name, before)


def _check_devices(compiled: Any, mesh: Mesh) -> None:
    """Require that a program's devices are those of a mesh, in the same order, by which XLA numbers them."""
    expected = _numbers(mesh.devices.flat)
    for sharding in jax.tree.leaves(compiled.input_shardings):
        if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
            found = _numbers(sharding.mesh.devices.flat)
        else:  # It says nothing of their order.
            is_same = sharding.device_set == set(mesh.devices.flat)
            found = expected if is_same else sorted(_numbers(sharding.device_set))
        if found != expected:
            raise ValueError(
                f"The step runs on {len(found)} devices, {found[:8]}, but the strategy's mesh has {len(expected)}, {expected[:8]}. "
                "Explain it by the strategy that has made its state."
            )


def _numbers(devices: Iterable[Any]) -> list[int]:
    return [device.id for device in devices]


def _memory_of(stats: Any) -> Memory:
    return Memory(
        arguments=stats.argument_size_in_bytes,
        results=stats.output_size_in_bytes,
        reused=stats.alias_size_in_bytes,
        temporary=stats.temp_size_in_bytes,
        host_arguments=stats.host_argument_size_in_bytes,
    )
