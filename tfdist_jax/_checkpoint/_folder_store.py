"""Checkpoints by step in a folder that all processes see."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import jax

from tfdist_jax._checkpoint import _checkpoint, _integrity
from tfdist_jax._checkpoint._store import Store

_PREFIX = "step-"
# By this file, which is there for a moment, processes see that they save into the same folder.
_MARK = ".run-"


@final
class FolderStore(Store):
    """Folders `step-N`, on this machine or mounted; each gets its name when everything is in it."""

    def __init__(self, folder: str | Path, max_to_keep: int | None) -> None:
        """Keep checkpoints in a folder, which is made when it is needed."""
        super().__init__(max_to_keep)
        self._folder = _checkpoint.local_path(folder).absolute()
        self._run = ""  # A name for what this run leaves unfinished.

    def __str__(self) -> str:
        return str(self._folder)

    def prepare(self) -> int | None:
        """Do as `Store` says, and see that all processes have the same folder."""
        run, newest = self.exchange([uuid.uuid4().hex[:8], max(self.steps(), default=None)])[0]
        mark = self._folder / f"{_MARK}{run}"

        def clear() -> None:
            if jax.process_index() == 0:
                self._folder.mkdir(parents=True, exist_ok=True)
                _checkpoint.clear_leftovers(self._folder, _PREFIX)
                for left in self._folder.glob(f"{_MARK}*"):
                    left.unlink(missing_ok=True)
                mark.touch()

        def look() -> None:
            if not mark.exists():
                raise FileNotFoundError(
                    f"{self._folder} is not the folder that process 0 has. All processes must see the same one: use a file "
                    "system that the machines share."
                )

        self.together(clear)
        try:
            self.together(look)
        finally:
            if jax.process_index() == 0:
                mark.unlink()
        self._run = run
        return newest

    def begin_saving(
        self, step: int, arrays: Mapping[str, Any], about: Mapping[str, Any], own: Any
    ) -> Callable[[], None]:
        """Do as `Store` says; what was saved as this step stays until the new one is complete."""
        together = _checkpoint.Together(self._run, self.together)
        finish = _checkpoint.begin_saving_together(self.path(step), arrays, about, own, together)

        def finish_and_sweep() -> None:
            finish()
            if self.max_to_keep is not None:
                self.delete(self.steps()[: -self.max_to_keep])

        return finish_and_sweep

    def steps(self) -> list[int]:
        """Do as `Store` says."""
        names = {path.name.partition(".")[0].removeprefix(_PREFIX) for path in self._folder.glob(f"{_PREFIX}*")}
        steps = sorted(int(name) for name in names if name.isdecimal())
        return [step for step in steps if _checkpoint.is_saved(self.path(step))]

    def find_damage(self, step: int) -> str | None:
        """Do as `Store` says; each process reads a share of the files."""
        path = self.path(step)
        damage = _integrity.find_damage(path, jax.process_index(), jax.process_count())
        damage = next(filter(None, self.exchange(damage)), None)
        _integrity.note(path, damage)
        return damage

    def path(self, step: int) -> Path:
        """Do as `Store` says."""
        return self._folder / f"{_PREFIX}{step}"

    def close(self) -> None:
        """Do as `Store` says; there is nothing to let go."""

    def delete(self, steps: Sequence[int]) -> None:
        """Do as `Store` says."""

        def remove() -> None:
            if jax.process_index() == 0:
                for step in steps:
                    _checkpoint.delete(self.path(step))

        self.together(remove)
