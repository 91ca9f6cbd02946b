"""Floating point operations of a compiled program, counted in its text: `cost_analysis()` counts the body of a loop once."""

import collections
import dataclasses
import math
import re
from collections.abc import Mapping
from typing import final

import numpy as np

from tfdist_jax._explain._hlo import Array, Computation, Instruction, Module, arrays_in

# Custom calls of XLA itself that compute nothing.
_HARMLESS = frozenset(
    {
        "AllocateBuffer",
        "AsyncCollectiveStart",
        "AsyncCollectiveDone",
        "ConcatBitcast",
        "Sharding",
        "SPMDFullToShardShape",
    }
)


@final
@dataclasses.dataclass(frozen=True)
class Flops:
    """Floating point operations of the matrix products and convolutions of a step, on one device.

    What is computed again in the backward pass counts again. A multiplication and an addition are two operations.

    Attributes:
        count: How many; of loops whose number of rounds is not known, those of one round; of conditionals, the largest branch.
        is_exact: Whether there are no such loops and conditionals.
        not_counted: What may compute and cannot be looked into, such as kernels of Pallas: name to how many of them there are.
    """

    count: int
    is_exact: bool
    not_counted: Mapping[str, int]


def count_flops(module: Module) -> Flops:
    """Count the operations of a program's matrix products and convolutions."""
    count, is_exact = _count_in(module, module.computations[module.entry])
    targets = collections.Counter(filter(None, (_unknown(one.instruction) for one in module.executed())))
    return Flops(count, is_exact, dict(sorted(targets.items())))


def _count_in(module: Module, computation: Computation) -> tuple[int, bool]:
    """Return how many operations a computation has, and whether that is exact."""
    total, is_exact = 0, True
    for instruction in computation.instructions.values():
        total += _count_one(computation, instruction)
        calls = [
            (call, _count_in(module, module.computations[call.computation]))
            for call in module.calls(computation, instruction)
        ]
        branches = [count for call, (count, _) in calls if call.is_branch]
        total += max(branches, default=0)
        total += sum(
            count * (1 if call.times is None else call.times) for call, (count, _) in calls if not call.is_branch
        )
        is_exact &= len(set(branches)) < 2
        is_exact &= all(inside and (call.times is not None or not count) for call, (count, inside) in calls)
    return total, is_exact


# What gives names to what is there, or is counted where it runs.
_NOTHING_WRITTEN = frozenset(
    {
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "after-all",
        "while",
        "conditional",
        "call",
        "iota",
    }
)


def count_bytes_written(module: Module) -> int:
    """Return about how many bytes a program's operations write, in loops as often as these turn, of branches the most.

    A fusion writes its result alone. What changes a part of an array in place writes that part.
    """
    return _count_written_in(module, module.computations[module.entry])


def _count_written_in(module: Module, computation: Computation) -> int:
    total = 0
    for instruction in computation.instructions.values():
        if instruction.opcode not in _NOTHING_WRITTEN:
            total += _count_written(module, computation, instruction)
            continue
        calls = [
            (call, _count_written_in(module, module.computations[call.computation]))
            for call in module.calls(computation, instruction)
        ]
        total += max((count for call, count in calls if call.is_branch), default=0)
        total += sum(count * (call.times or 1) for call, count in calls if not call.is_branch)
    return total


def _count_written(module: Module, computation: Computation, instruction: Instruction) -> int:
    if instruction.opcode == "fusion":
        (fused,) = module.calls(computation, instruction)
        inside = module.computations[fused.computation]
        root = inside.source(inside.root)
        made = [inside.source(name) for name in root.operands] if root and root.opcode == "tuple" else [root]
        return sum(_count_written(module, inside, one) for one in made if one is not None)
    if instruction.opcode == "dynamic-update-slice":
        return _array(computation, instruction.operands[1]).num_bytes
    return sum(array.num_bytes for array in instruction.arrays)


def _count_one(computation: Computation, instruction: Instruction) -> int:
    """Return how many floating point operations an instruction has by itself, if it is a product of matrices or a convolution."""
    arrays = instruction.arrays
    if not arrays or arrays[0].dtype[0] not in "fbc":
        return 0
    # A complex product has four real ones.
    per_product = 8 if arrays[0].dtype[0] == "c" else 2
    match instruction.operation:
        case "dot":
            contracted = instruction.numbers("lhs_contracting_dims")
            return per_product * _products(computation, instruction, contracted)
        case "custom-call" if _is_gemm(instruction):
            found = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', instruction.attributes)
            contracted = [int(number) for number in re.findall(r"\d+", found[1] if found else "")]
            return per_product * _products(computation, instruction, contracted)
        case "convolution":
            given, kernel = (_array(computation, name) for name in instruction.operands)
            return per_product * _convolution_products(instruction, given, kernel)
        case _:
            return 0


def _unknown(instruction: Instruction) -> str:
    """Return the name of what may compute and is not counted; empty for what is, or does not compute."""
    if instruction.operation in ("ragged-dot", "scaled-dot"):
        return instruction.operation
    if instruction.operation != "custom-call" or _is_gemm(instruction) or instruction.names("called_computations"):
        return ""
    target = instruction.attribute("custom_call_target").strip('"')
    return "" if target in _HARMLESS else target


def _is_gemm(instruction: Instruction) -> bool:
    """Whether it calls a matrix product of NVIDIA's cuBLAS."""
    return instruction.attribute("custom_call_target").startswith('"__cublas$')


def _array(computation: Computation, name: str) -> Array:
    return arrays_in(computation.instructions[name].result)[0]


def _products(computation: Computation, instruction: Instruction, contracted: list[int]) -> int:
    given = _array(computation, instruction.operands[0])
    return math.prod(instruction.arrays[0].shape) * math.prod(given.shape[dimension] for dimension in contracted)


def _convolution_products(instruction: Instruction, given: Array, kernel: Array) -> int:
    """Return how many products a convolution adds up, without those with padding and with zeros put between its inputs."""
    labels = re.split("_|->", instruction.attribute("dim_labels"))
    size = lambda array, part, label: array.shape[labels[part].index(label)]
    products = size(given, 0, "b") * size(given, 0, "f") * size(kernel, 1, "o")
    for spatial in sorted(set(labels[0]) - {"b", "f"}):
        window = _window(instruction, int(spatial))
        products *= _count_places(
            size(given, 0, spatial), size(kernel, 1, spatial), size(instruction.arrays[0], 2, spatial), window
        )
    groups = [instruction.numbers(key) or [1] for key in ("feature_group_count", "batch_group_count")]
    return products // (groups[0][0] * groups[1][0])


def _window(instruction: Instruction, dimension: int) -> dict[str, int]:
    """Return the stride, low padding and dilations of a convolution along a dimension."""
    written = dict(part.split("=") for part in instruction.attribute("window").split())
    along = lambda key, default: written[key].split("x")[dimension] if key in written else default
    return {
        "stride": int(along("stride", "1")),
        "pad": int(along("pad", "0_0").split("_")[0]),
        "lhs_dilate": int(along("lhs_dilate", "1")),
        "rhs_dilate": int(along("rhs_dilate", "1")),
    }


def _count_places(given: int, kernel: int, made: int, window: Mapping[str, int]) -> int:
    """Return for how many pairs of an element of the kernel and one of the result there is an element of the input."""
    starts = np.arange(made) * window["stride"] - window["pad"]
    total = 0
    for element in range(kernel):
        places = starts + element * window["rhs_dilate"]
        total += int(
            ((places >= 0) & (places % window["lhs_dilate"] == 0) & (places // window["lhs_dilate"] < given)).sum()
        )
    return total
