"""A compiled program as text (`compiled.as_text()`): its computations, how often each runs, and which lines they come from."""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import final

from tfdist_jax._user_code import describe_line, is_user_file

_HEADER = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.-]+) = (.*?) ([a-z][a-z0-9-]*)\((.*)$")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+[a-z0-9]*)\[([\d,<=]*)\]")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_MOVES = ("copy", "bitcast", "copy-done", "copy-start")
# Where an instruction runs other computations, but for loops and conditionals. What reductions combine with is not among them.
_CALLING = {
    "fusion": ("calls",),
    "call": ("to_apply",),
    "async": ("calls",),
    "custom-call": ("called_computations",),
}
# What is started gives what it was given, and what it will make.
_PAIRS = ("all-gather-start", "collective-permute-start")


@final
@dataclasses.dataclass(frozen=True)
class Array:
    """The type of an array: `bf16`, and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """How many bytes it has, without what a device fills its tiles up with."""
        bits = 8 if self.dtype == "pred" else int(re.findall(r"\d+", self.dtype)[0])
        return -(-math.prod(self.shape) * bits // 8)


@final
@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation: `result opcode(arguments), attributes`."""

    name: str
    opcode: str
    result: str
    arguments: str
    attributes: str

    @property
    def operands(self) -> list[str]:
        """The names of the instructions whose results it takes."""
        return re.findall(r"%([\w.-]+)", self.arguments)

    @property
    def operation(self) -> str:
        """What it does, also if it only starts that: then its opcode ends with "-start"."""
        return self.opcode.removesuffix("-start")

    @property
    def arrays(self) -> list[Array]:
        """The arrays of its result, also if it only starts to make it."""
        parts = split_tuple(self.result)
        is_pair = self.opcode.endswith("-start") and (self.opcode in _PAIRS or parts[0].startswith("("))
        return arrays_in(parts[1] if is_pair else self.result)

    def attribute(self, key: str) -> str:
        """Return an attribute as it is written, without the braces around a list; empty if there is none."""
        found = re.search(rf"\b{key}=(\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}|[^,\s]+)", self.attributes)
        if found is None:
            return ""
        return found[1][1:-1] if found[1].startswith("{") else found[1]

    def numbers(self, key: str) -> list[int]:
        """Return the numbers of an attribute, such as dimensions."""
        return [int(number) for number in re.findall(r"\d+", self.attribute(key))]

    def names(self, key: str) -> list[str]:
        """Return the names of computations in an attribute."""
        return re.findall(r"%?([\w.-]+)", self.attribute(key))


@final
@dataclasses.dataclass(frozen=True)
class Computation:
    """Instructions by name, in the order in which they run."""

    name: str
    instructions: Mapping[str, Instruction]
    root: str

    def source(self, name: str) -> Instruction | None:
        """Return what has made a value, which may have been copied since."""
        found = self.instructions.get(name)
        while found is not None and found.opcode in _MOVES:
            found = self.instructions.get(found.operands[0])
        return found

    def constant(self, name: str) -> int | None:
        """Return a value that is a constant number."""
        found = self.source(name)
        is_number = found is not None and found.opcode == "constant" and re.fullmatch(r"-?\d+", found.arguments)
        return int(found.arguments) if found is not None and is_number else None

    def element(self, name: str) -> int | None:
        """Return which element of the computation's only argument, a tuple, a value is."""
        found = self.source(name)
        if found is None or found.opcode != "get-tuple-element":
            return None
        whole = self.source(found.operands[0])
        return int(found.attribute("index")) if whole is not None and whole.opcode == "parameter" else None


@final
@dataclasses.dataclass(frozen=True)
class Call:
    """A computation that an instruction runs.

    Attributes:
        computation: Its name.
        times: How often; None if that is not known before the program runs.
        is_branch: Whether it is one of several, of which one runs.
    """

    computation: str
    times: int | None = 1
    is_branch: bool = False


@final
@dataclasses.dataclass(frozen=True)
class Executed:
    """An instruction, and how often it runs.

    Attributes:
        instruction: The instruction.
        sequence: The computation to whose order it belongs: not a fusion's, which is one of its instructions.
        times: How often; None if that is not known before the program runs.
        is_branch: Whether it is in a branch, and so may not run.
    """

    instruction: Instruction
    sequence: str
    times: int | None
    is_branch: bool


