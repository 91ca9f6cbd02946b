"""Functions as StableHLO, by `jax.export`: what they compute of their tensors and of the values of variables."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.export
import numpy as np
from jax.extend.core import jaxpr_as_fun

from tfdist_jax._errors import NotCompilableError
from tfdist_jax._stateful._capture import Captured
from tfdist_jax._stateful._state import Cell, load
from tfdist_jax.compat.tensorflow._functions._concrete_function import ConcreteFunction, merged
from tfdist_jax.compat.tensorflow._functions._results import restore_constants
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host_part import HostValueRequiredError
from tfdist_jax.compat.tensorflow._tensors._ordered import restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow.saved_model._structures import NotSavableError

_PLATFORMS = ("cpu", "cuda", "tpu")
_RANKS = 6  # Scalars, up to batches of volumes with channels.
_TEXTS = (
    "it computes with strings or tables, or takes elements of an iterator, which the host does before a program runs, and a SavedModel "
    "holds programs only. Save a function of the elements, or of what the strings become, such as the model behind its TextVectorization "
    "or StringLookup; a Keras model is saved whole by `model.save('name.keras')`"
)


class Exported(NamedTuple):
    """A function for one signature, to be written.

    Attributes:
        code: The program: `[n]` uint8.
        cells: What holds the values that it takes behind its tensors.
        written: Which of these it gives new values, which it returns behind its results.
        outputs: Its results as specs.
        not_differentiable: Why it has no gradient, or None.
    """

    code: np.ndarray
    cells: tuple[Cell, ...]
    written: tuple[Cell, ...]
    outputs: Any
    not_differentiable: str | None


def export_by_rank(concrete: ConcreteFunction) -> dict[int, Exported]:
    """Return a function that takes tensors of unknown rank as a program for each rank, the same for all of these.

    Ranks for which there is no such program, as of a product of matrices for scalars, are left out.

    Raises:
        NotSavableError: If there is none at all.
    """
    found: dict[int, Exported] = {}
    failure: NotSavableError | None = None
    for rank in range(_RANKS):
        unknown = TensorShape([None] * rank)
        specs = [TensorSpec(unknown, spec.dtype) if spec.shape.rank is None else spec for spec in concrete.inputs]
        try:
            found[rank] = export(concrete, specs)
        except NotSavableError as error:
            failure = error
    if not found and failure is not None:
        raise failure
    return found


def outputs_of_ranks(found: Mapping[int, Exported]) -> Any:
    """Return what the results of programs for several ranks have in common, as specs; those of the smallest rank if nothing."""
    first, *others = [each.outputs for each in found.values()]
    is_spec = lambda value: isinstance(value, TensorSpec)
    for other in others:
        if jax.tree.structure(first, is_leaf=is_spec) == jax.tree.structure(other, is_leaf=is_spec):
            first = jax.tree.map(merged, first, other, is_leaf=is_spec)
    return first


def export(concrete: ConcreteFunction, specs: Sequence[TensorSpec]) -> Exported:
    """Return a function as StableHLO, for all sizes that its signature leaves open.

    Args:
        concrete: The function.
        specs: Those of its tensors, in the order of its `inputs`, of known ranks.

    Raises:
        NotSavableError: If it does what a program alone cannot do.
    """
    if any(spec.dtype == "string" for spec in specs):
        raise NotSavableError(_TEXTS)
    failure: Exception | None = None
    for types in _types_to_try(specs):
        try:
            captured = _captured(concrete, types)
            code, not_differentiable = _serialized(captured, types)
        except HostValueRequiredError as error:
            raise NotSavableError(_TEXTS) from error
        except NotCompilableError as error:
            raise NotSavableError(
                f"it cannot be one compiled program: {error} Save a function of tensors whose sizes follow from its arguments' sizes"
            ) from error
        except NotSavableError:
            raise
        except Exception as error:
            failure = error
            continue
        outputs = _outputs(captured)
        return Exported(code, captured.cells, captured.written, outputs, not_differentiable)
    has_unknown = any(not spec.shape.is_fully_defined() for spec in specs)
    hint = "Give its TensorSpecs the sizes that it needs in place of None, or leave out" if has_unknown else "Leave out"
    raise NotSavableError(
        f"it cannot be written as StableHLO: {type(failure).__name__}: {failure}. {hint} what this names"
    ) from failure


def _types_to_try(specs: Sequence[TensorSpec]) -> Iterator[list[jax.ShapeDtypeStruct]]:
    """Yield types with symbols for unknown sizes: each its own, and then the same one for all first axes."""
    yield _types(specs, is_shared=False)
    if sum(bool(spec.shape.rank) and spec.shape[0] is None for spec in specs) > 1:
        yield _types(specs, is_shared=True)


def _types(specs: Sequence[TensorSpec], *, is_shared: bool) -> list[jax.ShapeDtypeStruct]:
    scope, names = jax.export.SymbolicScope(), (f"d{i}" for i in itertools.count())

    def of(spec: TensorSpec) -> jax.ShapeDtypeStruct:
        sizes = [
            str(size) if size is not None else "batch" if is_shared and axis == 0 else next(names)
            for axis, size in enumerate(spec.shape)
        ]
        return jax.ShapeDtypeStruct(jax.export.symbolic_shape(",".join(sizes), scope=scope), spec.dtype.dtype)

    return [of(spec) for spec in specs]


def _captured(concrete: ConcreteFunction, types: Sequence[Any]) -> Captured:
    program = concrete.program_for(types)
    captured = program.captured
    if not program.is_whole:
        raise NotSavableError(_TEXTS)
    if captured.mesh is not None:
        raise NotSavableError(
            "it calls `strategy.run`, and a saved function is for one device: save what a replica computes"
        )
    if captured.checks:
        raise NotSavableError(
            "it checks tensors' values on the host when it has run, as tf.debugging.assert_equal does: leave the checks out of it"
        )
    if captured.jaxpr.effects:
        raise NotSavableError(
            "it calls Python or prints when it runs, as tf.print, tf.py_function and tf.numpy_function do, and a SavedModel holds no "
            "Python: leave that out of it"
        )
    if any(cell.storage.per_replica for cell in captured.cells):
        raise NotSavableError(
            "it uses a variable of which each replica has a value of its own (synchronization=ON_READ): leave it out, or make the "
            "variable outside of the strategy's scope"
        )
    return captured


def _serialized(captured: Captured, types: Sequence[jax.ShapeDtypeStruct]) -> tuple[np.ndarray, str | None]:
    of_cells = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in map(load, captured.cells)]
    program = jax.jit(jaxpr_as_fun(captured.jaxpr))
    with jax.enable_x64(True):  # Otherwise types of 64 bits would become narrower ones.
        exported = _exported(program, [*types, *of_cells])
        try:
            code, reason = exported.serialize(vjp_order=1), None
        except Exception as error:  # JAX tells in many ways that an operation has no gradient.
            code, reason = exported.serialize(vjp_order=0), f"{type(error).__name__}: {error}"
    return np.frombuffer(bytes(code), np.uint8), reason


def _exported(fn: Any, types: Sequence[jax.ShapeDtypeStruct]) -> jax.export.Exported:
    """Return a function for all platforms that it can be lowered for here; some need libraries that are not installed."""
    try:
        return jax.export.export(fn, platforms=_PLATFORMS)(*types)
    except Exception:
        own = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
        found = [platform for platform in _PLATFORMS if platform != own and _can_be_lowered(fn, types, platform)]
        return jax.export.export(fn, platforms=(own, *found))(*types)


def _can_be_lowered(fn: Any, types: Sequence[jax.ShapeDtypeStruct], platform: str) -> bool:
    try:
        jax.export.export(fn, platforms=(platform,))(*types)
    except Exception:  # Why it cannot be does not matter: the program is not for that platform.
        return False
    return True


def _outputs(captured: Captured) -> Any:
    shapes = captured.jaxpr.out_avals[: captured.out_tree.num_leaves]
    known = lambda size: size if isinstance(size, int) else None
    specs = [TensorSpec(TensorShape([known(size) for size in aval.shape]), as_dtype(aval.dtype)) for aval in shapes]
    return restore_dict_order(restore_constants(captured.out_tree.unflatten(specs)))
