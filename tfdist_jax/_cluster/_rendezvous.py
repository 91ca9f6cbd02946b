"""Who has arrived: the processes meet at the first one before JAX connects them.

JAX waits in silence for a process that never comes and then aborts. Here the first process listens on its address until
all others have said who they are, tells everybody meanwhile who is missing, and refuses those that cannot work with it.
The connections stay, see `_company`.
"""

import contextlib
import errno
import importlib.metadata
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any, final

from tfdist_jax._cluster._addresses import connection_to, host_and_port
from tfdist_jax._cluster._line import Line
from tfdist_jax._cluster._spec import Cluster, Task
from tfdist_jax._cluster._tls import TLS

_log = logging.getLogger("tfdist_jax")

_TELL_EVERY_S = 10.0
_GREETING = "tfdist-jax roll call"


class MissingTasksError(TimeoutError):
    """Processes of the cluster have not arrived in time."""


def versions() -> dict[str, str]:
    """Return what must be the same in all processes."""
    return {name: _version(name) for name in ("tfdist-jax", "jax", "jaxlib")}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def call_the_roll(cluster: Cluster, *, timeout_s: float, bind_address: str, tls: TLS | None) -> dict[int, Line]:
    """Return when all processes that train together have arrived.

    Args:
        cluster: The processes.
        timeout_s: How long to wait for them.
        bind_address: Where process 0 listens.
        tls: Certificates, if the connections are to be encrypted.

    Returns:
        The lines to the others by process number: to all of them in process 0, to process 0 elsewhere.

    Raises:
        MissingTasksError: If some have not arrived in time; it names them.
        RuntimeError: If this process does not fit to process 0: another number of processes, other versions, the same
            index as another process.
        OSError: If process 0 cannot listen on its address.
    """
    deadline = time.monotonic() + timeout_s
    if cluster.process_id == 0:
        return _Host(cluster, deadline, tls).wait(bind_address)
    return {0: _arrive(cluster, deadline, tls)}


def _hello(cluster: Cluster) -> dict[str, Any]:
    return {
        "greeting": _GREETING,
        "process_id": cluster.process_id,
        "num_processes": cluster.num_processes,
        "versions": versions(),
        "who": f"process {os.getpid()} on {socket.gethostname()}",
    }


def _names(tasks: list[Task]) -> str:
    return ", ".join(task.with_address for task in tasks)


def _too_late(cluster: Cluster, absent: list[Task]) -> str:
    return (
        f"{len(absent)} of {cluster.num_processes} processes did not arrive: {_names(absent)}. Look whether they have been "
        f"started and can reach {cluster.coordinator}; `tfdist-jax doctor` on their machines tells more."
    )


@final
class _Host:
    """Process 0: hears the others, each on a thread of its own."""

    def __init__(self, cluster: Cluster, deadline: float, tls: TLS | None) -> None:
        self._cluster = cluster
        self._deadline = deadline
        self._tls = tls
        self._changed = threading.Condition()
        self._present: dict[int, tuple[str, Line]] = {}  # Who is at the other end, by process number.
        self._all_are_here = threading.Event()
        self._is_over = False

    def wait(self, address: str) -> dict[int, Line]:
        """Listen on `address` until all have arrived."""
        with listening(address, self._cluster) as listener:
            accepting = threading.Thread(target=self._accept, args=(listener,), daemon=True)
            accepting.start()
            try:
                self._wait_for_all()
            finally:
                self._is_over = True
                accepting.join()
        # The others go on when nobody listens here any more: then who answers on this port is JAX.
        with self._changed:
            lines = {process_id: line for process_id, (_, line) in sorted(self._present.items())}
        for line in lines.values():
            line.has_time(None)
            line.send(complete=True)
        return lines

    def _wait_for_all(self) -> None:
        told = time.monotonic()
        with self._changed:
            while not self._changed.wait_for(lambda: not self._absent(), timeout=0.2):
                if time.monotonic() > self._deadline:
                    message = _too_late(self._cluster, self._absent())
                    self._is_over = True
                    self._changed.wait_for(lambda: not self._present, timeout=1)  # They are told, and leave.
                    raise MissingTasksError(message)
                if time.monotonic() - told > _TELL_EVERY_S:
                    told = time.monotonic()
                    _log.warning("%s waits; not here yet: %s.", self._cluster.task, _names(self._absent()))
            self._all_are_here.set()

    def _absent(self) -> list[Task]:
        return [task for i, task in enumerate(self._cluster.training) if i and i not in self._present]

    def _accept(self, listener: socket.socket) -> None:
        listener.settimeout(0.1)
        while not self._is_over:
            with contextlib.suppress(TimeoutError):
                connection, peer = listener.accept()
                threading.Thread(target=self._hear, args=(connection, str(peer[0])), daemon=True).start()

    def _hear(self, connection: socket.socket, peer: str) -> None:
        connection.settimeout(10)
        try:
            line = Line(self._tls.wrap_server(connection) if self._tls else connection)
            hello = line.receive()
            if refusal := self._refusal(hello, line):
                line.send(refusal=refusal)
                line.close()
            else:
                self._keep_company(hello["process_id"], line)
        except (OSError, ValueError, KeyError, TypeError) as error:
            # Port scans and the like must not end the program; a process that has left will be missed.
            _log.debug("A connection from %s has ended: %r", peer, error)
            connection.close()

    def _refusal(self, hello: dict[str, Any], line: Line) -> str:
        if hello["greeting"] != _GREETING:
            raise ValueError("it is no process of this program")
        mine, process_id = _hello(self._cluster), hello["process_id"]
        for field in ("num_processes", "versions"):
            if hello[field] != mine[field]:
                return f"it has {field} {hello[field]}, but {self._cluster.task} has {mine[field]}"
        if not 0 < process_id < self._cluster.num_processes:
            return f"its process number {process_id} is that of {self._cluster.task}, or of nobody"
        with self._changed:
            other, _ = self._present.get(process_id, (hello["who"], line))
            if other != hello["who"]:
                return f"another process with this index is here already: {other}"
            self._present[process_id] = other, line
            self._changed.notify_all()
        return ""

    def _keep_company(self, process_id: int, line: Line) -> None:
        """Tell a process who is missing until nobody is."""
        try:
            while not self._all_are_here.wait(0.2):
                with self._changed:
                    absent = [task.with_address for task in self._absent()]
                line.send(**{"too_late" if self._is_over else "waiting": absent})
                if not line.is_quiet:
                    raise ConnectionError("it has left")
        except OSError:
            self._forget(process_id, line)
            raise

    def _forget(self, process_id: int, line: Line) -> None:
        with self._changed:
            # It may have come back, on another line.
            if self._present[process_id][1] is line:
                del self._present[process_id]
                self._changed.notify_all()


