"""What a checkpoint holds of an object: the variables, and the names of the attributes that lead to them."""

import abc
import collections
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import jax
import numpy as np

from tfdist_jax._stateful import _state
from tfdist_jax._stateful._snapshot import Snapshot, read_snapshot
from tfdist_jax._stateful._state import Cell
from tfdist_jax.compat.tensorflow._platform._context import current_strategy, entering_scope
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._dtypes import string
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._variables._module import Module
from tfdist_jax.compat.tensorflow._variables._sharded_variable import ShardedVariable
from tfdist_jax.compat.tensorflow._variables._tracking import (
    Library,
    TrackedDict,
    TrackedList,
    changes_so_far,
    library_of,
)
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow.data._iterator import Resumable
from tfdist_jax.compat.tensorflow.io._tensor_messages import parse_tensor, serialize_tensor
from tfdist_jax.compat.tensorflow.lookup._mutable_tables import MutableTable, TableColumn
from tfdist_jax.compat.tensorflow.lookup._tables import Table
from tfdist_jax.compat.tensorflow.random._generator import Generator

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
TEXT = "/.ATTRIBUTES/PYTHON_STATE"
POSITION = "/.ATTRIBUTES/ITERATOR_STATE"
COLUMN = "/.ATTRIBUTES/COLUMN"


class PythonState(abc.ABC):
    """Something else that checkpoints save with the variables: a string that `serialize` gives and `deserialize` takes.

    Ref: https://www.tensorflow.org/api_docs/python/tf/train/experimental/PythonState
    """

    @abc.abstractmethod
    def serialize(self) -> str:
        """Return the state as a string."""

    @abc.abstractmethod
    def deserialize(self, string_value: str) -> None:
        """Take the state from a string."""


class Collection(abc.ABC):
    """An object that says itself what hangs on it, by methods of its class: its attributes may have their names."""

    @abc.abstractmethod
    def children(self) -> Iterator[tuple[str, Any]]:
        """Yield names and objects, besides those that hang on its roots."""

    @abc.abstractmethod
    def roots(self) -> Iterator[Any]:
        """Yield the objects that it stands for: they are the same node as it."""


class Slot(NamedTuple):
    """A value that an object has.

    Attributes:
        suffix: What follows the object's path in the value's name.
        read: Returns the value as an array.
        write: Takes a saved value.
        cells: What holds it, if that is a cell, or several.
    """

    suffix: str
    read: Callable[[], Any]
    write: Callable[[np.ndarray], None]
    cells: Sequence[Cell] = ()


class Node(NamedTuple):
    """An object in a checkpoint.

    Attributes:
        owner: The object.
        path: The shortest way to it.
        children: Numbers of the nodes that hang on it, by name.
    """

    owner: Any
    path: str
    children: dict[str, int]


def graph_of(root: Any, children_of: Callable[[Any], Iterator[tuple[str, Any]]] | None = None) -> list[Node]:
    """Return an object and all that hangs on it, each once, numbered in the order of their distance from the root.

    Args:
        root: The object.
        children_of: Yields what hangs on an object, by name; `children` if None.
    """
    children_of = children_of or children
    nodes = [Node(root, "", {})]  # With the objects: the number of one that is gone may be given to another.
    numbers = {id(same): 0 for same in same_node(root)}
    for node in nodes:
        for name, child in children_of(node.owner):
            if id(child) not in numbers:
                numbers |= {id(same): len(nodes) for same in same_node(child)}
                nodes.append(Node(child, f"{node.path}/{escaped(name)}" if node.path else escaped(name), {}))
            node.children[name] = numbers[id(child)]
    return nodes


def same_node(owner: Any) -> Iterator[Any]:
    """Yield an object and those that are one with it in a checkpoint."""
    yield owner
    if isinstance(owner, Collection):
        for root in type(owner).roots(owner):
            yield from same_node(root)


def is_trackable(value: Any) -> bool:
    """Tell whether checkpoints can save an object, or look for such in it."""
    kinds = (
        *(Collection, Module, Variable, ShardedVariable, Generator, PythonState, Resumable),
        *(Table, TableColumn, list, tuple, Mapping),
    )
    return isinstance(value, kinds) or library_of(value) is not None


def escaped(name: str) -> str:
    """Return a name as a part of a path."""
    return name.replace(".", "..").replace("/", ".S")


def slot_of(owner: Any) -> Slot | None:
    """Return the value that an object has of its own, or None."""
    match owner:
        case Collection():
            return next((slot for root in type(owner).roots(owner) if (slot := slot_of(root)) is not None), None)
        case Variable():
            return Slot(VALUE, owner.read_value, lambda value: _assign(owner, value), [owner])
        case ShardedVariable():
            write = lambda value: _assign(owner, value, ShardedVariable.assign)
            return Slot(VALUE, owner.__jax_array__, write, owner.variables)
        case Generator():
            return Slot(
                "/_state_var" + VALUE, lambda: owner.state, lambda value: _outside(owner.reset, value), [owner.cell]
            )
        case PythonState():
            read = lambda: np.frombuffer(_bytes(owner.serialize()), np.uint8)
            return Slot(TEXT, read, lambda value: owner.deserialize(_text(value)))
        case TableColumn():
            return Slot(COLUMN, owner.read, lambda value: owner.write(_column(owner, value)))
        case Resumable():
            read = lambda: np.frombuffer(read_snapshot(owner, owner.state).encode(), np.uint8)
            return Slot(POSITION, read, lambda value: owner.restore_state(_text(value)))
    library = library_of(owner)
    if library is None or not hasattr(owner, "stored"):
        return None
    return Slot(VALUE, lambda: owner.value, lambda value: _assign(owner, value, library.assign), [owner])


