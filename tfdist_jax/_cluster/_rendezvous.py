"""Rendezvous: the processes meet at the first one before JAX connects them.

JAX waits in silence for a process that never comes and then aborts. Here the first process listens on its address until
all others have said who they are, tells everybody meanwhile who is missing, and refuses those that cannot work with it.
The connections stay open, see `_peer_monitor`. Where there is a secret, both ends show that they know it, see `_secret`.
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

from tfdist_jax._cluster._addresses import connection_to, host_and_port, resolve
from tfdist_jax._cluster._json_connection import JsonConnection
from tfdist_jax._cluster._secret import SECRET, has_secret, is_proof, make_nonce, prove
from tfdist_jax._cluster._spec import Cluster, Task
from tfdist_jax._cluster._tls import TLS

_log = logging.getLogger("tfdist_jax")

_TELL_EVERY_S = 10.0
_GREETING = "tfdist-jax rendezvous"
_HOST, _OTHER = "process 0", "another process"  # As whom they show that they know the secret.

# How many may be connected that have not said who they are, and how long. A scan must not keep the others away.
_STRANGERS = 500
_SPEAK_WITHIN_S = 10.0


class MissingTasksError(TimeoutError):
    """Processes of the cluster have not arrived in time.

    Example:
        >>> import sys, tfdist_jax as td
        >>> try:
        ...     cluster = td.initialize()
        ... except td.MissingTasksError as error:
        ...     sys.exit(f"{error}")  # Such as "1 of 2 processes did not arrive: worker 1 (host-b:2222)".
    """


def versions() -> dict[str, str]:
    """Return what must be the same in all processes."""
    return {name: _version(name) for name in ("tfdist-jax", "jax", "jaxlib")}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def rendezvous(cluster: Cluster, *, timeout_s: float, bind_address: str, tls: TLS | None) -> dict[int, JsonConnection]:
    """Wait until all processes that train together have arrived, and return the connections between them.

    Args:
        cluster: The processes.
        timeout_s: How long to wait for them.
        bind_address: Where process 0 listens.
        tls: Certificates, if the connections are to be encrypted.

    Returns:
        The connections by process number: to all others in process 0, to process 0 elsewhere.

    Raises:
        MissingTasksError: If some have not arrived in time; it names them.
        RuntimeError: If this process does not fit to process 0: another number of processes, other versions, the same
            index as another process.
        OSError: If process 0 cannot listen on its address.
    """
    deadline = time.monotonic() + timeout_s
    threading.Thread(target=_tell_unknown_hosts, args=(cluster,), daemon=True).start()
    if cluster.process_id == 0:
        return _Host(cluster, deadline, tls).wait(bind_address)
    return {0: _join(cluster, deadline, tls)}


def _tell_unknown_hosts(cluster: Cluster) -> None:
    """Say at once which hosts are not known here; they may be soon, where a scheduler makes their names.

    Process 0 looks at all, the others at process 0 only: name servers are not to be asked for each pair.
    """
    for task in cluster.training[1:] if cluster.process_id == 0 else cluster.training[:1]:
        try:
            if task.address:
                resolve(host_and_port(task.address)[0])
        except OSError as error:
            _log.warning("%s waits for %s. %s", cluster.task, task.with_address, error.strerror)


def _hello(cluster: Cluster) -> dict[str, Any]:
    return {
        "greeting": _GREETING,
        "process_id": cluster.process_id,
        "num_processes": cluster.num_processes,
        "versions": versions(),
        "who": f"process {os.getpid()} on {socket.gethostname()}",
        "nonce": make_nonce(),
    }


def _names(tasks: list[Task]) -> str:
    return ", ".join(task.with_address for task in tasks)


def _timeout_message(cluster: Cluster, absent: list[Task]) -> str:
    return (
        f"{len(absent)} of {cluster.num_processes} processes did not arrive: {_names(absent)}. Look whether they have been "
        f"started and can reach {cluster.coordinator}; `tfdist-jax doctor` on their machines tells more."
    )


@final
class _Host:
    """Process 0: serves the others, each on a thread of its own."""

    def __init__(self, cluster: Cluster, deadline: float, tls: TLS | None) -> None:
        self._cluster = cluster
        self._deadline = deadline
        self._tls = tls
        self._changed = threading.Condition()
        self._present: dict[int, tuple[str, JsonConnection]] = {}  # Who is at the other end, by process number.
        self._strangers: dict[socket.socket, None] = {}  # The oldest first.
        self._all_present = threading.Event()
        self._is_over = False

    def wait(self, address: str) -> dict[int, JsonConnection]:
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
            connections = {process_id: connection for process_id, (_, connection) in sorted(self._present.items())}
        for connection in connections.values():
            connection.set_timeout(None)
            connection.send(complete=True)
        return connections

    def _wait_for_all(self) -> None:
        told = time.monotonic()
        with self._changed:
            while not self._changed.wait_for(lambda: not self._absent(), timeout=0.2):
                if time.monotonic() > self._deadline:
                    message = _timeout_message(self._cluster, self._absent())
                    self._is_over = True
                    self._changed.wait_for(lambda: not self._present, timeout=1)  # They are told, and leave.
                    raise MissingTasksError(message)
                if time.monotonic() - told > _TELL_EVERY_S:
                    told = time.monotonic()
                    _log.warning("%s waits; not here yet: %s.", self._cluster.task, _names(self._absent()))
            self._all_present.set()

    def _absent(self) -> list[Task]:
        return [task for i, task in enumerate(self._cluster.training) if i and i not in self._present]

    def _accept(self, listener: socket.socket) -> None:
        listener.settimeout(0.1)
        while not self._is_over:
            try:
                sock, peer = listener.accept()
            except TimeoutError:
                continue
            except OSError as error:  # It has broken already, or this process may not have more of them.
                _log.debug("A connection was not accepted: %r", error)
                time.sleep(0.1)
                continue
            self._let_in(sock)
            threading.Thread(target=self._serve, args=(sock, str(peer[0])), daemon=True).start()

    def _let_in(self, sock: socket.socket) -> None:
        with self._changed:
            self._strangers[sock] = None
            oldest = next(iter(self._strangers)) if len(self._strangers) > _STRANGERS else None
        if oldest is not None:
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # Its thread closes it.

    def _serve(self, sock: socket.socket, peer: str) -> None:
        sock.settimeout(_SPEAK_WITHIN_S)
        try:
            connection = JsonConnection(self._tls.wrap_server(sock) if self._tls else sock)
            hello = connection.receive()
            refusal = self._refusal(hello, connection)
            self._forget_stranger(sock)
            if refusal:
                connection.send(refusal=refusal)
                connection.close()
            else:
                self._report_missing(hello["process_id"], connection)
        except (OSError, ValueError, KeyError, TypeError) as error:
            # Port scans and the like must not end the program; a process that has left will be missed.
            _log.debug("A connection from %s has ended: %r", peer, error)
            self._forget_stranger(sock)
            sock.close()

    def _forget_stranger(self, sock: socket.socket) -> None:
        with self._changed:
            self._strangers.pop(sock, None)

    def _refusal(self, hello: dict[str, Any], connection: JsonConnection) -> str:
        if hello["greeting"] != _GREETING:
            raise ValueError("it is no process of this program")
        mine, process_id = _hello(self._cluster), hello["process_id"]
        if has_secret():
            connection.send(nonce=mine["nonce"], proof=prove(_HOST, mine["nonce"], str(hello["nonce"])))
            if not is_proof(connection.receive(), _OTHER, str(hello["nonce"]), mine["nonce"]):
                return f"it does not know the secret that {self._cluster.task} has: {SECRET} must be the same for all processes"
        for field in ("num_processes", "versions"):
            if hello[field] != mine[field]:
                return f"it has {field} {hello[field]}, but {self._cluster.task} has {mine[field]}"
        if type(process_id) is not int or not 0 < process_id < self._cluster.num_processes:
            return f"its process number {process_id} is that of {self._cluster.task}, or of nobody"
        with self._changed:
            who = str(hello["who"])
            other, _ = self._present.get(process_id, (who, connection))
            if other != who:
                return f"another process with this index is here already: {other}"
            self._present[process_id] = other, connection
            self._changed.notify_all()
        return ""

    def _report_missing(self, process_id: int, connection: JsonConnection) -> None:
        """Report to a process which others are missing, until none is."""
        try:
            while not self._all_present.wait(0.2):
                with self._changed:
                    absent = [task.with_address for task in self._absent()]
                connection.send(**{"too_late" if self._is_over else "waiting": absent})
                if not connection.is_quiet:
                    raise ConnectionError("it has left")
        except OSError:
            self._forget(process_id, connection)
            raise

    def _forget(self, process_id: int, connection: JsonConnection) -> None:
        with self._changed:
            # It may have come back, on another connection.
            if self._present[process_id][1] is connection:
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
        listener = socket.create_server((host, port), family=family, backlog=_STRANGERS + cluster.num_processes)
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: "another process uses this port. Is one with the same index running, or one of an earlier run?",
            errno.EADDRNOTAVAIL: "it is no address of this machine. Is the task's index the right one for it?",
        }
        reason = reasons.get(error.errno or 0, str(error))
        raise OSError(error.errno, f"{cluster.task} cannot listen on {address}: {reason}") from error
    with listener:
        yield listener


def _join(cluster: Cluster, deadline: float, tls: TLS | None) -> JsonConnection:
    """Connect to process 0 and wait until all have arrived, however often the connection breaks."""
    told, reason, answer = time.monotonic(), "no answer", ""
    first = cluster.training[0]
    while (rest := deadline - time.monotonic()) > 0:
        try:
            return _wait_for_others(_connect(cluster, min(rest, 10), tls), cluster, deadline)
        except ssl.SSLError as error:
            raise RuntimeError(f"{cluster.task} and {first.with_address} do not trust each other: {error}") from error
        except MissingTasksError:
            raise
        except ValueError as error:
            reason = str(error)
            answer = answer or reason  # The first one counts: later JAX may be what answers there.
        except OSError as error:
            reason = str(error)
        if time.monotonic() - told > _TELL_EVERY_S:
            told = time.monotonic()
            _log.warning("%s waits for %s: %s.", cluster.task, first.with_address, reason)
        time.sleep(0.2)
    raise MissingTasksError(f"{_timeout_message(cluster, [first])} ({answer or reason})")


def _connect(cluster: Cluster, timeout_s: float, tls: TLS | None) -> JsonConnection:
    sock = connection_to(cluster.coordinator, timeout_s)
    return JsonConnection(tls.wrap_client(sock, host_and_port(cluster.coordinator)[0]) if tls else sock)


def _wait_for_others(connection: JsonConnection, cluster: Cluster, deadline: float) -> JsonConnection:
    try:
        _take_part(connection, cluster, deadline)
    except BaseException:
        connection.close()
        raise
    connection.set_timeout(None)
    return connection


def _take_part(connection: JsonConnection, cluster: Cluster, deadline: float) -> None:
    told = time.monotonic()
    connection.set_timeout(10)
    hello = _hello(cluster)
    connection.send(**hello)
    if has_secret():
        _show_secret(connection, hello["nonce"])
    while message := connection.receive():
        if "complete" in message:
            return
        if "nonce" in message:
            raise RuntimeError(
                f"{cluster.task} cannot take part: process 0 asks for the secret in {SECRET}. Set it here, too."
            )
        if "refusal" in message:
            raise RuntimeError(f"{cluster.task} cannot take part: {message['refusal']}.")
        absent = ", ".join(message.get("too_late", message.get("waiting", ())))
        # Process 0 says when it is too late, and must not miss this process meanwhile.
        if "too_late" in message or time.monotonic() > deadline + 5:
            raise MissingTasksError(f"{cluster.task} waited for others, which did not arrive: {absent}.")
        if time.monotonic() - told > _TELL_EVERY_S:
            told = time.monotonic()
            _log.warning("%s waits; not here yet: %s.", cluster.task, absent)
    raise ConnectionError("process 0 has hung up")


def _show_secret(connection: JsonConnection, nonce: str) -> None:
    """Look whether process 0 knows the secret, and show that this process does."""
    message = connection.receive()
    if not message:
        raise ConnectionError("process 0 has hung up")
    other = str(message.get("nonce"))
    if not is_proof(message, _HOST, other, nonce):
        raise ValueError(f"who listens there does not know the secret in {SECRET}")
    connection.send(proof=prove(_OTHER, nonce, other))
