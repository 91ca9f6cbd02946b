"""What the free names of a dataset's functions meant when the dataset was made: TensorFlow traces the functions then.

Here they are traced with the first element, when a loop around `dataset.map(lambda x: (x, i))` has bound `i` anew.
"""

import dis
import types
from collections.abc import Callable, Iterator
from typing import Any, final

_ABSENT = object()
_STORING = ("STORE_DEREF", "STORE_GLOBAL", "DELETE_DEREF", "DELETE_GLOBAL")


@final
class Bindings:
    """The values of a function's free names at one moment."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        """Take the values of the names that `fn` reads and does not bind itself."""
        self._fn = fn
        self._cells: dict[int, Any] = {}
        self._globals: dict[str, Any] = {}
        if isinstance(fn, types.FunctionType):
            bound = set(_names_bound_by(fn.__code__))
            for place, (name, cell) in enumerate(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)):
                if name not in bound:
                    self._cells[place] = _contents(cell)
            read = {name for code in codes(fn.__code__) for name in code.co_names if name not in bound}
            self._globals = {name: fn.__globals__[name] for name in read if name in fn.__globals__}

    def __reduce__(self) -> Any:
        return Bindings, (self.function(),)

    def function(self) -> Callable[..., Any]:
        """Return the function; where a name has been bound anew, one in which it is as it was."""
        fn = self._fn
        if not isinstance(fn, types.FunctionType):
            return fn
        closure = fn.__closure__ or ()
        is_same = all(_contents(closure[place]) is value for place, value in self._cells.items()) and all(
            fn.__globals__.get(name, _ABSENT) is value for name, value in self._globals.items()
        )
        if is_same:
            return fn
        cells = [
            types.CellType(self._cells[place]) if self._cells.get(place, _ABSENT) is not _ABSENT else cell
            for place, cell in enumerate(closure)
        ]
        names = {**fn.__globals__, **self._globals}
        copy = types.FunctionType(fn.__code__, names, fn.__name__, fn.__defaults__, tuple(cells))
        copy.__kwdefaults__, copy.__qualname__, copy.__module__ = fn.__kwdefaults__, fn.__qualname__, fn.__module__
        copy.__dict__.update(fn.__dict__)
        self._fn, self._cells, self._globals = copy, {}, {}
        return copy


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # Its name has no value yet.
        return _ABSENT


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code, and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def _names_bound_by(code: types.CodeType) -> Iterator[str]:
    for part in codes(code):
        yield from (one.argval for one in dis.get_instructions(part) if one.opname in _STORING)
