"""What a program that uses cells on servers is cut into."""

import dataclasses
from typing import Any, Self, final

from tfdist_jax._stateful._capture import Captured
from tfdist_jax._stateful._served_assignments import Assignments, find_assignments
from tfdist_jax._stateful._served_lookups import find_lookups, variables_of
from tfdist_jax._stateful._served_stages import Stage, cut, make_stage
from tfdist_jax._stateful._state import Cell


@final
@dataclasses.dataclass(frozen=True)
class ServedParts:
    """The parts of a program, in the order in which they run.

    Attributes:
        captured: The program.
        arguments: The variables that stand for its arguments.
        reads: The cells that a worker reads, and the variables that stand for what they hold.
        indices: What is computed of the arguments before, for lookups.
        lookups: The cells of which it reads rows alone, their variables, and the lookups.
        assignments: What it assigns, besides updates.
        stages: What a worker computes, and the updates.
        results: The operands that stand for its results.
        used: The variables that some part needs of others.
    """

    captured: Captured
    arguments: list[Any]
    reads: list[tuple[Cell, Any]]
    indices: Stage
    lookups: list[tuple[Cell, Any, Stage]]
    assignments: Assignments
    stages: list[Stage]
    results: list[Any]
    used: set[Any]

    @classmethod
    def of(cls, captured: Captured) -> Self:
        """Cut a program."""
        jaxpr = captured.jaxpr.jaxpr
        lookups = find_lookups(captured)
        stages = cut(captured, lookups.rest)
        assignments = find_assignments(captured, stages)
        split = len(jaxpr.invars) - len(captured.cells)
        reads = list(zip(captured.cells, jaxpr.invars[split:], strict=True))
        results = jaxpr.outvars[: len(jaxpr.outvars) - len(captured.written)]
        used = {var for stage in stages for var in stage.used}
        used.update(variables_of([*results, *(atom for _, atom in assignments.in_the_end)]))
        return cls(
            captured,
            jaxpr.invars[:split],
            [(cell, var) for cell, var in reads if var in used],
            make_stage(jaxpr, lookups.indices),
            [(*reads[place], make_stage(jaxpr, eqns)) for place, eqns in lookups.of_cells.items()],
            assignments,
            stages,
            results,
            used,
        )
