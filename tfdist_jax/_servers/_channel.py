"""Messages between two processes: arrays go as they lie in memory.

The connections are `multiprocessing.connection`'s. The memory of large arrays goes beside the connection, which would copy it three times:
over its socket or, between processes of a machine, in memory that they share.
"""

import io
import os
import pickle
import socket
import struct
from multiprocessing.connection import Connection
from typing import Any, final

import numpy as np

from tfdist_jax._servers._shared_memory import CAN_SHARE, Incoming, Outgoing, allocate_array

_SMALL = 4096  # Bytes of an array that are not worth a message of their own.
# How many arrays lie beside it, whether in shared memory, whether memory is offered, and whether the other end's has been accepted.
_HEADER = "<Q???"

Packed = tuple[bytes, list[memoryview]]


@final
class Channel:
    """A connection, and its socket, over which the memory of large arrays goes.

    Attributes:
        connection: The connection.
    """

    def __init__(self, connected: socket.socket, limit_s: float) -> None:
        """Send at once what there is to send; fail when nothing comes, or goes, for so long."""
        connected.settimeout(None)
        is_local = connected.family not in (socket.AF_INET, socket.AF_INET6)
        self._outgoing, self._incoming = Outgoing() if is_local and CAN_SHARE else None, Incoming()
        if not is_local:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _notice_lost_machines(connected, limit_s)
        self._socket, self.connection = connected, Connection(os.dup(connected.fileno()))
        self._limit(socket.SO_RCVTIMEO, limit_s)
        self._limit(socket.SO_SNDTIMEO, limit_s)

    def _limit(self, option: int, seconds: float) -> None:
        whole, rest = divmod(seconds, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(whole), int(rest * 1e6)))

    def wait_for_ever(self) -> None:
        """Wait without a limit for what comes, as long as the other end's machine is there."""
        self._limit(socket.SO_RCVTIMEO, 0)

    def close(self) -> None:
        """End the connection, also for who keeps this object, as errors do."""
        self._outgoing, self._incoming = None, Incoming()
        self.connection.close()
        self._socket.close()

    def send(self, packed: Packed) -> None:
        """Send what `pack` returns."""
        text, large = packed
        is_written = bool(self._outgoing and self._outgoing.write(large))
        file = self._outgoing.offer(large) if self._outgoing and not is_written else None
        try:
            header = struct.pack(_HEADER, len(large), is_written, file is not None, self._incoming.is_shared)
            sizes = struct.pack(f"<{len(large)}Q", *(raw.nbytes for raw in large))
            self.connection.send_bytes(header + sizes + text)
            if not is_written:
                for raw in large:
                    self._socket.sendall(raw)
            if file is not None:
                self._send_file(file)
        finally:
            if file is not None:
                os.close(file)

    def receive(self) -> Packed:
        """Return what `pickle.loads` takes: a text, and memory."""
        received = self.connection.recv_bytes()
        count, is_written, is_offered, is_accepted = struct.unpack_from(_HEADER, received)
        start = struct.calcsize(_HEADER)
        sizes = struct.unpack_from(f"<{count}Q", received, start)
        if self._outgoing:
            self._outgoing.hear(is_accepted)
        large = self._incoming.read(sizes) if is_written else list(map(self._receive_array, sizes))
        if is_offered:
            self._incoming.accept(self._receive_file())
        return received[start + 8 * count :], large

    def _send_file(self, file: int) -> None:
        try:
            socket.send_fds(self._socket, [b"f"], [file])
        except OSError:  # The system takes no more of them, or nothing at all.
            self._socket.sendall(b"f")

    def _receive_file(self) -> int | None:
        """Return a file descriptor that has been sent; None if this process cannot have it."""
        told, files, _, _ = socket.recv_fds(self._socket, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not told:
            raise EOFError
        return files[0] if files else None

    def _receive_array(self, size: int) -> memoryview:
        array, received = allocate_array(size).data, 0
        while received < size:
            count = self._socket.recv_into(array[received:], 0, socket.MSG_WAITALL)
            if not count:
                raise EOFError
            received += count
        return array


def _notice_lost_machines(connected: socket.socket, limit_s: float) -> None:
    """Fail where the other end's machine, or a firewall between them, forgets the connection and says nothing."""
    whole_s = max(1, round(limit_s))
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("KEEPIDLE", whole_s), ("KEEPINTVL", max(1, whole_s // 3)), ("KEEPCNT", 3)):
        if hasattr(socket, f"TCP_{name}"):  # Not on all systems.
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}"), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 2000 * whole_s)


def pack(message: Any) -> Packed:
    """Return what pickle makes of a message, and the memory of large arrays in it as it is."""
    text, large = io.BytesIO(), list[memoryview]()

    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _SMALL:
            return True
        large.append(raw)
        return False

    _Pickler(text, protocol=5, buffer_callback=keep).dump(message)
    return text.getvalue(), large


@final
class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        # Of types that NumPy does not know, such as bfloat16, it gives no memory away.
        if type(obj) is np.ndarray and obj.dtype.kind == "V" and obj.dtype.fields is None and obj.nbytes >= _SMALL:
            return _of_bytes, (np.ascontiguousarray(obj).view(np.uint8), obj.dtype)
        return NotImplemented


def _of_bytes(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return array.view(dtype)
