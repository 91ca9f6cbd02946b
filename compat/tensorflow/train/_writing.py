"""Writes what hangs on an object as a checkpoint, in this project's format or in TensorFlow's."""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from tfdist_jax._checkpoint import _checkpoint
from tfdist_jax._sharding._placement import local
from tfdist_jax.compat.tensorflow._variables._tracking import library_of
from tfdist_jax.compat.tensorflow.lookup._mutable_tables import MutableTable
from tfdist_jax.compat.tensorflow.train import _formats
from tfdist_jax.compat.tensorflow.train._bundle._object_graph import (
    OBJECT_GRAPH,
    PYTHON_STATE,
    VALUE,
    Attribute,
    SavedObject,
    encode_graph,
)
from tfdist_jax.compat.tensorflow.train._bundle._writer import write_bundle
from tfdist_jax.compat.tensorflow.train._objects import (
    POSITION,
    TEXT,
    Node,
    Slot,
    escaped,
    full_name_of,
    graph_of,
    pack_strings,
    slot_of,
    tensorflow_children,
    value_part,
)
from tfdist_jax.compat.tensorflow.train._saved import OWN, OWN_GRAPH

FORMAT = "TFDIST_CHECKPOINT_FORMAT"
"""The variable of the environment that says in which format to write: "orbax", as without it, or "tensorflow"."""


def begin_writing(path: str, root: Any) -> Callable[[], None]:
    """Take the values of what hangs on an object as they are now; what is returned writes them, in this thread or another one.

    Raises:
        ValueError: If there is no such format as the environment asks for.
    """
    formats = {"orbax": _begin_folder, "tensorflow": _begin_bundle}
    wanted = os.environ.get(FORMAT) or "orbax"
    if wanted not in formats:
        raise ValueError(f"{FORMAT} is {wanted!r}, but checkpoints are written in the format 'orbax' or 'tensorflow'.")
    return formats[wanted](path, root)


def _slots_of(nodes: list[Node]) -> dict[int, Slot]:
    return {number: slot for number, node in enumerate(nodes) if (slot := slot_of(node.owner)) is not None}


def _begin_folder(path: str, root: Any) -> Callable[[], None]:
    nodes = graph_of(root)
    slots = _slots_of(nodes)
    keys = {number: nodes[number].path + slot.suffix for number, slot in slots.items()}
    arrays = {keys[number]: pack_strings(slot.read()) for number, slot in slots.items()}
    finish = _checkpoint.begin_saving(path, arrays, _describe(nodes, keys))

    def write() -> None:
        finish()
        if _formats.is_bundle(path):
            _formats.delete_bundle(path)

    return write


def _describe(nodes: list[Node], keys: Mapping[int, str]) -> dict[str, Any]:
    return {"children": [node.children for node in nodes], "keys": dict(keys)}


def _begin_bundle(path: str, root: Any) -> Callable[[], None]:
    objects, slots = _tensorflow_objects(root)
    tensors = {key: slot for _, (key, slot) in slots.items()}
    # What TensorFlow does not save, such as seeds, and names of this project's, by which everything is restored here.
    nodes = graph_of(root)
    keys: dict[int, str] = {}
    for number, slot in _slots_of(nodes).items():
        node = nodes[number]
        keys[number], _ = slots.get(id(node.owner), (f"{OWN}VALUES/{node.path}{slot.suffix}", slot))
        tensors.setdefault(keys[number], slot)
    wide = {
        id(variable)
        for node in nodes
        if (library := library_of(node.owner))
        for variable in library.wide_variables(node.owner)
    }
    arrays = {key: _take(slot, any(id(cell) in wide for cell in slot.cells)) for key, slot in tensors.items()}
    arrays[OBJECT_GRAPH] = _string(encode_graph(objects))
    arrays[OWN_GRAPH] = _string(json.dumps(_describe(nodes, keys)).encode())
    final = _checkpoint.local_path(path).absolute()

    def write() -> None:
        with _checkpoint.alone_in(final.parent):
            write_bundle(final, arrays)
            _formats.note_written(final)
        if _checkpoint.is_saved(final):
            _checkpoint.delete(final)

    return write


def _tensorflow_objects(root: Any) -> tuple[list[SavedObject], dict[int, tuple[str, Slot]]]:
    """Return what TensorFlow would save of an object, and the values with their names, by the numbers of the objects in memory."""
    nodes = graph_of(root, tensorflow_children)
    objects = [SavedObject(dict(node.children)) for node in nodes]
    values = {}
    for node, saved in zip(nodes, objects, strict=True):
        if isinstance(node.owner, MutableTable) and not node.owner.holds_buckets:
            saved.attributes.append(Attribute("table", node.owner.name, f"{node.path}/.ATTRIBUTES/table"))
            for name, column in node.owner.columns.items():
                values[id(column)] = f"{node.path}/.ATTRIBUTES/{name}", slot_of(column)
    for number, slot in _slots_of(nodes).items():
        if slot.suffix == POSITION:
            continue  # TensorFlow has its own words for it.
        owner, path, saved = nodes[number].owner, nodes[number].path, objects[number]
        part = value_part(owner)
        if part is not None:
            saved.children[part] = len(objects)
            path, saved = f"{path}/{escaped(part)}", SavedObject()
            objects.append(saved)
        kind = {TEXT: PYTHON_STATE}.get(slot.suffix, VALUE)
        key = f"{path}/.ATTRIBUTES/{kind}"
        saved.attributes.append(Attribute(kind, full_name_of(owner), key))
        values[id(owner)] = key, slot
    return objects, values


def _take(slot: Slot, is_wide: bool) -> np.ndarray:
    """Return a value that stays as it is now, in TensorFlow's type."""
    value = slot.read()
    if slot.suffix == TEXT:
        return _string(value.tobytes())
    # A program may reuse a JAX array's memory before this is written.
    array = np.array(local(value) if isinstance(value, jax.Array) else value)
    return array.astype(np.int64) if is_wide else array


def _string(text: bytes) -> np.ndarray:
    array = np.empty((), object)
    array[()] = text
    return array
