"""A machine's node of Ray, as a process that ends with the one that has started it."""

import contextlib
import ctypes
import functools
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import final

from tfdist_jax._cluster._addresses import host_and_port, resolve

_PR_SET_PDEATHSIG = 1
_LAST_S = 2
_TOLD_CHARACTERS = 2000


@final
class Node:
    """A node of a cluster of its own.

    It keeps its files in a folder of its own: in Ray's usual one, programs that look for a cluster would find this one.

    Attributes:
        close: Ends it, and removes its folder; so does the end of this process.
    """

    def __init__(self, host: str, head: str, *, is_head: bool) -> None:
        """Start it.

        Args:
            host: This machine's address.
            head: The address of the cluster's head, with its port.
            is_head: Whether it is the head itself.
        """
        folder = tempfile.mkdtemp(prefix="ray_")
        own = [f"--address={in_numbers(head)}"]
        if is_head:
            own = ["--head", f"--port={host_and_port(head)[1]}", f"--temp-dir={folder}", "--no-monitor"]
            # Of these none is needed, but their ports might be others' already.
            own += ["--include-dashboard=false", "--dashboard-port=0"]
            if importlib.util.find_spec("grpc") is not None:  # Else Ray serves no clients, and takes no port for them.
                own += [f"--ray-client-server-port={_free_port()}"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *own, f"--node-ip-address={host}"]
        # By default workers have the ports 10002 to 19999, which must not be the head's.
        command += ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]
        command += ["--num-cpus=0", "--num-gpus=0", "--include-log-monitor=false", "--disable-usage-stats", "--block"]
        self._log = Path(folder, "start.log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_choose_end(),
            )
        self.close = weakref.finalize(self, _close, self._process, folder)

    def error(self) -> Exception | None:
        """Return why it has ended; None while it has not."""
        if self._process.poll() is None:
            return None
        told = self._log.read_text(errors="replace").strip()[-_TOLD_CHARACTERS:]
        self.close()
        return RuntimeError(f"Ray has ended with the code {self._process.returncode}: {told}")


def _close(process: "subprocess.Popen[bytes]", folder: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_LAST_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def in_numbers(address: str) -> str:
    """Return an address whose host is a number: Ray takes no others."""
    host, port = host_and_port(address)
    return f"{resolve(host)}:{port}"


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


def _choose_end() -> Callable[[], object] | None:
    """Return what lets a process end with this one, even if this one is killed: Linux looks at the thread that has started it."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    return functools.partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, signal.SIGTERM)
