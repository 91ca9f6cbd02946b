"""A server: arrays by numbers, and what is computed of them where they are."""

import collections
import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax._servers._plan import ExportedPart, Message, load_part


class StaleSenderError(RuntimeError):
    """Whoever asks is no longer wanted: another coordinator is there, or its closure has ended on another worker."""


Tag = tuple[int, int, int, str]
"""Which message it is: the number of the closure, of its program, and of the message among those of the program, which has a name, too."""


@final
@dataclasses.dataclass(frozen=True)
class Sender:
    """Who asks a server.

    Attributes:
        session: The coordinator's own name.
        tag: Which message it is; None if it is never sent again.
        oldest: The number of the first closure that may still run.
        turn: Which turn of its own it has, if it has one.
    """

    session: str
    tag: Tag | None = None
    oldest: int = 0
    turn: int | None = None


@final
@dataclasses.dataclass(frozen=True)
class Caller:
    """Which run of a program it is that asks.

    Attributes:
        session: The coordinator's own name.
        closure: The number of the closure; None if it never runs again.
        call: Which of the closure's programs it is.
        oldest: The number of the first closure that may still run.
        turn: Which turn of its own it has, if it has one.
    """

    session: str
    closure: int | None = None
    call: int = 0
    oldest: int = 0
    turn: int | None = None

    def sender(self, program: str, number: int) -> Sender:
        """Return who sends a message of the program."""
        tag = None if self.closure is None else (self.closure, self.call, number, program)
        return Sender(self.session, tag, self.oldest, self.turn)


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
        self._lock = threading.Condition(threading.RLock())
        self._parts: dict[str, Callable[..., Sequence[Any]]] = {}
        self.begin("")

    def begin(self, session: str) -> None:
        """Forget what was held for another coordinator, and listen to this one alone."""
        with self._lock:
            self._session = session
            self._arrays: dict[int, Any] = {}
            self._answers: collections.OrderedDict[Tag, Answer] = collections.OrderedDict()
            self._parts.clear()
            self._changes = self._oldest = 0
            # Whose turn it is, if it is one's alone, and the turns that were over before they came.
            self._turn: int | None = None
            self._over: set[int] = set()
            self._lock.notify_all()

    def load(self, session: str, parts: Mapping[str, ExportedPart]) -> None:
        """Take parts of programs of the coordinator with this name."""
        with self._lock:
            self._must_be_of(session)
            for name, exported in parts.items():
                self._parts[name] = load_part(exported)

    def set(self, session: str, arrays: Mapping[int, np.ndarray]) -> None:
        """Hold arrays."""
        with self._lock:
            self._must_be_of(session)
            self._arrays.update(arrays)

    def get(self, session: str, cells: Sequence[int]) -> list[np.ndarray]:
        """Return what cells hold.

        Raises:
            KeyError: If it holds none of that number.
        """
        with self._lock:
            self._must_be_of(session)
            return [np.asarray(self._arrays[cell]) for cell in cells]

    def drop(self, session: str, cells: Sequence[int]) -> None:
        """Hold some arrays no longer."""
        with self._lock:
            if session == self._session:
                for cell in cells:
                    self._arrays.pop(cell, None)

    def take_turn(self, session: str, turn: int) -> None:
        """Handle no messages of others until `end_turn`: the coordinator changes what it has read."""
        with self._lock:
            self._lock.wait_for(lambda: self._turn is None or turn in self._over or session != self._session)
            self._must_be_of(session)
            if turn not in self._over:
                self._turn = turn

    def end_turn(self, session: str, turn: int) -> None:
        """Go on for all; a turn that has not begun will not."""
        with self._lock:
            if session != self._session:
                return
            if self._turn == turn:
                self._turn = None
            else:
                self._over.add(turn)
            self._lock.notify_all()

    def _must_be_of(self, session: str) -> None:
        if session != self._session:
            raise StaleSenderError("Another coordinator uses the server.")

    def handle(self, message: Message, sent: Sequence[np.ndarray], sender: Sender) -> Answer:
        """Do what a message asks, whose parts have been loaded.

        Args:
            message: It.
            sent: The values that it names.
            sender: Who asks.

        Raises:
            StaleSenderError: If the sender should have ended.
        """
        with self._lock:
            self._lock.wait_for(lambda: self._turn in (None, sender.turn) or sender.session != self._session)
            self._must_be_of(sender.session)
            self._must_be_wanted(sender)
            if sender.tag in self._answers:
                return self._answers[sender.tag]
            values = self._do(message, dict(zip(message.sent, sent, strict=True)))
            answer = Answer(list(map(np.asarray, values)), self._changes)
            if message.is_change:
                self._changes += 1
                if sender.tag is not None:
                    self._answers[sender.tag] = answer
        return answer

    def _must_be_wanted(self, sender: Sender) -> None:
        """Refuse who is stale, and forget the answers to closures that have ended."""
        self._oldest = max(self._oldest, sender.oldest)
        while self._answers and next(iter(self._answers))[0] < self._oldest:
            self._answers.popitem(last=False)
        if sender.tag is not None and sender.tag[0] < self._oldest:
            raise StaleSenderError("The closure has ended on another worker.")

    def _do(self, message: Message, values: dict[int, Any]) -> list[Any]:
        # If something fails, nothing is changed.
        held = collections.ChainMap[int, Any]({}, self._arrays)
        # Of what is seen as NumPy's, no other array gets the memory.
        values.update({value: np.asarray(held[cell]) for cell, value in message.reads})
        for call in message.calls:
            held.update({cell: values[value] for cell, value in call.assigned})
            outputs = self._parts[call.part](*(held[cell] for cell in call.cells), *(values[v] for v in call.operands))
            pairs = zip(call.results, outputs, strict=True)
            values.update({value: output for value, output in pairs if value is not None})
            held.update(zip(call.written, outputs[len(outputs) - len(call.written) :], strict=True))
        held.update({cell: values[value] for cell, value in message.assigned})
        returned = [values[value] for value in message.returned]
        self._arrays.update(held.maps[0])
        return returned
