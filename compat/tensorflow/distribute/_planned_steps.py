"""The steps that a strategy runs eagerly: how each one runs is decided once and kept, with its programs."""

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Hashable
from typing import final

from tfdist_jax.compat.tensorflow._functions._calls import CallCache
from tfdist_jax.compat.tensorflow._functions._execution_plan import ExecutionPlan, Way

AS_ONE_PROGRAM = ExecutionPlan(Way.ONE_PROGRAM, "all replicas do the same")


@final
@dataclasses.dataclass
class PlannedStep:
    """A step with its programs.

    Attributes:
        plan: How the step runs, all processes agree; None before its first run. A single call can differ from it: batches of
            different sizes are traced in lock-step if the replicas communicate.
        programs: One for each signature.
    """

    plan: ExecutionPlan | None = None
    programs: CallCache = dataclasses.field(
        default_factory=functools.partial(CallCache, makes_variables=True, takes_elements=False)
    )


@final
class PlannedSteps:
    """The steps that were run last. The bound keeps steps that are made anew for each call from piling up with their tensors."""

    def __init__(self, limit: int = 128) -> None:
        """Keep at most `limit` steps."""
        self._limit = limit
        self._steps: OrderedDict[Hashable, PlannedStep] = OrderedDict()

    def __len__(self) -> int:
        return len(self._steps)

    def find(self, guard: Hashable) -> PlannedStep:
        """Return the step with this guard, a new one if it is not kept; it is now the last one that was used."""
        step = self._steps.get(guard)
        if step is None:
            step = self._steps[guard] = PlannedStep()
            if len(self._steps) > self._limit:
                self._steps.popitem(last=False)
        else:
            self._steps.move_to_end(guard)
        return step

    def plan(self, guard: Hashable) -> ExecutionPlan | None:
        """Return how a step runs; None if it has not run, or so long ago that it is not kept."""
        step = self._steps.get(guard)
        return None if step is None else step.plan
