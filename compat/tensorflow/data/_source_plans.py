"""Plans that elements come from: arrays, files' names, generators, numbers."""

import dataclasses
import functools
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._dtypes import int64
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.data import _elements, _order
from tfdist_jax.compat.tensorflow.data._plan import INFINITE, Plan, Rows, Stream, Uncounted, made_once, rows_at_once
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog, SeedSource

_INT64_MAX = np.iinfo(np.int64).max


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FromTensorSlices(Rows):
    """The rows of arrays."""

    tensors: Any

    def __post_init__(self) -> None:
        shapes = [column.shape for column in _elements.leaves(self.tensors)]
        if len({shape[0] for shape in shapes if shape}) != 1 or () in shapes:
            raise ValueError(f"Slices need arrays with the same first dimension, got the shapes {shapes}.")

    def get(self, positions: np.ndarray) -> Any:
        return _elements.pick(self.tensors, positions)

    def order(self, seed_log: SeedLog) -> Iterator[np.ndarray]:
        return _order.in_order(self.cardinality())

    @made_once
    def make_spec(self) -> Any:
        return _elements.unbatched_spec(_elements.spec_of(self.tensors))

    def cardinality(self) -> int:
        return len(_elements.leaves(self.tensors)[0])

    def at_once(self) -> int:
        return rows_at_once(self.make_spec())


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ListFiles(Rows):
    """Names of files, of which an iteration may be given a part."""

    names: np.ndarray

    def get(self, positions: np.ndarray) -> Any:
        return _elements.pick(self.names, positions)

    def order(self, seed_log: SeedLog) -> Iterator[np.ndarray]:
        return _order.cut(seed_log.own_files(np.arange(len(self.names))))

    def make_spec(self) -> Any:
        return _elements.unbatched_spec(_elements.spec_of(self.names))

    def cardinality(self) -> int:
        return len(self.names)

    def at_once(self) -> int:
        return rows_at_once(self.make_spec())


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FromTensors(Stream):
    """One element."""

    tensors: Any

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return iter([self.tensors])

    def make_spec(self) -> Any:
        return _elements.spec_of(self.tensors)

    def cardinality(self) -> int:
        return 1


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Elements(Stream):
    """Elements that are there already; `like` is their spec, or the plan that they come from."""

    items: Sequence[Any]
    like: Any = dataclasses.field(repr=False)

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return iter(self.items)

    def make_spec(self) -> Any:
        return self.like.make_spec() if isinstance(self.like, Plan) else self.like

    def cardinality(self) -> int:
        return len(self.items)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FromGenerator(Uncounted):
    """What a generator function yields, which is called for each iteration."""

    generator: Callable[..., Any]
    args: Sequence[Any]
    output_signature: Any
    _begun: list[Callable[[], Any]] = dataclasses.field(default_factory=list, init=False, repr=False)

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        source = self.generator(*self.args)
        if seed_log.is_again and any(begun() is source for begun in self._begun):
            raise RuntimeError(
                f"The iteration has to begin anew, to go to its place, but `generator` has returned the same {type(source).__name__} "
                "again, which has given elements already. Let it return a new iterator each time."
            )

        def note() -> Iterator[Any]:
            self._begun[:] = [_refer_to(source)]
            yield from ()

        # An iteration may go on after an element that does not fit: a generator expression would be over.
        return map(functools.partial(_yielded, self.output_signature), itertools.chain(note(), source))

    def make_spec(self) -> Any:
        return self.output_signature


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Random(Stream):
    """Random int64 numbers from 0 to the largest one, without end."""

    seed: SeedSource

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        generator = seed_log.generator(self.seed)
        return (generator.integers(_INT64_MAX, dtype=np.int64) for _ in itertools.count())

    def make_spec(self) -> Any:
        return TensorSpec(TensorShape([]), int64)

    def cardinality(self) -> int:
        return INFINITE


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Counter(Stream):
    """The numbers from `start` on, `step` apart, without end; `dtype` is TensorFlow's."""

    start: Any
    step: Any
    dtype: Any

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        dtype = self.dtype.as_numpy_dtype
        return (np.asarray(self.start + self.step * i, dtype)[()] for i in itertools.count())

    def make_spec(self) -> Any:
        return TensorSpec(TensorShape([]), self.dtype)

    def cardinality(self) -> int:
        return INFINITE


def _refer_to(source: Any) -> Callable[[], Any]:
    """Return what returns the object, or None once nobody else has it, if it can be asked that; None for what is no iterator."""
    if not isinstance(source, Iterator):
        return lambda: None
    try:
        return weakref.ref(source)
    except TypeError:
        return lambda: source


def _yielded(spec: Any, element: Any) -> Any:
    """Return what a generator has yielded as an element of a spec."""
    values: list[Any] = []
    try:
        _elements.map_structure(lambda _, value: values.append(value), spec, element)
    except (KeyError, TypeError, ValueError):
        raise invalid(
            "`generator` yielded an element that did not match the expected structure. The expected structure was "
            f"{spec}, but the yielded element was {element}."
        ) from None
    return _elements.rebuilt(spec, map(_yielded_array, _elements.leaves(spec), values))


def _yielded_array(spec: Any, value: Any) -> Any:
    """Convert by NumPy's rules, which are wider than those for tensors; a copy, since the generator may go on changing it."""
    if isinstance(value, Composite) or getattr(spec, "ragged_rank", 0):
        if not isinstance(spec, TensorSpec) and spec.is_compatible_with(value):
            return value
        raise invalid(f"`generator` yielded {value}, which is not compatible with {spec}.")
    try:
        is_text = spec.dtype.name == "string"
        array = np.array(convert_to_tensor(value, spec.dtype) if is_text else value)
        array = array.astype(spec.dtype.as_numpy_dtype, copy=False)
    except (TypeError, ValueError):
        raise invalid(
            "`generator` yielded an element that could not be converted to the expected type. The expected type was "
            f"{spec.dtype.name}, but the yielded element was {value}."
        ) from None
    if not spec.shape.is_compatible_with(array.shape):
        raise invalid(
            f"`generator` yielded an element of shape {array.shape} where an element of shape {spec.shape} was expected."
        )
    return spec.as_row(array) if hasattr(spec, "as_row") else array
