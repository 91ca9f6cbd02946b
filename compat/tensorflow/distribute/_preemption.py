"""`tf.distribute.experimental.PreemptionCheckpointHandler`: saves before a machine is taken away."""

import contextlib
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, final

from tfdist_jax._checkpoint import _checkpoint
from tfdist_jax._cluster import LOST_EXIT_CODE, LateSave, Preemption
from tfdist_jax._stateful import _state
from tfdist_jax._stateful._snapshot import Snapshot, SnapshotScope
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow.distribute._configured_resolvers import cluster_of
from tfdist_jax.compat.tensorflow.distribute._resolver_base import ClusterResolver
from tfdist_jax.compat.tensorflow.train._checkpoint import Checkpoint
from tfdist_jax.compat.tensorflow.train._manager import CheckpointManager
from tfdist_jax.compat.tensorflow.train._objects import Snapshots
from tfdist_jax.compat.tensorflow.train._state_file import as_text

# How many steps before the end of the grace period it counts as over, as in TensorFlow.
_STEPS_TO_SPARE = 6


@final
class TerminationConfig:
    """Drop-in for `tf.distribute.experimental.TerminationConfig`: how a `PreemptionCheckpointHandler` is told, and ends.

    Differs from TensorFlow: nobody asks which platform this is. Without a `termination_watcher_fn` the notice is SIGTERM,
    and without an `exit_fn` the process ends with exit code 75, after which `tfdist-jax launch --max-restarts` starts again.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/TerminationConfig
    """

    def __init__(
        self,
        termination_watcher_fn: Callable[[], bool] | None = None,
        exit_fn: Callable[[], object] | None = None,
        grace_period: float | None = None,
        save_fn: Callable[..., object] | None = None,
    ) -> None:
        """Keep the options.

        Args:
            termination_watcher_fn: Tells whether there is a notice; called twice a second by a thread.
            exit_fn: Called when all workers have saved, to end the process; by a thread, where the program is busy with
                something that does not notice signals.
            grace_period: How many seconds after the notice the process may go on. It saves at once, goes on, and saves again
                and ends shortly before they are over. None or 0: it ends at once.
            save_fn: Called instead of `CheckpointManager.save`.
        """
        self.termination_watcher_fn = termination_watcher_fn
        self.exit_fn = exit_fn
        self.grace_period = grace_period
        self.save_fn = save_fn


class _Mark(NamedTuple):
    """A moment before a call of `run`.

    Attributes:
        begun: How many calls had begun.
        runs: How many had ended, in the processes before this one, too.
        moment: What was there.
    """

    begun: int
    runs: int
    snapshot: Snapshot


