"""Variables that a step reads though the model does not own them: inputs of its program, never frozen in it."""

from collections.abc import Sequence
from typing import Any, final

import jax

from tfdist_jax._stateful._state import Cell, Merge, StateScope


@final
class ExternalVariables(StateScope):
    """Gives a step, while it is traced, the program's inputs for the cells it reads."""

    def __init__(self, cells: Sequence[Cell], values: Sequence[jax.Array]) -> None:
        """Know `cells` by their `values` in the program."""
        self._values = {id(cell): value for cell, value in zip(cells, values, strict=True)}

    def read(self, cell: Cell) -> jax.Array:
        """Return the cell's value.

        Raises:
            UndeclaredVariableReadError: If the program has no input for the cell yet.
        """
        if cell.per_replica:
            raise NotImplementedError(
                "A Keras model read a tf.Variable with a value per replica (synchronization=ON_READ), which only "
                "`strategy.run` supports. Make it a Keras metric or a weight of the model."
            )
        if id(cell) not in self._values:
            raise UndeclaredVariableReadError(cell)
        return self._values[id(cell)]

    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        """Refuse: what a step changes has to be part of the model."""
        raise NotImplementedError(
            "A Keras model assigned a variable that is not its own inside a training, test or prediction step. "
            "Make it with `add_weight`, as an attribute of a layer or as a metric."
        )


@final
class UndeclaredOptimizerError(BaseException):
    """Ends a trace that changes an optimizer which is not the model's `optimizer`: its state has to be carried along."""

    def __init__(self, variables: Sequence[Any]) -> None:
        """Ask for the optimizer's variables."""
        super().__init__(variables)
        self.variables: Any = variables


@final
class UndeclaredVariableReadError(BaseException):
    """Ends a trace that needs one more input; not an Exception, so that the model's code does not catch it."""

    def __init__(self, cell: Cell) -> None:
        """Ask for `cell`."""
        super().__init__(cell)
        self.cell: Any = cell
