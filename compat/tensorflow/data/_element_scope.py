"""What stands around a dataset's function while it runs on an element: variables are read, random numbers are its own."""

from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._internals import current_trace, set_current_trace
from tfdist_jax._stateful._capture import read_as_input
from tfdist_jax._stateful._state import Cell, Merge, StateScope, load, store
from tfdist_jax.compat.tensorflow._tensors._host_part import HostCell
from tfdist_jax.compat.tensorflow.random._random_state import KeyStream, is_of_function, words_for_element


@final
class ElementScope(StateScope):
    """Gives draws numbers that depend on the iteration and on the element's place in it, and on nothing else.

    So they come back when an iteration is run again from a saved position, and whole batches can draw at once.

    Attributes:
        reads: The variables that have been read, with their values.
        checks: What raises after a run in which an assertion has failed.
    """

    def __init__(self, words: Callable[[], Any], *, is_traced: bool) -> None:
        """Stand around one run.

        Args:
            words: Gives the words of the element, `[4]` uint32, as `SeedLog.words` counts them.
            is_traced: Whether the function is traced for many elements, or runs for this one.
        """
        self._words = words
        self._is_traced = is_traced
        self._around = current_trace()
        self._streams: dict[KeyStream, Any] = {}
        self._host_cells = 0
        self.reads: list[tuple[Cell, Any]] = []
        self.checks: list[Callable[[], None]] = []

    @property
    def is_traced(self) -> bool:
        return self._is_traced

    def after_run(self, check: Callable[[], None]) -> bool:
        """Let `check` be called after each run of a traced function."""
        if self._is_traced:
            self.checks.append(check)
        return self._is_traced

    @property
    def has_drawn(self) -> bool:
        """Whether there was a draw."""
        return bool(self._streams)

    def read(self, cell: Cell) -> jax.Array:
        if isinstance(cell, HostCell):  # It is new with each read.
            with set_current_trace(self._around):
                self._host_cells += 1
                return read_as_input(self._host_cells - 1, cell.stored)
        if isinstance(cell, KeyStream) and is_of_function(cell):
            if cell not in self._streams:
                with set_current_trace(self._around):  # The first draw may be in a loop's body.
                    self._streams[cell] = words_for_element(cell, jnp.asarray(self._words()))
            return self._streams[cell]
        self.reads.append((cell, cell.stored))
        return load(cell)

    def write(self, cell: Cell, array: jax.Array, merge: Merge) -> None:
        if isinstance(cell, KeyStream) and is_of_function(cell):
            self._streams[cell] = array
        elif self._is_traced:
            raise NotImplementedError("A variable is assigned in a dataset's function: it runs for each element alone.")
        else:
            store(cell, array)
