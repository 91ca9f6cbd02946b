"""Failure detection: processes that train together notice when one of them is gone.

A collective waits for every process, so the others could wait for ever. The connections of the rendezvous stay open: one
that breaks, or a process that says that it fails, ends the group with a message that names the process.
"""

import logging
import os
import sys
import threading
import time
from typing import final

from tfdist_jax._cluster._json_connection import JsonConnection
from tfdist_jax._cluster._spec import Cluster
from tfdist_jax._cluster._watch import Watch

_log = logging.getLogger("tfdist_jax")

# Time for an error from the collective that broke to reach the program, which may want to handle it.
_GRACE_S = 3.0

_CAUSE_S = 0.5
_TELL_AFTER_S = 10.0

LOST_EXIT_CODE = 75
"""How a process ends because another one is gone: EX_TEMPFAIL, "try again"."""

LEAVING = threading.Event()
"""Set while all processes leave together: nobody is missed then."""


@final
class PeerMonitor:
    """Monitors the other processes: all of them in process 0, and process 0 elsewhere."""

    def __init__(self, cluster: Cluster, connections: dict[int, JsonConnection], watch: Watch) -> None:
        """Follow the connections from now on; `watch` gets the messages that concern it, and looks where this process is."""
        self._cluster = cluster
        self._watch = watch
        self._connections = connections
        self._lost = threading.Event()
        self._losing = threading.Lock()
        self._ends_by_itself = False
        self._watchers = {
            process_id: threading.Thread(target=self._follow, args=(process_id, connection), daemon=True)
            for process_id, connection in connections.items()
        }
        # Made now: while Python ends, from 3.12 on, no thread can be started any more.
        threading.Thread(target=self._end_when_lost, daemon=True).start()
        for watcher in self._watchers.values():
            watcher.start()
        watch.start(self._lose)

    def leave(self, failure: str, timeout_s: float) -> None:
        """Part from the others: process 0 goes last, when nobody has failed.

        Args:
            failure: Why this process fails; empty if it does not.
            timeout_s: How long process 0 waits for the others.
        """
        self._watch.end()
        # A collective that breaks raises, too; what broke it is known a little later.
        if failure and self._lost.wait(_CAUSE_S):
            return self._end()
        self._ends_by_itself = bool(failure) or self._cluster.process_id > 0
        self._tell(**({"lost": f"{self._cluster.task} is gone: {failure}."} if failure else {"bye": True}))
        if self._cluster.process_id == 0:
            # JAX aborts processes whose process 0 has ended; after an error they have time to end by themselves.
            self._wait_for_others(_GRACE_S + 1 if failure else timeout_s, quietly=bool(failure))
        return None

    def _wait_for_others(self, timeout_s: float, *, quietly: bool) -> None:
        started = time.monotonic()
        for limit_s, message in (
            (min(_TELL_AFTER_S, timeout_s), "has ended and waits for"),
            (timeout_s, "does not wait for"),
        ):
            for watcher in self._watchers.values():
                watcher.join(max(0.0, limit_s - (time.monotonic() - started)))
            late = [self._cluster.training[i] for i, watcher in self._watchers.items() if watcher.is_alive()]
            if late and not quietly:
                names = ", ".join(task.with_address for task in late)
                _log.warning("%s %s %s, after %g s.", self._cluster.task, message, names, limit_s)

    def _follow(self, process_id: int, connection: JsonConnection) -> None:
        """Receive messages of a process until its connection ends."""
        said_goodbye = False
        task = self._cluster.training[process_id]
        while message := self._receive(connection):
            said_goodbye = said_goodbye or "bye" in message
            self._watch.heard(process_id, message)
            if "lost" in message:
                said_goodbye = True
                self._lose(str(message["lost"]))
        if not said_goodbye:
            self._lose(f"{task} is gone: it has ended without a word: look at its log, or for what has stopped it.")

    def _receive(self, connection: JsonConnection) -> dict[str, object]:
        try:
            return connection.receive()
        except (OSError, ValueError):
            return {}  # A broken connection: the other process has ended, or the way there is cut.

    def _lose(self, why: str) -> None:
        """Tell the others, and end this process unless it does so by itself."""
        with self._losing:
            if self._ends_by_itself or LEAVING.is_set() or self._lost.is_set():
                return
            self._tell(lost=why)
            _log.error("%s: %s All processes end now.", self._cluster.task, why)
            self._lost.set()

    def _end_when_lost(self) -> None:
        self._lost.wait()
        time.sleep(_GRACE_S)
        self._end()

    def _tell(self, **message: object) -> None:
        for connection in self._connections.values():
            try:
                connection.send(**message)
            except OSError:  # It is gone already, which its watcher notices.
                continue

    def _end(self) -> None:
        """End at once, since JAX would wait for the others or abort; process 0 as the last one, or JAX aborts them."""
        if self._ends_by_itself:
            return
        if self._cluster.process_id == 0:
            self._wait_for_others(_GRACE_S + 1, quietly=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(LOST_EXIT_CODE)
