"""A server: arrays by numbers, and what is computed of them where they are."""

import collections
import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax._servers._plan import Message, load_part


class UnknownPartError(RuntimeError):
    """A process is to run what it has not got yet."""

    def __init__(self, names: Sequence[str]) -> None:
        """Name what it wants."""
        super().__init__(list(names))
        self.names = list(names)


Tag = tuple[int, int, int]
"""Which message it is: the number of the closure, of its program and of the message among those of the program."""


@final
@dataclasses.dataclass(frozen=True)
class Answer:
    """What a server says to a message.

    Attributes:
        values: Those that the message names.
        changes: How many messages before have changed something.
    """

    values: list[np.ndarray]
    changes: int


@final
class Server:
    """Holds arrays for others, who read and change them by messages: each is done as a whole, and each change once.

    A closure whose worker has gone runs again, and sends its messages again: those that have been answered are answered as they were.
    """

    def __init__(self) -> None:
        """Hold nothing."""
        self._arrays: dict[int, Any] = {}
        self._parts: dict[str, Callable[..., Sequence[Any]]] = {}
        self._answers: collections.OrderedDict[Tag, Answer] = collections.OrderedDict()
        self._changes = 0
        self._lock = threading.RLock()

    def load(self, parts: Mapping[str, bytes]) -> None:
        """Take parts of programs."""
        for name, exported in parts.items():
            if name not in self._parts:
                self._parts[name] = load_part(exported)

    def set(self, arrays: Mapping[int, np.ndarray]) -> None:
        """Hold arrays."""
        with self._lock:
            self._arrays.update(arrays)

    def get(self, cells: Sequence[int]) -> list[np.ndarray]:
        """Return what cells hold.

        Raises:
            KeyError: If it holds none of that number.
        """
        with self._lock:
            held = [self._arrays[cell] for cell in cells]
        return list(map(np.asarray, held))

    def drop(self, cells: Sequence[int]) -> None:
        """Hold some arrays no longer."""
        with self._lock:
            for cell in cells:
                self._arrays.pop(cell, None)

    def handle(
        self, message: Message, sent: Sequence[np.ndarray], tag: Tag | None = None, open_from: int = 0
    ) -> Answer:
        """Do what a message asks.

        Args:
            message: It.
            sent: The values that it names.
            tag: Which one it is; None if it is never sent again.
            open_from: The number of the first closure that has not ended: answers to earlier ones need not be known any more.

        Raises:
            UnknownPartError: If it has to be sent parts before.
        """
        if missing := message.parts.difference(self._parts):
            raise UnknownPartError(sorted(missing))
        with self._lock:
            while self._answers and next(iter(self._answers))[0] < open_from:
                self._answers.popitem(last=False)
            if tag in self._answers:
                return self._answers[tag]
            values = self._do(message, dict(zip(message.sent, sent, strict=True)))
            answer = Answer(list(map(np.asarray, values)), self._changes)
            if message.is_change:
                self._changes += 1
                if tag is not None:
                    self._answers[tag] = answer
        return answer

    def _do(self, message: Message, values: dict[int, Any]) -> list[Any]:
        held = self._arrays
        values.update({value: held[cell] for cell, value in message.reads})
        for call in message.calls:
            held.update({cell: values[value] for cell, value in call.assigned})
            outputs = self._parts[call.part](*(held[cell] for cell in call.cells), *(values[v] for v in call.operands))
            pairs = zip(call.results, outputs, strict=True)
            values.update({value: output for value, output in pairs if value is not None})
            held.update(zip(call.written, outputs[len(outputs) - len(call.written) :], strict=True))
        held.update({cell: values[value] for cell, value in message.assigned})
        return [values[value] for value in message.returned]
