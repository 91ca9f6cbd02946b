"""`tf.Module`: a named container of variables and other modules."""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tfdist_jax.compat.tensorflow._ops._graph_compat import name_scope
from tfdist_jax.compat.tensorflow._variables._sharded_variable import ShardedVariable
from tfdist_jax.compat.tensorflow._variables._tracking import attributes_changed, library_of, tracked
from tfdist_jax.compat.tensorflow._variables._variable import Variable


class Module:
    """Drop-in for `tf.Module`: finds the variables and modules in its attributes, and in lists and dicts there.

    Differs from TensorFlow: the variables of Keras layers that it holds are found too.
    Ref: https://www.tensorflow.org/api_docs/python/tf/Module

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> class Scale(tf.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.factor = tf.Variable(2.0, name="factor")
        >>> [variable.name for variable in Scale().variables]
        ['factor:0']
    """

    _name: str
    _name_scope: name_scope

    def __init__(self, name: str | None = None) -> None:
        """Name the module; after its class if no name is given.

        Raises:
            ValueError: If `name` is no Python identifier.
        """
        name = _snake_case(type(self).__name__) if name is None else name
        if not name.isidentifier():
            raise ValueError(f"{name!r} is not a valid module name. Module names must be valid Python identifiers.")
        object.__setattr__(self, "_name", name)
        with name_scope(name) as full:
            object.__setattr__(self, "_name_scope", name_scope(full))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, tracked(value))
        attributes_changed(self)

    @property
    def name(self) -> str:
        """The module's name."""
        return self._name

    @property
    def name_scope(self) -> Any:
        """The scope of the module's name in the scopes in which it was made."""
        return name_scope(self._name_scope.name)  # One for each thread that is in a method.

    @classmethod
    def with_name_scope(cls, method: Callable[..., Any]) -> Callable[..., Any]:
        """Let a method run in the module's name scope."""

        @functools.wraps(method)
        def in_scope(self: Any, *args: Any, **kwargs: Any) -> Any:
            with self.name_scope:
                return method(self, *args, **kwargs)

        return in_scope

    @property
    def variables(self) -> tuple[Any, ...]:
        """All variables, in the order of the attributes' names."""
        return tuple(_variables(self))

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """The trainable ones."""
        return tuple(variable for variable in _variables(self) if variable.trainable)

    @property
    def non_trainable_variables(self) -> tuple[Any, ...]:
        """The others."""
        return tuple(variable for variable in _variables(self) if not variable.trainable)

    @property
    def submodules(self) -> tuple["Module", ...]:
        """The modules in the attributes, and those inside them."""
        return tuple(leaf for leaf in _walk(self, {id(self)}) if isinstance(leaf, Module))


def _snake_case(name: str) -> str:
    return re.sub(r"((?<=[a-z0-9])[A-Z]|(?<!^)[A-Z](?=[a-z]))", r"_\1", name).lower()


def _variables(module: Module) -> Iterator[Any]:
    seen: set[int] = set()
    for leaf in _walk(module, {id(module)}):
        found = [leaf] if isinstance(leaf, Variable) else [] if isinstance(leaf, Module) else leaf.variables
        for variable in found:
            if id(variable) not in seen:
                seen.add(id(variable))
                yield variable


def _walk(module: Module, seen: set[int]) -> Iterator[Any]:
    """Yield the variables, modules and Keras objects that a module holds: first its own, then those of its modules."""
    children = []
    for _, value in sorted(vars(module).items()):
        for leaf in _leaves(value):
            if id(leaf) in seen:
                continue
            if isinstance(leaf, Variable | ShardedVariable | Module) or library_of(leaf) is not None:
                seen.add(id(leaf))
                yield leaf
            if isinstance(leaf, Module):
                children.append(leaf)
    for child in children:
        yield from _walk(child, seen)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _leaves(value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
