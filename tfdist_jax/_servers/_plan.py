"""Programs that use cells on servers in other processes, as data: what a worker computes, and what it asks of servers meanwhile.

A program's values have numbers, by which its parts name them. Compiled parts have names; whoever runs one has got it by its name before.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax
import numpy as np
from jax.core import ShapedArray


@final
@dataclasses.dataclass(frozen=True)
class Part:
    """A compiled part of a program.

    Attributes:
        name: By which others know it.
        function: It, by `jax.jit`.
        types: Of the arrays that it takes.
        replaced: Which of them its results may replace in their memory, where it runs as another process's.
    """

    name: str
    function: Any
    types: tuple[jax.ShapeDtypeStruct, ...]
    replaced: tuple[int, ...] = ()
    _exported: "dict[str, ExportedPart]" = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def __call__(self, *arrays: Any) -> Sequence[Any]:
        """Run it in this process."""
        with jax.enable_x64(True):  # NumPy's arrays of 64 bits would become narrower ones.
            given = [array if isinstance(array, jax.Array) else jax.device_put(array) for array in arrays]
        return self.function(*given)

    def export(self, platform: str) -> "ExportedPart":
        """Return it for processes whose devices are of a platform.

        Raises:
            Exception: If it cannot leave the process, since it calls Python.
        """
        from jax import export  # Few programs need it.

        if platform in self._exported:
            return self._exported[platform]
        # A `ShapeDtypeStruct` of 64 bits would be taken for one of 32; with JAX set to 64 bits, `jax.random` would be lowered to others
        # than it was traced with.
        types = [ShapedArray(each.shape, each.dtype) for each in self.types]
        program = export.export(self.function, platforms=[platform])(*types).serialize()
        return self._exported.setdefault(platform, ExportedPart(bytes(program), self.replaced))


@final
@dataclasses.dataclass(frozen=True)
class ExportedPart:
    """A part on its way to another process.

    Attributes:
        program: It, by `jax.export`.
        replaced: As of `Part`.
    """

    program: bytes
    replaced: tuple[int, ...]


def load_part(exported: ExportedPart) -> Callable[..., Sequence[jax.Array]]:
    """Return a part that another process has exported."""
    from jax import export  # As in `Part.export`.

    compiled = jax.jit(export.deserialize(bytearray(exported.program)).call, donate_argnums=exported.replaced)

    def run(*arrays: Any) -> Sequence[jax.Array]:
        with jax.enable_x64(True):
            return compiled(*arrays)

    return run


@final
@dataclasses.dataclass(frozen=True)
class Call:
    """Computes values of others.

    Attributes:
        part: The name of the compiled part.
        inputs: The values that it takes.
        outputs: Those that it gives.
    """

    part: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@final
@dataclasses.dataclass(frozen=True)
class ServerCall:
    """Computes on a server, of what cells hold there and of what is sent.

    Attributes:
        part: The name of the compiled part, which takes the cells' arrays, and then the operands.
        cells: The cells that it takes.
        operands: The values that are sent.
        results: The values that it gives; None in the place of what nobody wants.
        written: The cells that are to hold the last ones of them.
        assigned: Cells that get a value that is sent before.
    """

    part: str
    cells: tuple[int, ...]
    operands: tuple[int, ...]
    results: tuple[int | None, ...]
    written: tuple[int, ...] = ()
    assigned: tuple[tuple[int, int], ...] = ()


@final
@dataclasses.dataclass(frozen=True)
class Message:
    """What is asked of one server at once.

    Attributes:
        server: Its number.
        reads: Cells, and the values that stand for what they hold before.
        calls: What is computed there, in this order.
        assigned: Cells, and the values that they are to hold at last.
    """

    server: int
    reads: tuple[tuple[int, int], ...] = ()
    calls: tuple[ServerCall, ...] = ()
    assigned: tuple[tuple[int, int], ...] = ()

    @property
    def is_change(self) -> bool:
        """Whether it changes what cells hold."""
        return bool(self.assigned) or any(call.written or call.assigned for call in self.calls)

    @functools.cached_property
    def sent(self) -> tuple[int, ...]:
        """The values that are sent, each once."""
        of_calls = [value for call in self.calls for value in (*call.operands, *(v for _, v in call.assigned))]
        return tuple(dict.fromkeys([*of_calls, *(value for _, value in self.assigned)]))

    @functools.cached_property
    def returned(self) -> tuple[int, ...]:
        """The values that come back."""
        return (*(v for _, v in self.reads), *(v for call in self.calls for v in call.results if v is not None))

    @property
    def parts(self) -> frozenset[str]:
        """The names of what the server has to have."""
        return frozenset(call.part for call in self.calls)


Round = tuple[Message, ...]
"""Messages to different servers, which answer side by side."""


@final
@dataclasses.dataclass(frozen=True)
class Plan:
    """What a worker runs.

    Attributes:
        name: By which others know it.
        arguments: The values that it is given.
        constants: Values that are known.
        steps: Computations, and what is asked of servers, in this order.
        results: The values that it returns.
    """

    name: str
    arguments: tuple[int, ...]
    constants: Mapping[int, np.ndarray]
    steps: tuple[Call | Round, ...]
    results: tuple[int, ...]

    @property
    def messages(self) -> list[Message]:
        """All messages to servers."""
        return [message for step in self.steps if not isinstance(step, Call) for message in step]

    @property
    def parts(self) -> frozenset[str]:
        """The names of what the worker computes."""
        return frozenset(step.part for step in self.steps if isinstance(step, Call))