@final
@dataclasses.dataclass(frozen=True)
class Module:
    """A compiled program.

    Attributes:
        computations: Its computations by name.
        entry: The name of the one that it begins with.
        tables: Where instructions come from, by the names and numbers under which XLA prints that.
    """

    computations: Mapping[str, Computation]
    entry: str
    tables: Mapping[str, Mapping[int, str]]

    def calls(self, computation: Computation, instruction: Instruction) -> list[Call]:
        """Return what an instruction runs."""
        match instruction.opcode:
            case "while":
                times = _trip_count(self, computation, instruction)
                (body,), (condition,) = instruction.names("body"), instruction.names("condition")
                return [Call(body, times), Call(condition, None if times is None else times + 1)]
            case "conditional":
                keys = ("branch_computations", "true_computation", "false_computation")
                return [Call(name, 1, is_branch=True) for key in keys for name in instruction.names(key)]
            case _:
                keys = _CALLING.get(instruction.operation, ())
                return [Call(name) for key in keys for name in instruction.names(key)]

    def executed(self) -> Iterator[Executed]:
        """Yield every instruction that a run of the program executes, in order, those of a loop's body once."""
        return self._executed(self.computations[self.entry], self.entry, 1, is_branch=False)

    def _executed(
        self, computation: Computation, sequence: str, times: int | None, *, is_branch: bool
    ) -> Iterator[Executed]:
        for instruction in computation.instructions.values():
            yield Executed(instruction, sequence, times, is_branch)
            for call in self.calls(computation, instruction):
                called = self.computations[call.computation]
                inside = sequence if instruction.operation == "fusion" else called.name
                often = None if times is None or call.times is None else times * call.times
                yield from self._executed(called, inside, often, is_branch=is_branch or call.is_branch)

    def user_line(self, instruction: Instruction) -> str:
        """Return the user's innermost line that an instruction comes from, as "train.py:57 (`loss = x.std()`)"; empty if none is known."""
        for filename, line in self._frames(instruction):
            if is_user_file(filename):
                return describe_line(filename, line)
        return ""

    def _frames(self, instruction: Instruction) -> Iterator[tuple[str, int]]:
        """Yield the files and lines of an instruction's frames, innermost first."""
        found = re.search(r"stack_frame_id=(\d+)", instruction.attributes)
        frames, frame = self.tables["StackFrames"], int(found[1]) if found else 0
        # A parent is printed with the number of the first frame's, which has none, added to it.
        above = _field(frames.get(1, ""), "parent_frame_id")
        for _ in frames:
            if frame not in frames:
                return
            location = self.tables["FileLocations"][_field(frames[frame], "file_location_id")]
            yield self.tables["FileNames"][_field(location, "file_name_id")].strip('"'), _field(location, "line")
            frame = _field(frames[frame], "parent_frame_id") - above


def parse_module(text: str) -> Module:
    """Parse a compiled program's text, as `compiled.as_text()` gives it."""
    tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}
    computations: dict[str, Computation] = {}
    entry, table = "", None
    instructions: dict[str, Instruction] = {}
    for line in text.splitlines():
        if header := _HEADER.match(line):
            table, name, instructions = None, header[2], {}
            computations[name] = Computation(name, instructions, "")
            entry = name if header[1] else entry
        elif line in tables:
            table = tables[line]
        elif table is not None and line:
            number, _, entry_of_table = line.partition(" ")
            table[int(number)] = entry_of_table
        elif found := _INSTRUCTION.match(line):
            is_root, name, result, opcode, rest = found.groups()
            arguments, _, attributes = rest.partition(")")
            instructions[name] = Instruction(name, opcode, result, arguments, attributes)
            if is_root:
                last = next(reversed(computations))
                computations[last] = Computation(last, instructions, name)
    return Module(computations, entry, tables)


@functools.lru_cache(maxsize=4096)
def _cached_arrays(text: str) -> tuple[Array, ...]:
    return tuple(
        Array(dtype, tuple(int(size.lstrip("<=")) for size in shape.split(",") if size))
        for dtype, shape in _ARRAY.findall(text)
    )


def arrays_in(text: str) -> list[Array]:
    """Return the arrays in a type, in order.

    Example:
        >>> arrays_in("(f32[8,2]{1,0:T(8,128)}, u32[]{:S(2)}, token[])")
        [Array(dtype='f32', shape=(8, 2)), Array(dtype='u32', shape=())]
    """
    return list(_cached_arrays(text))


def split_tuple(text: str) -> list[str]:
    """Return the types of a tuple's elements; of what is no tuple, its own.

    Example:
        >>> split_tuple("((f32[1], f32[2]{0:T(128)}), f32[8])")
        ['(f32[1], f32[2]{0:T(128)})', 'f32[8]']
    """
    if not text.startswith("("):
        return [text]
    parts, depth = [""], 0
    for letter in text[1:-1]:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _field(text: str, name: str) -> int:
    found = re.search(rf"\b{name}=(\d+)", text)
    return int(found[1]) if found else 0


def _trip_count(module: Module, caller: Computation, loop: Instruction) -> int | None:
    """Return how often a loop's body runs: as XLA says, or if it counts from one constant up to another."""
    if known := re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.attributes):
        return int(known[1])
    (condition,), (body,) = (map(module.computations.__getitem__, loop.names(key)) for key in ("condition", "body"))
    test, given = condition.instructions[condition.root], caller.source(loop.operands[0])
    if test.opcode != "compare" or test.attribute("direction") != "LT" or given is None or given.opcode != "tuple":
        return None
    counter, limit = condition.element(test.operands[0]), condition.constant(test.operands[1])
    if counter is None or limit is None:
        return None
    start, step = caller.constant(given.operands[counter]), _step(body, counter)
    return None if start is None or step is None else max(0, -(-(limit - start) // step))


def _step(body: Computation, counter: int) -> int | None:
    """Return what a loop's body adds to an element of what it takes; None if it does anything else, or nothing."""
    made = body.source(body.instructions[body.root].operands[counter])
    if made is None or made.opcode != "add":
        return None
    one, other = made.operands
    if body.element(one) != counter:
        one, other = other, one
    return (body.constant(other) or None) if body.element(one) == counter else None
