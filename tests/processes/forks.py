"""Starts `tfdist-jax` as forks of a process that has imported everything: each start saves seconds of imports.

A fork is a process like any other: it has its own session, environment and folder, and ends as Python ends. What libraries
read from the environment while they are imported is the same for all forks of a server.
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, final

# What programs import, in the order in which they would.
NATIVE = ("tfdist_jax.cli", "flax.nnx", "optax")
FACADE = (*NATIVE, "tfdist_jax.compat.tensorflow", "keras._tf_keras.keras")


def is_read_at_import(variable: str) -> bool:
    """Return whether libraries read an environment variable while they are imported: it would change nothing in a fork."""
    return variable.startswith(("JAX_", "KERAS_", "PYTHON", "XLA_"))


# Threads of a process are not in its forks.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@final
class Fork:
    """A started process; its methods are those of `subprocess.Popen`."""

    def __init__(self, args: Sequence[str], status: socket.socket) -> None:
        self._args = list(args)
        self._status = status
        self._returncode: int | None = None
        self.pid = self._receive()

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code.

        Raises:
            subprocess.TimeoutExpired: If the process runs for longer than `timeout` seconds.
        """
        if self._returncode is None:
            self._status.settimeout(timeout)
            try:
                self._returncode = self._receive()
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self._args, timeout or 0) from None
            self._status.close()
        return self._returncode

    def _receive(self) -> int:
        number = self._status.recv(16)
        if not number:
            raise RuntimeError("The process that starts the others has ended.")
        return int(number)


@final
class ForkServer:
    """A process that has imported some modules, and forks."""

    IS_AVAILABLE = hasattr(os, "pidfd_open")

    def __init__(self, modules: Sequence[str], env: Mapping[str, str]) -> None:
        """Start the server with the modules that it imports, and the environment that these see meanwhile."""
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *modules],
                env={**env, **_ONE_THREAD},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(self, args: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: int, stderr: int) -> Fork:
        """Start `tfdist-jax` with arguments; `stdout` and `stderr` are file descriptors."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps(_Request(list(args), str(cwd), dict(env)))
        with theirs:
            socket.send_fds(self._requests, [request.encode()], [theirs.fileno(), stdout, stderr])
        return Fork(args, ours)

    def close(self) -> None:
        """End the server; what it has started goes on."""
        self._requests.close()
        self._process.wait()


@final
class Spawner:
    """Starts each program afresh; for programs that need it, and for systems without `ForkServer`."""

    def start(
        self, args: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: int, stderr: int
    ) -> subprocess.Popen[bytes]:
        """Start `tfdist-jax` with arguments; `stdout` and `stderr` are file descriptors."""
        return subprocess.Popen(
            [sys.executable, "-m", "tfdist_jax", *args],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )


class _Request(NamedTuple):
    args: list[str]
    cwd: str
    env: dict[str, str]


def _serve(requests: socket.socket) -> tuple[_Request, list[int]] | None:
    """Fork for each request. Return it in the fork, with descriptors for its output; return None when nobody can ask any more."""
    statuses: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not requests:
                    selector.unregister(key.fd)
                    _report_end(key.fd, key.data, statuses.pop(key.fd))
                    continue
                message, descriptors, _, _ = socket.recv_fds(requests, 1 << 20, 3)
                if not message:
                    return None
                pid = os.fork()
                if not pid:
                    os.close(descriptors[0])
                    for pidfd, status in statuses.items():  # Who asked for another process waits for the end of these.
                        os.close(pidfd)
                        status.close()
                    return _Request(*json.loads(message)), descriptors[1:]
                status, *outputs = descriptors
                for output in outputs:
                    os.close(output)
                pidfd = os.pidfd_open(pid)
                statuses[pidfd] = socket.socket(fileno=status)
                statuses[pidfd].send(b"%d" % pid)
                selector.register(pidfd, selectors.EVENT_READ, pid)


def _report_end(pidfd: int, pid: int, status: socket.socket) -> None:
    os.close(pidfd)
    _, ended = os.waitpid(pid, 0)
    with status, contextlib.suppress(BrokenPipeError):
        status.send(b"%d" % os.waitstatus_to_exitcode(ended))


def _become(request: _Request, outputs: Sequence[int], imported: Mapping[str, str]) -> None:
    """Give a fork what a process of its own would have from its start."""
    os.setsid()
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update({**imported, **request.env})
    for number, output in zip((1, 2), outputs, strict=True):
        os.dup2(output, number)
        os.close(output)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["tfdist-jax", *request.args]
    sys.path[0] = request.cwd
    sys.modules["numpy"].random.seed()


def main() -> int:
    """Serve; in a fork, be `tfdist-jax`."""
    _, requests_fd, *modules = sys.argv
    before = dict(os.environ)
    for module in modules:
        importlib.import_module(module)
    imported = {name: value for name, value in os.environ.items() if before.get(name) != value}
    gc.freeze()
    with socket.socket(fileno=int(requests_fd)) as requests:
        request = _serve(requests)
    if request is None:
        return 0
    _become(*request, imported)
    from tfdist_jax.cli import main as run_command

    return run_command()


if __name__ == "__main__":
    sys.exit(main())
