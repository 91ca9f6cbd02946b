"""Chooses faults: the same ones for the same seed."""

import contextlib
import dataclasses
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, final, get_args

from tfdist_jax.testing._faults import Fault, FaultKind
from tfdist_jax.testing._files import Damage, DamageKind, files_in, full_disk
from tfdist_jax.testing._interruptions import Interruption, interruption_after
from tfdist_jax.testing._training import Training

# How long a training is stalled or slow at most, and how much it can write at most when a disk is full.
_SECONDS, _FREE_BYTES = 3.0, 1 << 16


@final
@dataclasses.dataclass(frozen=True)
class Moment:
    """When faults may happen to a training: some time after some line of a process's output.

    Attributes:
        pattern: A regular expression that is looked for in each line; empty for the process's start.
        up_to: How many such lines come before the fault at most; at least one.
        delay_s: How long after it the fault comes at most.
    """

    pattern: str = ""
    up_to: int = 1
    delay_s: float = 0.1


@final
class Chaos:
    """Faults that a seed chooses, and the trainings that they happen to.

    As a context, it ends what is left of the trainings.

    Attributes:
        random: What chooses; for choices of a test's own.
        happened: What has been done so far, a line each.
    """

    def __init__(self, seed: int | str, folder: Path, *, limit_s: float = 300.0) -> None:
        """Begin.

        Args:
            seed: With the same seed, the same calls choose the same.
            folder: Where trainings run, each in a folder of its own.
            limit_s: Seconds without a sign of life after which waiting for a training is an error.
        """
        self.random = random.Random(seed)
        self.happened: list[str] = []
        self._folder, self._limit_s = folder, limit_s
        self._trainings: list[Training] = []

    def launch(
        self,
        *command: str | os.PathLike[str],
        workers: int = 1,
        max_restarts: int = 0,
        options: Sequence[str] = (),
        env: Mapping[str, str | None] | None = None,
        folder: Path | None = None,
    ) -> Training:
        """Start a training by `tfdist-jax launch`.

        Args:
            command: A Python file, or "-m" and a module that is installed or on PYTHONPATH, and its arguments.
            workers: How many processes there are.
            max_restarts: How often the launcher starts them again.
            options: More options of `tfdist-jax launch`. Unless these say otherwise, processes count as dead after 10 s without a sign
                of life, and have 5 s to end.
            env: What differs from this process's environment; None removes a variable.
            folder: Where it runs; if not given, a new one.

        Raises:
            FileNotFoundError: If there is no such Python file.
        """
        number = len(self._trainings)
        training = Training(
            [os.fspath(part) for part in command],
            folder or self._folder / f"training{number}",
            options=[
                *("--workers", str(workers), "--max-restarts", str(max_restarts)),
                *("--heartbeat-timeout", "10", "--stop-timeout", "5"),
                *options,
            ],
            env=env,
            limit_s=self._limit_s,
        )
        self._trainings.append(training)
        return training

    def strike(
        self,
        training: Training,
        times: int = 1,
        *,
        kinds: Sequence[FaultKind] = ("kill", "terminate", "freeze"),
        at: Sequence[Moment] = (Moment(delay_s=10.0),),
    ) -> list[Fault]:
        """Let faults happen to a training, one after the other; return them.

        After one that ends a process, the next one waits until all have been started again: the launcher needs as many `max_restarts`.
        A fault hits one process, or all of them at once, each fifth time.

        Args:
            training: The training.
            times: How many.
            kinds: What may happen, see `Fault`.
            at: When it may; if not given, within ten seconds after a start.

        Raises:
            EndedError: If the training ends before.
            StuckError: If the moment does not come.
            ValueError: If there is no such kind.
        """
        if not kinds or set(kinds) - set(get_args(FaultKind)):
            raise ValueError(f"`kinds` has to be some of {get_args(FaultKind)}, but is {tuple(kinds)}.")
        faults = []
        for _ in range(times):
            fault = self.choose_fault(training.names(), kinds, at)
            self._note(f"{training.folder.name}: {fault}")
            training.strike(fault)
            faults.append(fault)
        return faults

    def choose_fault(self, processes: Sequence[str], kinds: Sequence[FaultKind], at: Sequence[Moment]) -> Fault:
        """Return a fault that `Training.strike` lets happen.

        Args:
            processes: Which may be hit.
            kinds: What may happen, see `Fault`.
            at: When it may.
        """
        choice, moment = self.random, self.random.choice(at)
        alone = choice.random() < 0.8
        return Fault(
            kind=choice.choice(kinds),
            processes=(choice.choice(processes),) if alone else tuple(processes),
            pattern=moment.pattern,
            count=choice.randint(1, moment.up_to),
            delay_s=choice.uniform(0, moment.delay_s),
            seconds=choice.uniform(0, _SECONDS),
            free_bytes=self._choose_size(_FREE_BYTES),
        )

    def interruption(self, within_s: float) -> Interruption:
        """Return a block that is interrupted at a random time.

        Args:
            within_s: At most so many seconds after its beginning.

        Example:
            >>> model, chaos = [0, 0], Chaos(0, Path())
            >>> with chaos.interruption(within_s=0.01) as interruption:
            ...     while True:
            ...         model = [steps + 1 for steps in model]
            >>> len(set(model)), interruption.place is None
            (1, False)
        """
        seconds = self.random.uniform(0, within_s)
        self._note(f"Ctrl-C after {seconds * 1000:.1f} ms")
        return interruption_after(seconds)

    def damage(self, path: str | os.PathLike[str], kind: DamageKind | None = None) -> Damage:
        """Damage a file; with `with`, it is repaired at the end.

        Args:
            path: The file, or a folder: one of the files below it.
            kind: "flip" for one bit, "truncate", "empty" or "remove"; if not given, one of these.

        Raises:
            FileNotFoundError: If no file there holds anything.
        """
        file, chosen = self.random.choice(files_in(path)), self.random.choice(get_args(DamageKind))
        damage = Damage(file, kind or chosen, self.random)
        self._note(str(damage))
        return damage

    @contextlib.contextmanager
    def full_disk(self, up_to: int = _FREE_BYTES) -> Iterator[None]:
        """Let no file of this process grow beyond a random size, see `full_disk`.

        Args:
            up_to: That size is at most so many bytes; each order of magnitude is as likely as the others.
        """
        size = self._choose_size(up_to)
        self._note(f"a disk that is full after {size} bytes")
        with full_disk(size):
            yield

    def close(self) -> None:
        """End what is left of the trainings."""
        for training in self._trainings:
            training.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _choose_size(self, up_to: int) -> int:
        return int((up_to + 1) ** self.random.random()) - 1

    def _note(self, what: str) -> None:
        self.happened.append(what)
