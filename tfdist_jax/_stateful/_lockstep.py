"""Replicas of different batch sizes in one program: traced side by side, in step at every collective.

One SPMD program needs equal shapes. Where user code may communicate anywhere and the replicas' parts of the batch
differ in size, each replica is traced by a thread of its own, one at a time, and collectives are where they meet.
"""

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import jax

from tfdist_jax._autodiff._tape_trace import below_tapes
from tfdist_jax._internals import current_trace, eval_trace, set_trace
from tfdist_jax._stateful._replica_state import ReplicaScope
from tfdist_jax._stateful._state import Cell, Merge, StateScope, current_scope, entering
from tfdist_jax._stateful._transaction import ReplicaTransaction

Combine = Callable[[list[Any]], list[Any]]
"""The replicas' contributions, in replica order, to what each of them gets."""


@final
class LockStep:
    """Traces one function per replica, switching between them at collectives."""

    def __init__(self, num_replicas: int) -> None:
        """Prepare `num_replicas` replicas, none of which has started."""
        self._turns = [threading.Semaphore(0) for _ in range(num_replicas)]
        self._back = threading.Semaphore(0)
        self._offers: list[tuple[Any, Combine] | None] = [None] * num_replicas
        self._received: list[Any] = [None] * num_replicas
        self._finished = [False] * num_replicas
        self._error: BaseException | None = None
        self._trace: Any = None

    def is_transformed(self) -> bool:
        """Tell whether the calling replica is inside a JAX transformation of its own, such as `jax.grad`.

        What the replicas offer each other must belong to the trace that they share.
        """
        return below_tapes(current_trace()) is not below_tapes(self._trace)

    def exchange(self, replica: int, value: Any, combine: Combine) -> Any:
        """Offer `value` and wait for all replicas; called from the replica's own function.

        Args:
            replica: The calling replica.
            value: Its contribution.
            combine: What the contributions become; the same collective on all replicas.
        """
        if len(self._turns) == 1:
            return combine([value])[0]
        self._offers[replica] = (value, combine)
        self._back.release()
        self._turns[replica].acquire()
        if self._error is not None:
            raise _StoppedError
        return self._received[replica]

    def run(self, replicas: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run the replicas' functions to their ends and return their results.

        Raises:
            RuntimeError: If some replicas communicate where others do not.
        """
        trace = self._trace = current_trace()
        if len(replicas) == 1:
            return [replicas[0]()]  # In this thread, which has settings of JAX that others have not.
        results: list[Any] = [None] * len(replicas)
        threads = [
            threading.Thread(
                target=self._replica, args=(i, contextvars.copy_context(), fn, trace, results), daemon=True
            )
            for i, fn in enumerate(replicas)
        ]
        try:
            for thread in threads:
                thread.start()
            while not all(self._finished):
                self._round()
            for thread in threads:
                thread.join()
        except BaseException as error:
            self._stop(error)
            raise
        if self._error is not None:
            raise self._error
        return results

    def _stop(self, error: BaseException) -> None:
        """Let replicas end at their next collective, or before they start."""
        self._error = error
        for turn in self._turns:
            turn.release()

    def _round(self) -> None:
        """Let each unfinished replica run to its next collective or its end, then combine."""
        running = [i for i, finished in enumerate(self._finished) if not finished]
        for i in running:
            self._offers[i] = None
            self._turns[i].release()
            self._back.acquire()
        offers = [offer for offer in self._offers if offer is not None and self._error is None]
        if not offers or all(self._finished):
            return
        if len(offers) < len(self._finished) or any(self._finished):
            self._error = RuntimeError(
                f"{sum(self._finished)} of {len(self._finished)} replicas ended while the others wait in a collective. "
                "Every replica must make the same calls of all_reduce, all_gather, merge_call and apply_gradients."
            )
            return
        try:
            self._received = offers[0][1]([value for value, _ in offers])
        except Exception as error:
            self._error = error

    def _replica(
        self, i: int, context: contextvars.Context, fn: Callable[[], Any], trace: Any, results: list[Any]
    ) -> None:
        self._turns[i].acquire()
        set_trace(trace)
        try:
            if self._error is None:
                results[i] = context.run(fn)
        except _StoppedError:
            pass  # Another replica's error ended this one; `run` raises that error.
        except BaseException as error:
            self._error = self._error or error
        finally:
            set_trace(eval_trace)
            self._finished[i] = True
            self._offers[i] = None
            self._back.release()


class _StoppedError(BaseException):
    """Unwinds a replica whose fellow has failed; not an Exception, so that user code does not catch it."""


@final
class _ReplicaView(StateScope):
    """The cells around the replicas, seen by one of them: its entry of per-replica ones."""

    def __init__(self, outer: StateScope, replica: int) -> None:
        self._outer = outer
        self._replica = replica

    @property
    def is_traced(self) -> bool:
        return self._outer.is_traced

    def after_run(self, check: Callable[[], None]) -> bool:
        return self._outer.after_run(check)

    def present_value(self, array: jax.Array) -> Any:
        return self._outer.present_value(array)

    def read(self, cell: Cell) -> jax.Array:
        value = self._outer.read(cell)
        return value[self._replica] if cell.storage.per_replica else value

    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        raise RuntimeError("A replica writes to its own scope, never to the surrounding one.")


def run_in_lockstep(make_replica: Callable[[LockStep, int], Callable[[], Any]], counts: tuple[int, ...]) -> list[Any]:
    """Run replicas that read and write the cells of the captured program around them, or outside of one the cells themselves.

    Args:
        make_replica: Gives the function of one replica; it communicates through the `LockStep`'s `exchange`.
        counts: How much each replica counts in means.

    Returns:
        The replicas' results, in order.
    """
    around = current_scope()
    if around is not None:
        results, changes = _run_around(around, make_replica, counts)
        for cell, new in changes:
            around.write(cell, new, Merge.SAME)
        return results
    with ReplicaTransaction() as transaction:
        results, changes = _run_around(transaction, make_replica, counts)
        transaction.store(changes)
    return results


def _run_around(
    around: StateScope, make_replica: Callable[[LockStep, int], Callable[[], Any]], counts: tuple[int, ...]
) -> tuple[list[Any], list[tuple[Cell, jax.Array]]]:
    """Run the replicas, and return their results and what becomes of the cells."""
    lockstep = LockStep(len(counts))
    scopes = [ReplicaScope(_ReplicaView(around, i)) for i in range(len(counts))]

    def inside(i: int) -> Callable[[], Any]:
        fn = make_replica(lockstep, i)

        def replica() -> Any:
            with entering(scopes[i]):
                return fn()

        return replica

    results = lockstep.run([inside(i) for i in range(len(counts))])
    return results, _merge_writes(around, scopes, counts)


def _merge_writes(
    around: StateScope, scopes: Sequence[ReplicaScope], counts: tuple[int, ...]
) -> list[tuple[Cell, jax.Array]]:
    """Settle what the replicas wrote; one that wrote nothing counts with the value it saw."""
    written = {id(cell): (cell, merge) for one in scopes for cell, _, merge in one.writes()}
    values = lambda cell: [one.read(cell) for one in scopes]
    return [
        (cell, cell.storage.merge(values(cell), around.read(cell), merge, counts)) for cell, merge in written.values()
    ]
