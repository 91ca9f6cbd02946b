"""Variables in the parts of a step that are differentiated or branch: they are read there, and written after."""

import contextlib
from collections.abc import Iterable
from typing import Any, final

import jax

from tfdist_jax._stateful._state import Cell, Merge, StateScope, current_scope, entering, read_now
from tfdist_jax.compat.tensorflow.keras._variables._variables import held_by_step


@final
class ReadingScope(StateScope):
    """Reads cells through the scope around it and refuses to write them, where new values would not outlive a trace."""

    def __init__(self, outer: Any, refused: Iterable[Any]) -> None:
        """Read through `outer` (None: outside of programs), but no `refused` variables, whose values the step has got otherwise."""
        self._outer = outer
        self._refused = {id(variable) for variable in refused}

    @property
    def is_traced(self) -> bool:
        """Whether the step is being traced."""
        return self._outer is not None and self._outer.is_traced

    def read(self, cell: Cell) -> jax.Array:
        """Return the cell's value."""
        if id(cell) in self._refused:
            raise held_by_step(cell)
        if cell.storage.per_replica:
            raise NotImplementedError(
                "A Keras model read a tf.Variable with a value per replica (synchronization=ON_READ), which only "
                "`strategy.run` supports. Make it a Keras metric or a weight of the model."
            )
        return read_now(cell) if self._outer is None else self._outer.read(cell)

    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        """Refuse: what a step changes has to be part of the model."""
        raise NotImplementedError(
            "A Keras model assigned a variable that is not its own inside a training, test or prediction step. "
            "Make it with `add_weight`, as an attribute of a layer or as a metric."
        )


def reading(refused: Iterable[Any] = ()) -> contextlib.AbstractContextManager[None]:
    """Return the context in which variables are read through the scope around it, and none is written."""
    return entering(ReadingScope(current_scope(), refused))