def pack_strings(value: Any) -> Any:
    """Return an array of strings as one of bytes; anything else as it is."""
    is_text = isinstance(value, np.ndarray) and value.dtype.hasobject
    return np.frombuffer(serialize_tensor(HostTensor.of(value)).item(), np.uint8) if is_text else value


def _column(column: TableColumn, value: np.ndarray) -> np.ndarray:
    is_packed = column.dtype is string and not value.dtype.hasobject
    return np.asarray(parse_tensor(value.tobytes(), string), object) if is_packed else value


def _text(value: np.ndarray) -> str:
    """Return a text from its bytes, or from a string."""
    return (value.item() if value.dtype.hasobject else value.tobytes()).decode()


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _assign(variable: Any, value: np.ndarray, assign: Callable[[Any, np.ndarray], Any] = Variable.assign) -> None:
    """Give a variable its saved value."""
    if tuple(variable.shape) != value.shape:
        raise ValueError(
            f"Received incompatible tensor with shape {tuple(value.shape)} when attempting to restore variable "
            f"{variable.name!r} with shape {tuple(variable.shape)}: the checkpoint was saved from another model."
        )
    wanted = jax.numpy.dtype(getattr(variable.dtype, "as_numpy_dtype", variable.dtype))
    library = library_of(variable)
    if library is not None and value.dtype.kind == wanted.kind == "i" and np.array_equal(value.astype(wanted), value):
        value = value.astype(wanted)  # Keras's own counters have 64 bits under TensorFlow, and 32 under JAX.
    if wanted != value.dtype:
        raise InvalidArgumentError(
            None,
            None,
            f"The checkpoint has dtype {value.dtype} for the variable {variable.name!r}, whose dtype is {wanted}. Read it "
            "with tf.train.load_variable, and assign it after tf.cast.",
        )
    _outside(functools.partial(assign, variable), value)


def _outside(write: Callable[[Any], Any], value: Any) -> None:
    """Write now, to all replicas, even if the variable has been made inside a function that is being traced."""
    with jax.ensure_compile_time_eval(), _state.entering(None), entering_scope(current_strategy()):
        write(value)


def children(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that hang on another one and can be saved, by name."""
    return ((name, child) for name, child in _parts(owner) if is_trackable(child))


def _parts(owner: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(owner, Collection):
        for root in type(owner).roots(owner):
            yield from children(root)
        yield from type(owner).children(owner)
    elif isinstance(owner, MutableTable):
        yield from owner.columns.items()
    elif isinstance(owner, Mapping):
        yield from [(str(key), value) for key, value in owner.items()]
    elif isinstance(owner, list | tuple):
        yield from ((str(i), value) for i, value in enumerate(owner))
    elif (library := library_of(owner)) is not None:
        yield from library.parts(owner)
    elif isinstance(owner, Module):
        yield from list(vars(owner).items())


# As TensorFlow, which follows no lists and dictionaries of the program's own classes.
_PLAIN = (list, dict, collections.OrderedDict, TrackedList, TrackedDict)


def tensorflow_children(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that hang on another one as TensorFlow, with Keras 3, finds and names them for its checkpoints."""
    found = _named_by(owner, lambda library, part: library.tensorflow_parts(part))
    return ((name, child) for name, child in found if not isinstance(child, TableColumn))


def known_children(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield them by all names that checkpoints of TensorFlow may have, with Keras 2, too."""
    return _named_by(owner, lambda library, part: library.known_parts(part))


def _named_by(owner: Any, parts_of: Callable[[Library, Any], Iterator[tuple[str, Any]]]) -> Iterator[tuple[str, Any]]:
    library = library_of(owner)
    if isinstance(owner, Collection):
        found = itertools.chain(
            *(_named_by(root, parts_of) for root in type(owner).roots(owner)), type(owner).children(owner)
        )
    else:
        found = _parts(owner) if library is None else parts_of(library, owner)
    return ((name, child) for name, child in found if _is_followed(child))


def _is_followed(value: Any) -> bool:
    if isinstance(value, list | Mapping) and type(value) not in _PLAIN:
        return False
    library = library_of(value)
    return is_trackable(value) and (library is None or not isinstance(value, library.unknown_to_tensorflow))


def full_name_of(owner: Any) -> str:
    """Return the name that TensorFlow gives a variable, to find its value where no objects have been saved."""
    return getattr(owner, "path", None) or getattr(owner, "name", "").removesuffix(":0")


def value_part(owner: Any) -> str | None:
    """Return the name of the part that holds an object's value in TensorFlow, where it is none of the object itself."""
    return "_state_var" if isinstance(owner, Generator) else None


@final
class Snapshots:
    """Takes moments of an object and all that hangs on it, which is looked for again only if some of it may have changed."""

    def __init__(self, root: Any) -> None:
        """Take moments of `root`."""
        self._root = root
        self._changes = -1
        self._cells: list[Cell] = []
        self._iterators: list[Resumable] = []

    def now(self) -> Snapshot:
        """Return what is held now."""
        changes = changes_so_far()
        if changes != self._changes:
            owners = [node.owner for node in graph_of(self._root)]
            slots = filter(None, map(slot_of, owners))
            self._cells = [cell for slot in slots for cell in slot.cells if cell.stored is not None]
            self._iterators = [owner for owner in owners if isinstance(owner, Resumable)]
            self._changes = changes
        return Snapshot(self._cells, [(iterator, iterator.state()) for iterator in self._iterators])
