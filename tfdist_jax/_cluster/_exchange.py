"""What the processes of a program tell each other from the host, beside the arrays that their devices reduce."""

import atexit
import collections
import concurrent.futures
import itertools
import json
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import jax

from tfdist_jax._cluster._waiting import check_reachable, waiting
from tfdist_jax._internals import joined_processes, key_value_client

_POLL_S = 1.0
_reached: dict[str, int] = {}
_numbers: collections.defaultdict[str, Iterator[int]] = collections.defaultdict(itertools.count)


@final
class Exchange:
    """Rounds in which every process says something and hears what all have said.

    All processes make their exchanges under the same names and take part in the same rounds. A process that ends is
    noticed by its missing heartbeat, which ends the others; one that is only late is waited for.
    """

    def __init__(self, name: str) -> None:
        """Take part in rounds called `name`; several of one name belong together in the order in which they are made."""
        self._folder = f"tfdist_jax/exchange/{name}/{next(_numbers[name])}"
        self._name = name
        self._round = 0
        _, self._count, self._own = joined_processes() or ("", 1, 0)

    def __call__(self, value: Any, what: str = "") -> list[Any]:
        """Say `value`, of which JSON can be made; return what all processes have said, in their order.

        Args:
            value: What this process says.
            what: What is waited for, in messages; the exchange's name if empty.
        """
        with waiting(what or self._name, self):
            return self.allgather(value)

    def allgather(self, value: Any) -> list[Any]:
        """Do as a call does, but unnoticed by the watchdog: in a thread on which nobody waits yet."""
        if self._count == 1:
            return [value]
        here, before = self.key, f"{self._folder}/{self._round - 1}"
        _reached[self._folder] = self._round
        client = key_value_client()
        client.key_value_set(f"{here}/{self._own}", json.dumps(value))
        # Process 0 collects: so each asks for one answer instead of for all.
        if self._own == 0:
            said = [self._wait_for(f"{here}/{i}", i) for i in range(self._count)]
            client.key_value_set(f"{here}/all", f"[{','.join(said)}]")
            everything = [json.loads(text) for text in said]
        else:
            everything = json.loads(self._wait_for(f"{here}/all", 0))
        # Who has taken part in this round has read the one before.
        if self._round:
            client.key_value_delete(f"{before}/{self._own}")
            if self._own == 0:
                client.key_value_delete(f"{before}/all")
        self._round += 1
        return everything

    @property
    def key(self) -> str:
        """What the next round, or the present one, is called."""
        return f"{self._folder}/{self._round}"

    def has_begun(self) -> bool:
        """Tell whether another process has said something in the next round already."""
        return bool(key_value_client().key_value_dir_get(self.key))

    def is_reached(self, key: str) -> bool:
        """Tell whether this process has said something in a round."""
        folder, _, number = key.rpartition("/")
        return _reached.get(folder, -1) >= int(number)

    def absent(self) -> Sequence[int]:
        """Return the numbers of the processes that have not said anything in this round yet."""
        present = {key.rpartition("/")[2] for key, _ in key_value_client().key_value_dir_get(self.key)}
        return [i for i in range(self._count) if str(i) not in present]

    def _wait_for(self, key: str, process_id: int) -> str:
        while True:
            try:
                return str(key_value_client().blocking_key_value_get(key, int(_POLL_S * 1000)))
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise
            check_reachable(process_id, self)


@final
class Background:
    """Calls functions one after the other in a thread that does not keep the process alive."""

    def __init__(self) -> None:
        """Start the thread with the first call."""
        self._calls: queue.SimpleQueue[tuple[concurrent.futures.Future[Any], Callable[[], Any]] | None]
        self._calls = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[[], Any]) -> "concurrent.futures.Future[Any]":
        """Call `fn` when all earlier calls have returned."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="tfdist_jax exchange")
            self._thread.start()
            atexit.register(self._finish)
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._calls.put((future, fn))
        return future

    def end(self) -> None:
        """Let the thread end when it has made all calls."""
        self._calls.put(None)

    def _finish(self) -> None:
        """End the thread before Python ends: inside a call of JAX it would abort the process then."""
        self.end()
        # After an error others may never answer, and are to hear of the error at once.
        if self._thread is not None and getattr(sys, "last_value", None) is None:
            self._thread.join(_POLL_S + 5)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, fn = call
            try:
                future.set_result(fn())
            except BaseException as error:
                future.set_exception(error)
        atexit.unregister(self._finish)