@contextlib.contextmanager
def listening(address: str, cluster: Cluster) -> Iterator[socket.socket]:
    """Listen on an address of this process.

    Raises:
        OSError: If that is not possible; it says what may be wrong.
    """
    host, port = host_and_port(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=cluster.num_processes)
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: "another process uses this port. Is one with the same index running, or one of an earlier run?",
            errno.EADDRNOTAVAIL: "it is no address of this machine. Is the task's index the right one for it?",
        }
        reason = reasons.get(error.errno or 0, str(error))
        raise OSError(error.errno, f"{cluster.task} cannot listen on {address}: {reason}") from error
    with listener:
        yield listener


def _arrive(cluster: Cluster, deadline: float, tls: TLS | None) -> Line:
    """Go to process 0 and wait there until all have come, however often the connection breaks."""
    told, reason = time.monotonic(), "no answer"
    first = cluster.training[0]
    while (rest := deadline - time.monotonic()) > 0:
        try:
            return _wait_with_others(_connected(cluster, min(rest, 10), tls), cluster, deadline)
        except ssl.SSLError as error:
            raise RuntimeError(f"{cluster.task} and {first.with_address} do not trust each other: {error}") from error
        except MissingTasksError:
            raise
        except (OSError, ValueError) as error:
            reason = str(error)
        if time.monotonic() - told > _TELL_EVERY_S:
            told = time.monotonic()
            _log.warning("%s waits for %s: %s.", cluster.task, first.with_address, reason)
        time.sleep(0.2)
    raise MissingTasksError(f"{_too_late(cluster, [first])} ({reason})")


def _connected(cluster: Cluster, timeout_s: float, tls: TLS | None) -> Line:
    connection = connection_to(cluster.coordinator, timeout_s)
    return Line(tls.wrap_client(connection, host_and_port(cluster.coordinator)[0]) if tls else connection)


def _wait_with_others(line: Line, cluster: Cluster, deadline: float) -> Line:
    told = time.monotonic()
    line.has_time(10)
    line.send(**_hello(cluster))
    while message := line.receive():
        if "complete" in message:
            line.has_time(None)
            return line
        if "refusal" in message:
            raise RuntimeError(f"{cluster.task} cannot take part: {message['refusal']}.")
        absent = ", ".join(message.get("too_late", message.get("waiting", ())))
        # Process 0 says when it is too late, and must not miss this process meanwhile.
        if "too_late" in message or time.monotonic() > deadline + 5:
            raise MissingTasksError(f"{cluster.task} waited for others, which did not arrive: {absent}.")
        if time.monotonic() - told > _TELL_EVERY_S:
            told = time.monotonic()
            _log.warning("%s waits; not here yet: %s.", cluster.task, absent)
    line.close()
    raise ConnectionError("process 0 has hung up")
