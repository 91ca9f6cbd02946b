"""What of an object a SavedModel holds: its variables, functions, and the objects that hang on it."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, final

from tfdist_jax.compat.tensorflow._functions._concrete_function import ConcreteFunction
from tfdist_jax.compat.tensorflow._functions._function import Function
from tfdist_jax.compat.tensorflow._variables._module import Module
from tfdist_jax.compat.tensorflow._variables._sharded_variable import ShardedVariable
from tfdist_jax.compat.tensorflow._variables._tracking import attributes_changed, library_of, tracked
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow.random._generator import Generator
from tfdist_jax.compat.tensorflow.saved_model._restored import RestoredFunction, SignatureMap
from tfdist_jax.compat.tensorflow.train._objects import Collection, children as trackable_children

# What Keras makes of a model's own methods to train it.
_OF_TRAINING = ("train_function", "test_function", "predict_function")


class AutoTrackable(Collection):
    """An object whose attributes are saved and loaded: what `load` returns, and what an export puts together."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, tracked(value))
        attributes_changed(self)

    def children(self) -> Iterator[tuple[str, Any]]:
        """Yield the attributes, but for the signatures of a loaded object, which are functions of its own."""
        yield from [(name, value) for name, value in vars(self).items() if not isinstance(value, SignatureMap)]

    def roots(self) -> Iterator[Any]:
        """Yield nothing: it stands for itself."""
        return iter(())


@final
class CallableTrackable(AutoTrackable):
    """One whose attributes have a function for calls of the object itself."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call that function."""
        return vars(self)["__call__"](*args, **kwargs)


@final
class StateOf(NamedTuple):
    """Stands for the state of a generator of random numbers, which TensorFlow has in a variable."""

    generator: Generator


def is_function(value: Any) -> bool:
    """Whether something is saved as a function."""
    return isinstance(value, Function | ConcreteFunction | RestoredFunction)


def is_variable(value: Any) -> bool:
    """Whether something is saved as a variable."""
    return isinstance(value, Variable | StateOf) or (library_of(value) is not None and hasattr(value, "stored"))


def is_object(value: Any) -> bool:
    """Whether something is saved as an object with attributes."""
    return isinstance(value, Module | Collection | Generator | ShardedVariable) or (
        library_of(value) is not None and not is_variable(value)
    )


def is_saved(value: Any) -> bool:
    """Whether something is saved at all."""
    return is_function(value) or is_variable(value) or is_object(value) or isinstance(value, list | tuple | Mapping)


def children(owner: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what hangs on an object and is saved, by attribute, key or number."""
    return ((name, child) for name, child in _parts(owner) if is_saved(child))


def _parts(owner: Any) -> Iterator[tuple[Any, Any]]:
    if is_function(owner) or is_variable(owner):
        return
    if isinstance(owner, Mapping):
        yield from [(key, value) for key, value in owner.items() if isinstance(key, str | int)]
    elif isinstance(owner, list | tuple):
        yield from enumerate(owner)
    elif isinstance(owner, ShardedVariable):
        yield from ((f"part_{i}", part) for i, part in enumerate(owner))
    elif isinstance(owner, Generator):
        yield "_state_var", StateOf(owner)
    else:
        found = dict(trackable_children(owner))
        yield from found.items()
        yield from ((name, function) for name, function in _functions(owner) if name not in found)


def _functions(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield the compiled functions among an object's attributes and its class's methods."""
    own = [(name, value) for name, value in vars(owner).items() if is_function(value)]
    yield from ((name, value) for name, value in own if library_of(owner) is None or name not in _OF_TRAINING)
    if isinstance(owner, Collection):
        for root in type(owner).roots(owner):
            yield from _functions(root)
    known = {name for name, _ in own}
    for kind in type(owner).__mro__:
        for name, value in list(vars(kind).items()):
            if isinstance(value, Function) and name not in known:
                known.add(name)
                yield name, getattr(owner, name)


@final
class Nodes:
    """An object and all that hangs on it, each once, numbered in the order of their distance from the root."""

    def __init__(self, root: Any) -> None:
        """Walk from `root`."""
        self.owners: list[Any] = [root]
        self.children: list[list[tuple[Any, int]]] = [[]]
        self._numbers: dict[Any, int] = {_identity(root): 0}
        for number, owner in enumerate(self.owners):  # It grows meanwhile.
            for name, child in children(owner):
                self.children[number].append((name, self.add(child)))

    def add(self, owner: Any) -> int:
        """Return the number of an object, which hangs on none if it is new."""
        identity = _identity(owner)
        if identity not in self._numbers:
            self._numbers[identity] = len(self.owners)
            self.owners.append(owner)
            self.children.append([])
        return self._numbers[identity]

    def number_of_cell(self, cell: Any) -> int | None:
        """Return the number of the variable that a cell is, or None if it is not among them."""
        return self._numbers.get(id(cell))


def _identity(owner: Any) -> int:
    return id(owner.generator.cell) if isinstance(owner, StateOf) else id(owner)