@final
class PreemptionCheckpointHandler:
    """Drop-in for `tf.distribute.experimental.PreemptionCheckpointHandler`: saves when a worker is about to be stopped.

    When one worker has a notice, all stop before the same call of `run`, save, and end. What was saved last is restored when
    the handler is made.

    While the program is busy for long, a thread saves in its place, and ends it: inside `run`, where a function compiles or
    waits for data, what was there before the call; between two calls, as in an evaluation, what is there then. So what
    belongs together, such as a count of steps, is changed right after `run`. A batch that is taken before `run` counts as
    used: take it inside. Variables with a value of each replica (`ON_READ`), over several workers, are saved at `run` only.

    Differs from TensorFlow: all stop at the next call of `run`, not after it, and workers may be any number of steps apart.
    It works with every strategy, also on TPU and on Google Cloud's machines.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/PreemptionCheckpointHandler
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None,
        checkpoint_or_checkpoint_manager: Checkpoint | CheckpointManager,
        checkpoint_dir: Any = None,
        termination_config: TerminationConfig | None = None,
    ) -> None:
        """Restore the last checkpoint, if there is one, and wait for notices.

        Args:
            cluster_resolver: The strategy's; None, or one without addresses, for a single process.
            checkpoint_or_checkpoint_manager: What is saved. For a `Checkpoint` the handler manages one checkpoint in
                `checkpoint_dir`; workers that are not the first one write into a folder beside it, and remove it.
            checkpoint_dir: Where checkpoints are; not used with a manager.
            termination_config: How notices come, and what happens then.

        Raises:
            InvalidArgumentError: If `checkpoint_dir` is missing.
            NotImplementedError: If the cluster has parameter servers.
            RuntimeError: If SIGTERM is the notice, and this is not the main thread.
        """
        if isinstance(checkpoint_or_checkpoint_manager, Checkpoint) and not checkpoint_dir:
            raise InvalidArgumentError(
                None, None, "When a checkpoint is passed, a `checkpoint_dir` must be passed as well."
            )
        if cluster_resolver is not None and "ps" in cluster_resolver.cluster_spec().as_dict():
            raise NotImplementedError(
                "PreemptionCheckpointHandler does not support parameter servers (the job 'ps'). Save with a "
                "tf.train.CheckpointManager from time to time."
            )
        config = termination_config or TerminationConfig()
        self._exit_fn = config.exit_fn or (lambda: sys.exit(LOST_EXIT_CODE))
        self._grace_s = config.grace_period or 0
        self._scratch: Path | None = None
        if isinstance(checkpoint_or_checkpoint_manager, Checkpoint):
            reader = CheckpointManager(checkpoint_or_checkpoint_manager, checkpoint_dir, max_to_keep=1)
            self._writer = self._made_writer(reader, cluster_resolver)
        else:
            reader = self._writer = checkpoint_or_checkpoint_manager
        self._save_fn = config.save_fn or self._writer.save
        self._saved_runs = _counter_of(reader.checkpoint)
        reader.restore_or_initialize()
        self._runs = int(self._saved_runs.numpy())
        self._mean_run_s, self._timed_runs = 0.0, 0
        self._in_grace_period, self._told = False, 0.0
        self._lock, self._snapshots = reader.checkpoint.lock, Snapshots(reader.checkpoint)
        self._mark: _Mark | None = None
        self._preemption = Preemption(watch=config.termination_watcher_fn, late=self._late)

    def _made_writer(self, reader: CheckpointManager, resolver: ClusterResolver | None) -> CheckpointManager:
        cluster = None if resolver is None else cluster_of(resolver)
        if cluster is None or cluster.process_id == 0:
            return reader
        folder = _checkpoint.local_path(as_text(reader.directory)).absolute()
        self._scratch = folder.with_name(f"workertemp_{cluster.task.index}")
        return CheckpointManager(reader.checkpoint, str(self._scratch / folder.name), max_to_keep=1)

    @property
    def total_run_calls(self) -> int:
        """How often `run` has been called, in the processes before this one, too."""
        return self._runs

    def run(self, distributed_train_function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function that trains for a step; before that, save and end the process if there is a notice.

        Args:
            distributed_train_function: The function.
            *args: Its arguments.
            **kwargs: Its keyword arguments.

        Returns:
            What the function returns.
        """
        self._save_and_exit_if_told()
        began = time.monotonic()
        try:
            result = distributed_train_function(*args, **kwargs)
        finally:
            self._mark = None
        self._runs += 1
        self._timed_runs += 1
        self._mean_run_s += (time.monotonic() - began - self._mean_run_s) / self._timed_runs
        return result

    def save_checkpoint_if_preempted(self, *args: Any, **kwargs: Any) -> None:
        """Save and end the process if there is a notice; for loops that call their function themselves.

        Args:
            *args: Arguments for saving.
            **kwargs: Keyword arguments for saving.
        """
        self._save_and_exit_if_told(*args, **kwargs)
        self._runs += 1

    @contextlib.contextmanager
    def watch_preemption_scope(self) -> Iterator[None]:
        """Do nothing: `run` alone saves under every strategy. TensorFlow needs it on TPU."""
        yield

    def _save_and_exit_if_told(self, *args: Any, **kwargs: Any) -> None:
        self._mark = _Mark(self._preemption.begun, self._runs, self._snapshots.now())
        while self._preemption.stops():
            self._save(self._runs, *args, **kwargs)
            if self._grace_s > 0 and not self._in_grace_period:
                self._in_grace_period = True
                self._preemption.resume(self._rest_of_grace_s())
                continue
            self._preemption.part()
            self._clear_scratch()
            self._exit_fn()
            self._preemption.resume(math.inf)  # The program's own `exit_fn` lets it go on.

    def _save(self, runs: int, *args: Any, **kwargs: Any) -> None:
        self._saved_runs.assign(runs)
        self._save_fn(*args, **kwargs)
        self._writer.sync()

    def _clear_scratch(self) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _late(self) -> LateSave | None:
        """Find what a thread can save: what was there before the present call of `run`, or what is there between two."""
        if self._grace_s > 0 and not self._in_grace_period and self._rest_of_grace_s() > 0:
            return None
        mark, begun = self._mark, self._preemption.begun
        if not begun and mark is None:
            return LateSave(lambda: None, 0, self._exit_fn)  # What was restored is saved.
        if not self._lock.acquire(blocking=False):
            return None
        try:
            now = mark or _Mark(begun, self._runs, self._snapshots.now())
            scope = now.snapshot.scope()
        finally:
            self._lock.release()
        if scope is None or mark is not self._mark or begun != self._preemption.begun:
            return None
        return LateSave(lambda: self._save_late(scope, now.runs), now.begun, self._exit_fn)

    def _save_late(self, scope: SnapshotScope, runs: int) -> None:
        with _state.entering(scope):
            self._save(runs)
        self._clear_scratch()

    def _rest_of_grace_s(self) -> float:
        self._told = self._told or self._preemption.notice or time.monotonic()
        told = self._told
        return max(0.0, told + self._grace_s - time.monotonic() - _STEPS_TO_SPARE * self._mean_run_s)


def _counter_of(checkpoint: Checkpoint) -> Variable:
    """Return the number of runs that is saved with a checkpoint."""
    if not hasattr(checkpoint, "checkpointed_runs"):
        checkpoint.checkpointed_runs = Variable(0, dtype=_dtypes.int64, trainable=False, name="checkpointed_runs")
    return getattr(checkpoint, "checkpointed_runs")  # noqa: B009 - an attribute like any that a program sets.
