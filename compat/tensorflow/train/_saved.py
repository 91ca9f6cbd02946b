"""What a saved checkpoint holds, whichever its format: values by name, and the objects that they belong to."""

import abc
import itertools
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, final

import numpy as np

from tfdist_jax._checkpoint import _checkpoint
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow.train._bundle._object_graph import (
    OBJECT_GRAPH,
    SavedObject,
    decode_graph,
    find_slots,
)
from tfdist_jax.compat.tensorflow.train._bundle._reader import BundleReader
from tfdist_jax.compat.tensorflow.train._damage import reading
from tfdist_jax.compat.tensorflow.train._formats import is_bundle
from tfdist_jax.compat.tensorflow.train._objects import (
    children,
    full_name_of,
    graph_of,
    known_children,
    slot_of,
    tensorflow_children,
)

OWN = "_TFDIST_"
"""How the names of tensors begin in which this project keeps, in TensorFlow's format, what TensorFlow does not save."""
OWN_GRAPH = f"{OWN}OBJECT_GRAPH"
"""The tensor that says which objects there are."""
# Types that have no DType of their own, by TensorFlow's numbers.
_OTHER_TYPES = {
    **{11: "qint8", 12: "quint8", 13: "qint32", 15: "qint16", 16: "quint16", 20: "resource", 21: "variant"},
    **{24: "float8_e5m2", 25: "float8_e4m3fn", 29: "int4", 30: "uint4"},
}


class ObjectGraph(NamedTuple):
    """The objects in a checkpoint, by number; the root is 0.

    Attributes:
        children: For each object, the numbers of those that hang on it, by name.
        keys: The values' names, by the objects' numbers.
        children_of: Yields what hangs on an object of the program, by all names that `children` may have.
        saved_of: Yields that of it which would be saved.
        slots: What optimizers keep of variables, as triples of the optimizer's number, the variable's and the value's, with its name.
    """

    children: list[dict[str, int]]
    keys: dict[int, str]
    children_of: Callable[[Any], Iterator[tuple[str, Any]]]
    saved_of: Callable[[Any], Iterator[tuple[str, Any]]]
    slots: list[tuple[int, int, str, int]]


class Saved(abc.ABC):
    """One checkpoint."""

    def __init__(self, path: str) -> None:
        """Open the checkpoint at a path."""
        self.path = path

    @abc.abstractmethod
    def types(self) -> Mapping[str, tuple[tuple[int, ...], _dtypes.DType]]:
        """Return shapes and types of the values, by name."""

    @abc.abstractmethod
    def graph(self, root: Any) -> ObjectGraph:
        """Return the objects; of a checkpoint that has only names, those below `root` whose names it has."""

    @abc.abstractmethod
    def load(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Return values by name.

        Raises:
            DataLossError: If they are damaged.
        """


def open_saved(path: str) -> Saved:
    """Open a checkpoint that is there."""
    return TensorFlowFiles(path) if is_bundle(path) else OrbaxFolder(path)


@final
class OrbaxFolder(Saved):
    """A checkpoint in this project's own format."""

    def __init__(self, path: str) -> None:
        """Open a folder."""
        super().__init__(path)
        self._types, self._about = reading(path, lambda: _checkpoint.read_about(path))

    def types(self) -> Mapping[str, tuple[tuple[int, ...], _dtypes.DType]]:
        """Return shapes and types of the values, by name."""
        return {name: (shape, _dtypes.as_dtype(dtype)) for name, (shape, dtype) in self._types.items()}

    def graph(self, root: Any) -> ObjectGraph:
        """Return the objects."""
        return _own_graph(self._about)

    def load(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Return values by name."""
        return reading(self.path, lambda: _checkpoint.load_arrays(self.path, names))


def _own_graph(about: Mapping[str, Any]) -> ObjectGraph:
    keys = {int(node): key for node, key in about["keys"].items()}
    return ObjectGraph(about["children"], keys, children, children, [])


@final
class TensorFlowFiles(Saved):
    """A checkpoint in TensorFlow's format."""

    def __init__(self, path: str) -> None:
        """Read the index."""
        super().__init__(path)
        self._reader: BundleReader = reading(path, lambda: BundleReader(_checkpoint.local_path(path)))

    def types(self) -> Mapping[str, tuple[tuple[int, ...], _dtypes.DType]]:
        """Return shapes and types of the values, by name."""
        found = self._reader.types
        return {name: (kind.shape, _dtype(kind)) for name, kind in found.items() if not name.startswith(OWN)}

    def graph(self, root: Any) -> ObjectGraph:
        """Return the objects; of a checkpoint that has only names, those below `root` whose names it has."""
        if OWN_GRAPH in self._reader.types:
            return _own_graph(json.loads(self._text(OWN_GRAPH)))
        if OBJECT_GRAPH not in self._reader.types:
            return _graph_by_names(root, self._reader.types)
        objects = reading(self.path, lambda: decode_graph(self._text(OBJECT_GRAPH), self.path))
        find_slots(objects)
        _part_columns(objects, self._reader.types)
        keys = {number: each.attributes[0].key for number, each in enumerate(objects) if each.attributes}
        slots = [(i, slot.variable, slot.name, slot.node) for i, each in enumerate(objects) for slot in each.slots]
        return ObjectGraph([each.children for each in objects], keys, known_children, tensorflow_children, slots)

    def load(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Return values by name."""
        wanted = list(names)
        for name in wanted:
            if name not in self._reader.types:
                raise NotImplementedError(
                    f"TensorFlow's checkpoint {self.path} has {name!r} in a form that only TensorFlow can read. Leave that object out of "
                    "the tf.train.Checkpoint; of an iterator, save the number of steps in a tf.Variable, and go on from "
                    "`dataset.skip(steps)`."
                )
        return reading(self.path, lambda: {name: self._reader.read(name) for name in wanted})

    def _text(self, name: str) -> bytes:
        return self.load([name])[name].item()


def _part_columns(objects: list[SavedObject], names: Container[str]) -> None:
    """Make objects of the columns of tables, which in TensorFlow's files are two tensors of one value."""
    for each in list(objects):
        for table in [value for value in each.attributes if f"{value.key}-keys" in names]:
            each.attributes.remove(table)
            for column in ("keys", "values"):
                each.children[f"table-{column}"] = len(objects)
                objects.append(SavedObject(attributes=[table._replace(key=f"{table.key}-{column}")]))


def _dtype(kind: Any) -> _dtypes.DType:
    other = _OTHER_TYPES.get(kind.number)
    if other is not None:
        return _dtypes.DType(other, object if kind.dtype is None else kind.dtype)
    return _dtypes.string if kind.dtype is not None and kind.dtype.hasobject else _dtypes.as_dtype(kind.dtype)


def _graph_by_names(root: Any, names: Iterable[str]) -> ObjectGraph:
    """Return the objects below `root` as if the checkpoint had been saved from them, with the values that it has."""

    def saved_of(owner: Any) -> Iterator[tuple[str, Any]]:
        # It counts how often `tf.train.Checkpoint` has saved, which a checkpoint by names knows nothing of.
        return ((name, child) for name, child in tensorflow_children(owner) if name != "save_counter")

    known = set(names)
    nodes = graph_of(root, saved_of)
    named = [full_name_of(node.owner) if slot_of(node.owner) is not None else "" for node in nodes]
    keys = dict(itertools.compress(enumerate(named), [name in known for name in named]))
    return ObjectGraph([node.children for node in nodes], keys, saved_of, saved_of, [])
