"""Where the checkpoints of a training are kept by step."""

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdist_jax._cluster import Exchange

if TYPE_CHECKING:
    from etils import epath


class Store(abc.ABC):
    """A place for checkpoints, one for each step, each of them there completely or not at all.

    The processes of a program make it alike, and write to it together; each can read alone.

    Attributes:
        max_to_keep: How many checkpoints are kept, the newest ones; all if None.
    """

    def __init__(self, max_to_keep: int | None) -> None:
        """Keep so many."""
        self.max_to_keep = max_to_keep

    @abc.abstractmethod
    def __str__(self) -> str: ...

    @functools.cached_property
    def exchange(self) -> Exchange:
        """What the processes tell each other with."""
        return Exchange("the same checkpoint")

    def together(self, do: Callable[[], Any]) -> None:
        """Do what all processes do; raise if it has failed in any of them."""
        failure = None
        try:
            do()
        except Exception as error:
            failure = error
        said = self.exchange(None if failure is None else f"{type(failure).__name__}: {failure}")
        if failure is not None:
            raise failure
        for process, text in enumerate(said):
            if text is not None:
                raise RuntimeError(f"process {process}: {text}")

    @abc.abstractmethod
    def prepare(self) -> int | None:
        """Get ready to write, and remove what earlier runs have left unfinished.

        Returns:
            The newest step that is there, as the first process sees it.
        """

    @abc.abstractmethod
    def begin_saving(
        self, step: int, arrays: Mapping[str, Any], about: Mapping[str, Any], own: Any
    ) -> Callable[[], None]:
        """Save as a step, in place of what is saved as that; take the values as they are now.

        Args:
            step: Its number.
            arrays: By name, of any sharding.
            about: What `read_about` returns, as JSON has it; the first process's counts.
            own: What `read_own` returns for this process, as JSON has it.

        Returns:
            The rest, for this thread or another one.
        """

    @abc.abstractmethod
    def steps(self) -> list[int]:
        """Return the steps that are there completely, in their order."""

    def find_damage(self, step: int) -> str | None:
        """Return what is wrong with a saved step, the same in all processes; None if nothing is."""
        return None

    @abc.abstractmethod
    def path(self, step: int) -> "Path | epath.Path":
        """Return where a step is read from."""

    @abc.abstractmethod
    def delete(self, steps: Sequence[int]) -> None:
        """Remove steps."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go what was taken for writing."""
