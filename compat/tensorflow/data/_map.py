"""`Dataset.map`'s function: traced once, as in TensorFlow, and compiled for single elements and for whole batches."""

import logging
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from tfdist_jax import _state
from tfdist_jax.compat.tensorflow.data import _elements

_logger = logging.getLogger("tfdist_jax")

# What JAX raises when a function needs values that a trace does not have.
_NEEDS_VALUES = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError, NotImplementedError)


@final
class ElementFunction:
    """Runs a function of one element, on the host.

    The function is traced once, so that its Python side effects and NumPy random draws happen once, as TensorFlow's
    tracing has it. Functions of texts, or that need values, run in Python for each element.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        """Prepare `fn`; nothing is traced yet."""
        self._fn = fn
        self._device = jax.local_devices(backend="cpu")[0]
        self._template: Any = None
        self._single: Any = None
        self._many: Any = None
        self._decided = False

    def call(self, element: Any) -> Any:
        """Return the function's result for one element of arrays, as arrays."""
        if not self._compiles(element):
            result = self._fn(*_arguments(_elements.as_tensors(element)))
            return _elements.as_arrays(_tuple_of(result))
        with jax.enable_x64(True), jax.default_device(self._device):
            return self._result(self._single(_elements.leaves(element)))

    def call_rows(self, batch: Any, example: Callable[[], Any]) -> Any:
        """Return the results for all rows of `batch`, as arrays; `example` gives one element."""
        if not self._compiles(example()):
            return _elements.stack([self.call(row) for row in _elements.rows(batch)])
        with jax.enable_x64(True), jax.default_device(self._device):
            return self._result(self._many(_elements.leaves(batch)))

    def _result(self, arrays: Any) -> Any:
        return _elements.map_structure(np.asarray, jax.tree.unflatten(self._template, arrays))

    def _compiles(self, element: Any) -> bool:
        if not self._decided:
            self._decided = True
            if all(array.dtype.kind not in "OSU" for array in _elements.leaves(element)):
                self._trace(element)
        return self._single is not None

    def _trace(self, element: Any) -> None:
        def flat(arrays: list[jax.Array]) -> list[jax.Array]:
            remaining = iter(arrays)
            inputs = _elements.map_structure(lambda _: next(remaining), element)
            with _state.entering(_Frozen()):
                result = _tuple_of(self._fn(*_arguments(inputs)))
            result = _elements.map_structure(jnp.asarray, result)
            outputs, self._template = jax.tree.flatten(result)
            return outputs

        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in _elements.leaves(element)]
        try:
            with jax.enable_x64(True):
                traced = jax.make_jaxpr(flat)(shapes)
        except (*_NEEDS_VALUES, AttributeError) as error:
            _logger.info("map: %r runs in Python for each element: %s", self._fn, error)
            return
        run = jaxpr_as_fun(traced)
        self._single = jax.jit(lambda arrays: run(*arrays))
        self._many = jax.jit(jax.vmap(lambda arrays: run(*arrays)))


@final
class _Frozen(_state.Frame):
    """Inside a traced map function variables can be read; they count with the value they have now."""

    def read(self, cell: Any) -> jax.Array:
        return cell.stored

    def write(self, cell: Any, array: jax.Array, merge: Any) -> None:
        raise NotImplementedError("A variable is assigned inside a function given to Dataset.map.")


def _arguments(element: Any) -> tuple[Any, ...]:
    """TensorFlow hands a tuple's parts over as separate arguments, anything else as one."""
    return element if isinstance(element, tuple) and not hasattr(element, "_fields") else (element,)


def _tuple_of(result: Any) -> Any:
    """Lists of results are tuples to TensorFlow."""
    return tuple(result) if isinstance(result, list) else result


def call_in_python(fn: Callable[..., Any], element: Any) -> Any:
    """Call `fn` on one element's tensors, eagerly."""
    return fn(*_arguments(_elements.as_tensors(element)))
