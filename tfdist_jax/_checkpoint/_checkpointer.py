"""Checkpoints of a training: its state by step, saved in the background, restored on any number of devices and processes."""

import dataclasses
import logging
from pathlib import Path
from typing import Any, Self, final

import jax

from tfdist_jax._checkpoint import _checkpoint
from tfdist_jax._checkpoint._background_saving import BackgroundSaving
from tfdist_jax._checkpoint._bucket_store import BucketStore, is_bucket
from tfdist_jax._checkpoint._folder_store import FolderStore
from tfdist_jax._checkpoint._position import decoded, encoded, set_positions
from tfdist_jax._checkpoint._state_tree import arrays_of, read_tree
from tfdist_jax._checkpoint._store import Store
from tfdist_jax._errors import DataLossError
from tfdist_jax._strategy import Strategy

_log = logging.getLogger("tfdist_jax")


@final
@dataclasses.dataclass(frozen=True)
class Restored:
    """What `Checkpointer.restore` has found.

    Attributes:
        step: The step it was saved as.
        state: The state, laid out as asked for.
        positions: What each process has given as its position, in the processes' order.

    Example:
        >>> import tempfile, numpy as np, tfdist_jax as td
        >>> with td.Checkpointer(tempfile.mkdtemp()) as checkpointer:
        ...     checkpointer.save(7, {"w": np.ones(3)}, position={"batch": 7})
        ...     restored = checkpointer.restore({"w": np.ones(3)})
        >>> restored.step, restored.position, restored.state["w"]
        (7, {'batch': 7}, array([1., 1., 1.]))
    """

    step: int
    state: Any
    positions: tuple[Any, ...]

    @property
    def position(self) -> Any:
        """What this process has given as its position; what all have, if it is the same and their number is another one.

        Raises:
            ValueError: If the processes were more or fewer, and had different positions.
        """
        if len(self.positions) == jax.process_count():
            return self.positions[jax.process_index()]
        if len({encoded(position) for position in self.positions}) > 1:
            raise ValueError(
                f"Step {self.step} was saved by {len(self.positions)} process(es), each with a position of its own, and "
                f"there are {jax.process_count()} now. Make new ones of `restored.positions`."
            )
        return self.positions[0]


