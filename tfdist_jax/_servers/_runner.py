"""Runs plans: computes on a device, and asks servers."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, final

import numpy as np

from tfdist_jax._servers._plan import Call, Plan, Round
from tfdist_jax._servers._server import Answer


class Ask(Protocol):
    """Sends messages to servers, side by side."""

    def __call__(self, messages: Round, sent: Sequence[Sequence[np.ndarray]], number: int) -> list[Answer]:
        """Return the answers to messages, of which it is the round with this `number` in a run."""
        ...


BeforeChanges = Callable[[Sequence[Any]], object]


@final
@dataclasses.dataclass(frozen=True)
class Outcome:
    """What has become of a run.

    Attributes:
        results: Of the plan; `ArrayKind`s of those that have stayed in the worker's process, which then become `HeldArray`s.
        kept: The numbers of the elements that hold them there.
        pulled_bytes: What servers have answered.
        pushed_bytes: What they were sent.
        staleness: For each round of changes, how many changes by others had come since the run's first message to that server.
    """

    results: list[Any]
    pulled_bytes: int
    pushed_bytes: int
    staleness: list[int]
    kept: list[int] = dataclasses.field(default_factory=list)


@final
class Runner:
    """Runs plans, of whose parts it has been told."""

    def __init__(self, parts: Mapping[str, Callable[..., Sequence[Any]]]) -> None:
        """Compute by `parts`, compiled functions by their names."""
        self._parts = parts

    def run(
        self, plan: Plan, arguments: Sequence[Any], ask: Ask, before_changes: BeforeChanges = lambda arrays: None
    ) -> Outcome:
        """Run a plan.

        Args:
            plan: The plan.
            arguments: Its arguments.
            ask: Asks the servers.
            before_changes: Called with what is sent before messages that change something are; if it raises, they are not.
        """
        values: dict[int, Any] = {**plan.constants, **dict(zip(plan.arguments, arguments, strict=True))}
        pulled, pushed, staleness, number = 0, 0, [], 0
        unseen: dict[int, int] = {}  # For each server, the changes that the next one of this run makes no staler.
        for step in plan.steps:
            if isinstance(step, Call):
                outputs = self._parts[step.part](*(values[value] for value in step.inputs))
                values.update(zip(step.outputs, outputs, strict=True))
                continue
            sent = [[np.asarray(values[value]) for value in message.sent] for message in step]
            if any(message.is_change for message in step):
                before_changes([array for arrays in sent for array in arrays])
            answers = ask(step, sent, number)
            number += 1
            pushed += sum(array.nbytes for arrays in sent for array in arrays)
            pulled += sum(array.nbytes for answer in answers for array in answer.values)
            stale = []
            for message, answer in zip(step, answers, strict=True):
                values.update(zip(message.returned, answer.values, strict=True))
                seen = unseen.setdefault(message.server, answer.changes)
                if message.is_change:
                    stale.append(answer.changes - seen)
                    unseen[message.server] += 1
            staleness += [max(stale)] if stale else []
        return Outcome([values[value] for value in plan.results], pulled, pushed, staleness)
