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

from tfdist_jax._servers._shared_memory import ALIGNMENT, Borrower, Lender

_SMALL = 4096  # Bytes of an array that are not worth a message of their own.
# How many arrays lie beside it, the block in which they are (from 1; 0: none), whether that is a new one, and how many are given back.
_HEADER = "<4Q"

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
        self._lender, self._borrower = Lender() if is_local else None, Borrower()
        if not is_local:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _find_lost_machines(connected, limit_s)
        self._socket, self.connection = connected, Connection(os.dup(connected.fileno()))
        self._limit(limit_s)

    def _limit(self, seconds: float) -> None:
        whole, rest = divmod(seconds, 1)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(whole), int(rest * 1e6)))

    def wait_for_ever(self) -> None:
        """Wait without a limit for what comes and goes, as long as the other end's machine is there."""
        self._limit(0)

    def close(self) -> None:
        self.connection.close()
        self._socket.close()

    def send(self, packed: Packed) -> None:
        """Send what `pack` returns."""
        text, large = packed
        loan = self._lender.lend(large) if self._lender else None
        given_back = self._borrower.give_back()
        block, is_new = (loan.block + 1, loan.file is not None) if loan else (0, False)
        numbers = (len(large), block, is_new, len(given_back), *given_back, *(raw.nbytes for raw in large))
        try:
            self.connection.send_bytes(struct.pack(f"<{len(numbers)}Q", *numbers) + text)
            if loan is None:
                for raw in large:
                    self._socket.sendall(raw)
            elif loan.file is not None:
                socket.send_fds(self._socket, [b"f"], [loan.file])
        finally:
            if loan is not None and loan.file is not None:
                os.close(loan.file)

    def receive(self) -> Packed:
        """Return what `pickle.loads` takes: a text, and memory."""
        received = self.connection.recv_bytes()
        count, block, is_new, count_back = struct.unpack_from(_HEADER, received)
        place = struct.calcsize(_HEADER)
        numbers = struct.unpack_from(f"<{count_back + count}Q", received, place)
        text, sizes = received[place + 8 * len(numbers) :], numbers[count_back:]
        if self._lender:
            self._lender.take_back(numbers[:count_back])
        if block:
            return text, self._borrower.take(block - 1, self._receive_file() if is_new else None, sizes)
        return text, [self._receive_array(size) for size in sizes]

    def _receive_file(self) -> int:
        _, files, _, _ = socket.recv_fds(self._socket, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not files:
            raise ConnectionResetError(
                "There came no memory: the other end has gone, or this process has too many files open."
            )
        return files[0]

    def _receive_array(self, size: int) -> memoryview:
        memory = np.empty(size + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        array, received = memory[start : start + size].data, 0
        while received < size:
            count = self._socket.recv_into(array[received:], 0, socket.MSG_WAITALL)
            if not count:
                raise EOFError
            received += count
        return array


def _find_lost_machines(connected: socket.socket, limit_s: float) -> None:
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