@final
class Checkpointer:
    """Saves the state of a training in a folder, a checkpoint for each step that is saved.

    A checkpoint is a folder `step-N`, in a bucket `step_N`, that is there completely or not at all: whatever stops the
    processes, what is half written is never taken for a checkpoint. `save` takes the values as they are and returns;
    they are written in the background, each process writing what it has. What goes wrong there is raised by the next
    call of `save`, `restore`, `check`, `wait` or `close`, in all processes.

    In several processes (`tfdist_jax.initialize`) all of them make the checkpointer and call it alike, and the folder
    is one that all of them see. One process is all it takes to restore what several have saved, and the other way round.
    Only one checkpointer at a time saves in a folder; others may read there.

    Example:
        >>> import tempfile, jax, jax.numpy as jnp, numpy as np, tfdist_jax as td
        >>> make_state = lambda: {"w": jnp.ones((8, 256)), "key": jax.random.key(0)}
        >>> rng = np.random.default_rng(0)
        >>> folder = tempfile.mkdtemp()
        >>> with td.Checkpointer(folder, max_to_keep=2) as checkpointer:
        ...     state = td.Mirrored().init(make_state)
        ...     for step in range(1, 4):
        ...         checkpointer.save(step, state, position={"row": 64 * step, "rng": rng.bit_generator.state})
        >>> checkpointer = td.Checkpointer(folder)
        >>> checkpointer.steps()
        [2, 3]
        >>> restored = checkpointer.restore(jax.eval_shape(make_state), strategy=td.FSDP())
        >>> restored.step, restored.position["row"], tuple(restored.state["w"].sharding.spec)
        (3, 192, (None, 'data'))
    """

    def __init__(self, folder: str | Path, *, max_to_keep: int | None = None, asynchronous: bool = True) -> None:
        """Use a folder for checkpoints; it is made when it is needed.

        Args:
            folder: A local folder, a mounted one or gs://bucket/path; the same for all processes.
            max_to_keep: How many checkpoints are kept, the newest ones; all if None.
            asynchronous: Whether `save` returns before all is written.

        Raises:
            ValueError: If `max_to_keep` is not positive, or a URL names no bucket.
            NotImplementedError: If the folder is another URL, such as s3://, or a bucket and Python 3.12.0 or 3.12.1.
            ImportError: If what reaches a bucket is not installed; the extra `gcs` is it.
        """
        if max_to_keep is not None and max_to_keep <= 0:
            raise ValueError(f"`max_to_keep` must be positive, or None to keep all, got {max_to_keep}.")
        self._store: Store = (BucketStore if is_bucket(folder) else FolderStore)(folder, max_to_keep)
        self._asynchronous = asynchronous
        self._saving = BackgroundSaving()
        self._is_prepared = False
        self._newest: int | None = None

    def save(self, step: int, state: Any, *, position: Any = None) -> None:
        """Save the state as that of a step; one that is saved already is replaced, in a bucket removed first.

        Waits for the save before, and until the values are in the host's memory.

        Args:
            step: A number from 0 on, not below those that are saved.
            state: Pytree of JAX and NumPy arrays, random keys and Python numbers. What is not laid out over several
                processes is the first one's.
            position: This process's place in the data, random generators and the like: what JSON has, with NumPy and
                JAX arrays, bytes, and objects that have `get_state` and `set_state`, such as iterators. A number of rows
                says where the data are whatever the batch; a number of batches only as long as their size stays.

        Raises:
            ValueError: If a later step is saved.
            TypeError: If something can not be saved.
            RuntimeError: If the save before, or with `asynchronous=False` this one, has failed; in all processes.
        """
        self._saving.wait()
        if step < 0:
            raise ValueError(f"`step` must not be negative, got {step}.")
        arrays, about = arrays_of(state)
        own = encoded(position)
        if not self._is_prepared:
            self._newest, self._is_prepared = self._store.prepare(), True
        if self._newest is not None and step < self._newest:
            raise ValueError(
                f"Step {step} comes before step {self._newest}, which is saved in {self._store} and would stay the newest. "
                "Call `delete_after(step)` first, with the step from which the training goes on, or use another folder."
            )
        self._newest = step
        self._saving.start(f"step {step} in {self._store}", self._store.begin_saving(step, arrays, about, own))
        if not self._asynchronous:
            self.wait()

    def restore(
        self,
        like: Any = None,
        *,
        step: int | None = None,
        strategy: Strategy | None = None,
        position: Any = None,
        skip_damaged: bool = True,
    ) -> Restored:
        """Read a checkpoint, whatever devices, processes and strategy it was saved from.

        Args:
            like: What to read, and how: a pytree as the one that was saved, or a part of it. Its leaves say where the
                arrays go: shardings, or arrays and `jax.ShapeDtypeStruct` with a sharding, whose shapes and types must be
                the saved ones. Without a sharding they come as NumPy arrays, numbers as numbers. If None, all comes as
                NumPy arrays in a dict by `jax.tree_util.keystr` of their paths.
            step: Which one; the newest if None.
            strategy: Lay the arrays out as this strategy does, whatever `like` says; `jax.eval_shape(make_state)` is
                enough for it then.
            position: Objects with `set_state`, where they were when their position was saved: they are set.
            skip_damaged: Whether the newest that is not damaged is read, with a warning, where `step` is None.

        Returns:
            The step, the state and the position.

        Raises:
            FileNotFoundError: If there is no complete checkpoint.
            ValueError: If `like` names what was not saved, or has other shapes or types.
            DataLossError: If the checkpoint is damaged, or with `skip_damaged` all are. In a bucket the service keeps files whole.
            RuntimeError: If the save before has failed.
        """
        self.wait()
        step = self._step_to_restore(step, skip_damaged=skip_damaged)
        path = self._store.path(step)
        restored = Restored(step, read_tree(path, like, strategy), tuple(map(decoded, _checkpoint.read_own(path))))
        if position is not None:
            set_positions(position, restored.position)
        return restored

    def _step_to_restore(self, step: int | None, *, skip_damaged: bool) -> int:
        """Return the same step in all processes, one that is whole."""
        steps = self._store.exchange(self.steps())[0]
        candidates = steps[::-1] if step is None else [step]
        if not candidates or candidates[0] not in steps:
            there = f"of step {step}" if step is not None else "at all"
            raise FileNotFoundError(f"There is no complete checkpoint {there} in {self._store}; there are: {steps}.")
        damages: list[str] = []
        for candidate in candidates:
            damage = self._store.find_damage(candidate)
            if damage is None:
                for each in damages:
                    _log.warning("%s Going back to step %d.", each, candidate)
                return candidate
            damages.append(damage)
            if step is not None or not skip_damaged:
                remedy = "`restore()` without a step, with `skip_damaged=True`, reads the newest one that is whole."
                raise DataLossError(f"{damage} {remedy}")
        raise DataLossError(f"{damages[0]} No other step in {self._store} is whole. Remove them to begin anew.")

    def steps(self) -> list[int]:
        """Return the steps of which there is a complete checkpoint, in their order."""
        return self._store.steps()

    def latest_step(self) -> int | None:
        """Return the newest step of which there is a complete checkpoint, or None."""
        return max(self.steps(), default=None)

    def delete_after(self, step: int) -> None:
        """Remove the checkpoints of later steps, to go on from this one."""
        self.wait()
        self._store.delete([later for later in self.steps() if later > step])
        self._newest = step

    def check(self) -> None:
        """Raise if saving has failed, without waiting for it; costs nothing in each step."""
        self._saving.check()

    def wait(self) -> None:
        """Wait until all is saved, and raise if that has failed."""
        self._saving.wait()

    def close(self) -> None:
        """Do as `wait`, at the end."""
        try:
            self.wait()
        finally:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()
