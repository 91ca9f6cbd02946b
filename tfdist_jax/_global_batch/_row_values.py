"""What is known of a value of a program: what it has to do with the rows of a batch."""

import dataclasses
import enum
from fractions import Fraction
from typing import Any, final

import numpy as np
from jax.extend.core import JaxprEqn

from tfdist_jax._user_code import describe_line, is_user_file


class RowKind(enum.Enum):
    """What a value has to do with the rows of a batch."""

    ZERO = "zero"
    SAME = "the same, whatever the rows"
    COUNT = "a number of rows, times what is the same"
    INVERSE_COUNT = "one over a number of rows, times what is the same"
    SUM = "a sum over the rows"
    MEAN = "a mean over the rows"
    ROWS = "something for each row"
    ROWS_PER_COUNT = "something for each row, over a number of rows"
    PLACES = "something for each place in a part, whichever row is there"
    SHARED = "something for each row of all replicas, which all of them have"
    REPLICA = "the replica's own, whatever its rows"
    PART = "a part of what lies on several devices"
    BLOCKS = "different for blocks of the rows, which consist of other rows on each replica"
    OTHER = "neither a sum nor a mean over the rows"


@final
@dataclasses.dataclass(frozen=True)
class Order:
    """In which order an array has its rows, and whether it tells blocks of them apart.

    Attributes:
        blocks: Dimensions along which entries belong to different blocks of rows. One of rows is among them if they are out of order.
        prefix: How many entries, of another dimension, lie along the dimension of rows before a row comes next.
        uniform: Dimensions along which all entries are the same, or random numbers.
        turns: Loops of which it belongs to one turn, which has one of the blocks: their operations' identities.
        varies: Loops in each turn of which it is something else, whatever the rows.
        is_mixed: Whether blocks were told apart, and not all added up again.
        origin: The operation that made blocks.
    """

    blocks: frozenset[int] = frozenset()
    prefix: int = 1
    uniform: frozenset[int] = frozenset()
    turns: frozenset[int] = frozenset()
    varies: frozenset[int] = frozenset()
    is_mixed: bool = False
    origin: JaxprEqn | None = dataclasses.field(default=None, compare=False)

    @property
    def is_plain(self) -> bool:
        """Whether rows are as in the batch, and no blocks told apart."""
        return not (self.blocks or self.turns or self.is_mixed) and self.prefix == 1


@final
@dataclasses.dataclass(frozen=True)
class Value:
    """What is known of a value.

    Attributes:
        kind: What it has to do with rows.
        source: The argument that it is, unchanged: its index among all leaves of the arguments.
        culprit: The operation that has made it what cannot be put together.
        order: How its rows lie.
        known: What it is, here and where there are more rows, if it follows from constants alone and is small.
        numbering: Which entries along its last dimension number the rows, 0, 1, 2 and so on, where the others have nothing to do with
            places; one entry stands for all. None if that is not known.
    """

    kind: RowKind
    source: int | None = None
    culprit: JaxprEqn | None = None
    order: Order = Order()
    known: tuple[np.ndarray, np.ndarray] | None = dataclasses.field(default=None, compare=False)
    numbering: tuple[bool, ...] | None = dataclasses.field(default=None, compare=False)

    @property
    def where(self) -> str:
        """The line of the program that has made it so; empty if nobody knows."""
        return line_of(self.culprit) if self.culprit is not None else ""


def line_of(eqn: JaxprEqn) -> str:
    """Return the user's innermost line that has made an operation, as "train.py:57 (`loss = x.std()`)"; empty if there is none."""
    traceback = eqn.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if is_user_file(frame.file_name):
            return describe_line(frame.file_name, frame.line_num)
    return ""


class UnlikeError(Exception):
    """The program for all rows is another one."""


@final
@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation of a program, and the one in its place where there are more rows.

    Attributes:
        eqn: The operation.
        twin: The other one.
        ratio: How many times as many rows there are.
    """

    eqn: JaxprEqn
    twin: JaxprEqn
    ratio: Fraction

    @property
    def name(self) -> str:
        """The name of the primitive."""
        return self.eqn.primitive.name

    def grown(self, operand: int) -> tuple[int, ...]:
        """Return the dimensions of an operand that depend on the number of rows."""
        return grown(self.eqn.invars[operand], self.twin.invars[operand])

    def grown_result(self, index: int = 0) -> tuple[int, ...]:
        """Return the dimensions of a result that depend on the number of rows."""
        return grown(self.eqn.outvars[index], self.twin.outvars[index])

    def has_rows(self, operand: int) -> bool:
        """Whether one dimension of an operand has grown as the rows have, so that a sum over it is one over rows."""
        dimensions = self.grown(operand)
        shape, twin_shape = self.operand(operand).shape, _aval(self.twin.invars[operand]).shape
        return len(dimensions) == 1 and twin_shape[dimensions[0]] == self.ratio * shape[dimensions[0]]

    def operand(self, index: int) -> Any:
        """Return the shape and type of an operand."""
        return _aval(self.eqn.invars[index])

    def twin_operands(self) -> list[tuple[int, ...]]:
        """Return the shapes of the operands where there are more rows."""
        return [_aval(var).shape for var in self.twin.invars]

    def twin_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of the operand and of the result where there are more rows, so that no dimension of rows is one."""
        return _aval(self.twin.invars[0]).shape, _aval(self.twin.outvars[0]).shape

    def largest_result(self) -> int:
        """Return how many entries the largest result has, here or where there are more rows."""
        return max(_aval(var).size for eqn in (self.eqn, self.twin) for var in eqn.outvars)

    def result(self, index: int = 0) -> Any:
        """Return the shape and type of a result."""
        return _aval(self.eqn.outvars[index])


def grown(one: Any, twin: Any) -> tuple[int, ...]:
    """Return the dimensions in which two variables of programs differ.

    Raises:
        UnlikeError: If they have not equally many.
    """
    if len(one.aval.shape) != len(twin.aval.shape):
        raise UnlikeError("with the rows of all replicas it has arrays of other dimensions")
    return grown_shape(one.aval.shape, twin.aval.shape)


def grown_shape(shape: tuple[int, ...], twin: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions in which two shapes differ."""
    return tuple(i for i, sizes in enumerate(zip(shape, twin, strict=True)) if sizes[0] != sizes[1])


def _aval(var: Any) -> Any:
    return var.aval


FIXED = frozenset({RowKind.ZERO, RowKind.SAME})
OF_THE_BATCH = frozenset({RowKind.SUM, RowKind.MEAN, RowKind.OTHER})
WITH_ROWS = frozenset({RowKind.ROWS, RowKind.ROWS_PER_COUNT, RowKind.PLACES})
