"""The objects in a checkpoint of TensorFlow's, as the message that lies among its tensors.

Ref: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/protobuf/trackable_object_graph.proto
"""

import collections
import dataclasses
from collections.abc import Iterable
from typing import NamedTuple, final

from google.protobuf.message import DecodeError

from tfdist_jax import DataLossError as DamagedError
from tfdist_jax.compat.tensorflow.io._messages import TrackableObjectGraph

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""The tensor's name."""
VALUE, PYTHON_STATE, ITERATOR = "VARIABLE_VALUE", "py_state", "ITERATOR"
"""What the values of variables, of `tf.train.experimental.PythonState` and of iterators are called."""


class SlotVariable(NamedTuple):
    """What an optimizer of Keras 2 or of TensorFlow 1 keeps of a variable.

    Attributes:
        variable: The number of the variable's object.
        name: What it is, such as "momentum".
        node: The number of its own object.
    """

    variable: int
    name: str
    node: int


class Attribute(NamedTuple):
    """A value that an object has.

    Attributes:
        name: What it is.
        full_name: The variable's name.
        key: The tensor's name.
    """

    name: str
    full_name: str
    key: str


@final
@dataclasses.dataclass
class SavedObject:
    """An object in a checkpoint.

    Attributes:
        children: Numbers of the objects that hang on it, by name.
        attributes: Its values.
        slots: If it is an optimizer: what it keeps of variables.
    """

    children: dict[str, int] = dataclasses.field(default_factory=dict)
    attributes: list[Attribute] = dataclasses.field(default_factory=list)
    slots: list[SlotVariable] = dataclasses.field(default_factory=list)


def encode_graph(objects: list[SavedObject]) -> bytes:
    """Return objects, the root first, as a message."""
    graph = TrackableObjectGraph()
    with_values = _above_values(objects)
    for number, each in enumerate(objects):
        node = graph.nodes.add()
        for name, child in each.children.items():
            node.children.add(local_name=name, node_id=child)
        for attribute in each.attributes:
            node.attributes.add(name=attribute.name, full_name=attribute.full_name, checkpoint_key=attribute.key)
        node.has_checkpoint_values.value = number in with_values
    return graph.SerializeToString()


def _above_values(objects: list[SavedObject]) -> set[int]:
    """Return the numbers of objects that have values, or from which others that have can be reached."""
    found = {number for number, each in enumerate(objects) if each.attributes}
    above: dict[int, list[int]] = {}
    for number, each in enumerate(objects):
        for child in each.children.values():
            above.setdefault(child, []).append(number)
    waiting: Iterable[int] = list(found)
    while waiting:
        waiting = {number for child in waiting for number in above.get(child, ())} - found
        found |= waiting
    return found


def decode_graph(data: bytes, prefix: str) -> list[SavedObject]:
    """Return the objects in a message.

    Args:
        data: The message.
        prefix: The checkpoint.

    Raises:
        DataLossError: If it is no such message.
    """
    try:
        nodes = TrackableObjectGraph.FromString(data).nodes
    except DecodeError as error:
        raise DamagedError(f"The checkpoint {prefix} is damaged: {OBJECT_GRAPH} is no graph of objects.") from error
    objects = [
        SavedObject(
            {child.local_name: child.node_id for child in node.children},
            [Attribute(each.name, each.full_name, each.checkpoint_key) for each in node.attributes],
            [
                SlotVariable(slot.original_variable_node_id, slot.slot_name, slot.slot_variable_node_id)
                for slot in node.slot_variables
            ],
        )
        for node in nodes
    ]
    numbers = [number for each in objects for number in each.children.values()]
    numbers += [number for each in objects for slot in each.slots for number in (slot.variable, slot.node)]
    if not objects or not all(0 <= number < len(objects) for number in numbers):
        raise DamagedError(f"The checkpoint {prefix} is damaged: {OBJECT_GRAPH} names objects that it does not hold.")
    return objects


def find_slots(objects: list[SavedObject]) -> None:
    """Let the optimizers of Keras 2 that keep lists have slots instead, as far as names tell whose they are.

    Their lists are in the order of the variables in Keras 2, which another version need not have, and the list of all their
    variables is without the learning rate.
    """
    numbers = [(each.attributes[0].full_name, number) for number, each in enumerate(objects) if each.attributes]
    counts = collections.Counter(name for name, _ in numbers)
    by_name = {name: number for name, number in numbers if counts[name] == 1}
    for optimizer in objects:
        if "_index_dict" not in optimizer.children:
            continue
        optimizer.children.pop("_variables", None)
        for name, number in list(optimizer.children.items()):
            kept = list(objects[number].children.values())
            # Such as "Adam/m/dense/kernel".
            variables = [by_name.get(_full_name(objects[node]).split("/", 2)[-1]) for node in kept]
            if kept and None not in variables:
                del optimizer.children[name]
                optimizer.slots += [
                    SlotVariable(of, name, node) for of, node in zip(variables, kept, strict=True) if of is not None
                ]


def _full_name(saved: SavedObject) -> str:
    return saved.attributes[0].full_name if saved.attributes else ""
