"""Values on their way from a checkpoint to variables, those included that are made later."""

import logging
import weakref
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, final

import numpy as np

from tfdist_jax.compat.tensorflow._platform._errors import NotFoundError
from tfdist_jax.compat.tensorflow._variables._tracking import (
    TrackedDict,
    TrackedList,
    library_of,
    stop_waiting,
    wait_for_variables,
)
from tfdist_jax.compat.tensorflow.train._formats import is_saved
from tfdist_jax.compat.tensorflow.train._objects import Slot, graph_of, same_node, slot_of, value_part
from tfdist_jax.compat.tensorflow.train._saved import open_saved

_log = logging.getLogger(__name__)


class _Bound(NamedTuple):
    """An object that stands for a node of the checkpoint."""

    owner: "weakref.ref[Any]"
    node: int


@final
class Restoration:
    """Binds objects to what a checkpoint holds, starting from a root, and gives variables their values.

    It is kept alive by what it has bound, and ends when all values have been given or those objects are gone.
    """

    def __init__(self, path: str, root: Any) -> None:
        """Restore what is there and wait for the rest."""
        self.path = path
        self._graph = open_saved(path).graph(root)
        self._children, self._keys = self._graph.children, self._graph.keys
        self.unused = dict(self._keys)
        self._read: dict[str, np.ndarray] = {}
        self._bound: dict[int, _Bound] = {}
        self._taken: dict[int, int] = {}
        self.is_partial_expected = False
        self.has_matched = False
        self._bind(root, 0)
        self._descend([(root, 0)], self._slot_for(root, 0))
        if self.unused:
            wait_for_variables(self)

    def look_again(self, owner: Any) -> None:
        """Look at what an object holds now."""
        node = self._node_of(owner)
        if node is not None:
            self._descend([(owner, node)])

    def end(self) -> None:
        """Give no values to variables that are made later."""
        self.unused.clear()
        self._read.clear()
        stop_waiting(self)

    def missing(self, root: Any) -> list[str]:
        """Return the paths of the values below `root` that have not been restored."""
        return [
            node.path
            for node in graph_of(root, self._graph.saved_of)
            if slot_of(node.owner) is not None and not self._has_value(node.owner)
        ]

    def _has_value(self, owner: Any) -> bool:
        node = self._node_of(owner)
        return node is not None and self._value_node(owner, node) in self._keys

    def _value_node(self, owner: Any, node: int) -> int:
        """Return the node that has an object's value: itself, or a part that the object has only in TensorFlow."""
        part = value_part(owner)
        return node if part is None else self._children[node].get(part, node)

    def _node_of(self, owner: Any) -> int | None:
        bound = self._bound.get(id(owner))
        return bound.node if bound is not None and bound.owner() is owner else None

    def _slot_for(self, owner: Any, node: int) -> dict[str, Slot]:
        """Return what of an object is to be given the value of a node, with the value's key; nothing if it has got it."""
        value_node = self._value_node(owner, node)
        slot = slot_of(owner) if value_node in self.unused else None
        return {} if slot is None else {self.unused.pop(value_node): slot}

    def _descend(self, waiting: list[tuple[Any, int]], ready: Mapping[str, Slot] = MappingProxyType({})) -> None:
        ready = dict(ready)
        seen = set()
        for owner, node in waiting:
            for name, child in self._graph.children_of(owner):
                number = self._children[node].get(name)
                if number is None or id(child) in seen:
                    continue
                seen.add(id(child))
                self.has_matched |= number != 0
                if self._bind(child, number):
                    waiting.append((child, number))
                    ready |= self._slot_for(child, number)
        self._give(ready | self._slots_ready())
        if not self.unused:
            stop_waiting(self)

    def _slots_ready(self) -> dict[str, Slot]:
        """Return what optimizers keep of variables, where both are there, and which has not got its value."""
        ready: dict[str, Slot] = {}
        for optimizer, variable, name, node in self._graph.slots:
            owner, of = self._owner_of(optimizer), self._owner_of(variable)
            library = library_of(owner)
            if node not in self.unused or library is None or of is None:
                continue
            kept = library.slot_variable(owner, of, name)
            if kept is not None and self._bind(kept, node):
                ready |= self._slot_for(kept, node)
        return ready

    def _owner_of(self, node: int) -> Any:
        """Return the object that stands for a node, or None."""
        bound = self._bound.get(self._taken.get(node, -1))
        return bound.owner() if bound is not None and bound.node == node else None

    def _bind(self, owner: Any, node: int) -> bool:
        """Let an object stand for a node, and say whether it is worth looking into."""
        if isinstance(owner, list | tuple | Mapping) and not isinstance(owner, TrackedList | TrackedDict):
            return True  # Does not say when it changes, and may not be referred to weakly: is looked into each time.
        if self._node_of(owner) is not None:
            return False
        if self._owner_of(node) is not None:
            _log.warning("Inconsistent references: two objects stand for one in the checkpoint %s.", self.path)
            return False
        for same in same_node(owner):
            self._note(same, node)
        self._taken[node] = id(owner)
        return True

    def _note(self, owner: Any, node: int) -> None:
        number = id(owner)
        self._bound[number] = _Bound(weakref.ref(owner, lambda _: self._forget(number)), node)

    def _forget(self, number: int) -> None:
        self._bound.pop(number, None)
        if not self._bound:
            stop_waiting(self)

    def _give(self, ready: dict[str, Slot]) -> None:
        if not ready.keys() <= self._read.keys():
            self._read_for(ready)
        for key, slot in ready.items():
            slot.write(self._read.pop(key))

    def _read_for(self, ready: dict[str, Slot]) -> None:
        if not is_saved(self.path):
            raise NotFoundError(
                None,
                None,
                f"The checkpoint {self.path} is gone, and with it the values for {listed(ready)}, whose variables have "
                "been made after it was restored. Keep it until everything is built.",
            )
        # What belongs to the same model will be asked for soon, one by one; reading has a cost of its own.
        tops = {_top(key) for key in ready}
        wanted = [key for key in (*ready, *self.unused.values()) if _top(key) in tops]
        self._read |= open_saved(self.path).load(wanted)

    def __del__(self) -> None:
        if getattr(self, "unused", None) and not self.is_partial_expected:
            _log.warning(
                "A checkpoint was restored (%s), but these values in it were not used: %s. If that is expected, call "
                "`.expect_partial()` on what `restore` returns.",
                self.path,
                listed(self.unused.values()),
            )


def _top(key: str) -> str:
    return key.partition("/")[0]


def listed(keys: Any, most: int = 5) -> str:
    """Return names as a string, the first few of them."""
    shown = sorted(keys)
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")
