"""`tf.test.TestCase`: assertions about tensors."""

import contextlib
import functools
import os
import random
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, final

import ml_dtypes
import numpy as np
from absl.testing import absltest

from tfdist_jax.compat.tensorflow._platform._devices import parse_device
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError, OpError
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._nest import map_structure
from tfdist_jax.compat.tensorflow._tensors._tensor import is_tensor
from tfdist_jax.compat.tensorflow.random._random_state import set_seed

_SEED = 87654321
_SHAPES = "Incompatible shapes|Dimensions must be equal|required broadcastable shapes"
_PROTOCOL_BUFFERS = "TensorFlow's protocol buffers are not there. Compare fields with assertEqual."


class TestCase(absltest.TestCase):
    """Drop-in for `tf.test.TestCase`: absl's assertions, and those about tensors. Each test starts with the same seeds.

    Differs from TensorFlow: protocol buffers are not compared, and sessions are those of eager mode.
    Ref: https://www.tensorflow.org/api_docs/python/tf/test/TestCase
    """

    def setUp(self) -> None:
        """Seed the random numbers of Python, NumPy and `tf.random`."""
        super().setUp()
        random.seed(_SEED)
        np.random.seed(_SEED)
        set_seed(_SEED)

    def get_temp_dir(self) -> str:
        """Return a folder for the files of this test."""
        if not hasattr(self, "_folder"):
            above = absltest.get_default_test_tmpdir()
            os.makedirs(above, exist_ok=True)
            self._folder = tempfile.mkdtemp(dir=above)
        return self._folder

    def evaluate(self, tensors: Any) -> Any:
        """Return a structure's tensors as NumPy arrays; what is callable is called."""
        return map_structure(_value_of, tensors() if callable(tensors) else tensors)

    def evaluate_if_both_tensors(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Return both as arrays if both are tensors, otherwise as they are."""
        return (self.evaluate(a), self.evaluate(b)) if is_tensor(a) and is_tensor(b) else (a, b)

    @contextlib.contextmanager
    def session(
        self, graph: Any = None, config: Any = None, use_gpu: bool = True, force_gpu: bool = False
    ) -> "Iterator[_EagerSession]":
        """Give something whose `run` evaluates tensors."""
        yield _EagerSession(self)

    cached_session = test_session = session

    def checkedThread(
        self, target: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> "_CheckedThread":
        """Return a thread whose `join` fails the test if `target` has raised."""
        return _CheckedThread(self, target, args or (), kwargs or {})

    @contextlib.contextmanager
    def captureWritesToStream(self, stream: IO[str]) -> "Iterator[_Written]":
        """Collect what is written to `sys.stdout` or `sys.stderr`."""
        redirect = contextlib.redirect_stdout if stream is sys.stdout else contextlib.redirect_stderr
        with tempfile.TemporaryFile("w+") as file, redirect(file):
            yield _Written(file)

    def assertAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None) -> None:
        """Fail unless two structures of tensors are nearly equal.

        Raises:
            ValueError: If their structures differ.
        """
        self._all_close(a, b, rtol, atol, msg or "", "")

    def _all_close(self, a: Any, b: Any, rtol: float, atol: float, msg: str, path: str) -> None:
        a, b = _as_structure(a), _as_structure(b)
        if isinstance(a, Mapping) != isinstance(b, Mapping):
            raise ValueError(f"Can't compare dict to non-dict, a{path} vs b{path}. {msg}")
        if isinstance(a, Mapping):
            self.assertCountEqual(a.keys(), b.keys(), f"mismatched keys: a{path} and b{path}. {msg}")
            for key in a:
                self._all_close(a[key], b[key], rtol, atol, msg, f"{path}[{key}]")
        elif (arrays := _as_arrays(a, b)) is not None:
            self._arrays_close(*arrays, rtol, atol, f"Mismatched value: a{path} is different from b{path}. {msg}")
        else:
            self.assertEqual(len(a), len(b), f"Mismatched lengths of a{path} and b{path}. {msg}")
            for i, (one, other) in enumerate(zip(a, b, strict=True)):
                self._all_close(one, other, rtol, atol, msg, f"{path}[{i}]")

    def _arrays_close(self, a: np.ndarray, b: np.ndarray, rtol: float, atol: float, msg: str) -> None:
        self.assertEqual(a.shape, b.shape, f"Shape mismatch: expected {a.shape}, got {b.shape}. {msg}")
        a, b = (x.astype(np.float32) if x.dtype == ml_dtypes.bfloat16 else x for x in (a, b))
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=msg)

    def assertAllCloseAccordingToType(
        self,
        a: Any,
        b: Any,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        float_rtol: float = 1e-6,
        float_atol: float = 1e-6,
        half_rtol: float = 1e-3,
        half_atol: float = 1e-3,
        bfloat16_rtol: float = 1e-2,
        bfloat16_atol: float = 1e-2,
        msg: str | None = None,
    ) -> None:
        """Fail unless two tensors are nearly equal, as nearly as their types can be."""
        one, other = _array_of(a), _array_of(b)
        limits = {
            ("float32", "complex64"): (float_rtol, float_atol),
            ("float16",): (half_rtol, half_atol),
            ("bfloat16",): (bfloat16_rtol, bfloat16_atol),
        }
        for types, (least_rtol, least_atol) in limits.items():
            if one.dtype.name in types or other.dtype.name in types:
                rtol, atol = max(rtol, least_rtol), max(atol, least_atol)
        self.assertAllClose(one, other, rtol, atol, msg)

    def assertNotAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None) -> None:
        """Fail if two structures of tensors are nearly equal."""
        try:
            self.assertAllClose(a, b, rtol, atol)
        except AssertionError:
            return
        raise AssertionError(f"The two values are close at all elements. {msg or ''}")

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Fail unless two tensors are equal; numbers that are not one (NaN) are equal."""
        one, other = _array_of(a), _array_of(b)
        self.assertEqual(
            one.shape, other.shape, f"Shape mismatch: expected {one.shape}, got {other.shape}. {msg or ''}"
        )
        if not np.all(_equal(one, other)):
            raise AssertionError(f"Arrays are not equal: {one} and {other}. {msg or ''}")

    def assertNotAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Fail if two tensors are equal."""
        try:
            self.assertAllEqual(a, b)
        except AssertionError:
            return
        raise AssertionError(f"The two values are equal at all elements. {msg or ''}")

    def assertAllGreater(self, a: Any, comparison_target: Any) -> None:
        """Fail unless all elements are greater."""
        self.assertGreater(np.min(_array_of(a)), comparison_target)

    def assertAllLess(self, a: Any, comparison_target: Any) -> None:
        """Fail unless all elements are less."""
        self.assertLess(np.max(_array_of(a)), comparison_target)

    def assertAllGreaterEqual(self, a: Any, comparison_target: Any) -> None:
        """Fail unless all elements are greater or equal."""
        self.assertGreaterEqual(np.min(_array_of(a)), comparison_target)

    def assertAllLessEqual(self, a: Any, comparison_target: Any) -> None:
        """Fail unless all elements are less or equal."""
        self.assertLessEqual(np.max(_array_of(a)), comparison_target)

    def assertAllInRange(
        self,
        target: Any,
        lower_bound: Any,
        upper_bound: Any,
        open_lower_bound: bool = False,
        open_upper_bound: bool = False,
    ) -> None:
        """Fail unless all elements are numbers between two bounds, of which an open one is not allowed itself."""
        values = _array_of(target)
        if not np.issubdtype(values.dtype, np.floating) and not np.issubdtype(values.dtype, np.integer):
            raise AssertionError(f"The value of {target} does not have an ordered numeric type, but {values.dtype}.")
        is_low = values <= lower_bound if open_lower_bound else values < lower_bound
        is_high = values >= upper_bound if open_upper_bound else values > upper_bound
        outside = is_low | is_high | np.isnan(values)
        if np.any(outside):
            raise AssertionError(f"{values[outside]} are not between {lower_bound} and {upper_bound}.")

    def assertAllInSet(self, target: Any, expected_set: Any) -> None:
        """Fail unless all elements are in a set."""
        others = np.setdiff1d(_array_of(target).reshape(-1), list(expected_set))
        if others.size:
            raise AssertionError(f"{others.size} unique element(s) are not in the set {expected_set}: {others}")

    def assertDTypeEqual(self, target: Any, expected_dtype: Any) -> None:
        """Fail unless a tensor, or each in a list, has a NumPy type."""
        for each in target if isinstance(target, list) else [target]:
            self.assertEqual(_array_of(each).dtype, getattr(expected_dtype, "as_numpy_dtype", expected_dtype))

    def assertShapeEqual(self, input_a: Any, input_b: Any, msg: str | None = None) -> None:
        """Fail unless two tensors or arrays have the same shape.

        Raises:
            TypeError: If one is neither.
        """
        for each in (input_a, input_b):
            if not is_tensor(each) and not isinstance(each, np.ndarray | np.generic):
                raise TypeError(f"A shape is that of a tensor or an array, got {type(each).__name__}.")
        self.assertAllEqual(np.shape(_array_of(input_a)), np.shape(_array_of(input_b)), msg)

    def assertNear(self, f1: Any, f2: Any, err: float, msg: str | None = None) -> None:
        """Fail unless two numbers are at most `err` apart."""
        self.assertTrue(f1 == f2 or abs(f1 - f2) <= err, f"{f1!r} != {f2!r} +/- {err!r}. {msg or ''}")

    def assertArrayNear(self, farray1: Any, farray2: Any, err: float, msg: str | None = None) -> None:
        """Fail unless two lists of numbers are at most `err` apart, each from its counterpart."""
        self.assertEqual(len(farray1), len(farray2), msg)
        for one, other in zip(farray1, farray2, strict=True):
            self.assertNear(float(one), float(other), err, msg)

    def assertNDArrayNear(self, ndarray1: Any, ndarray2: Any, err: float, msg: str | None = None) -> None:
        """Fail unless the difference of two arrays is shorter than `err`."""
        self.assertLess(np.linalg.norm(np.asarray(ndarray1) - np.asarray(ndarray2)), err, msg)

    def assertDeviceEqual(self, device1: Any, device2: Any, msg: str | None = None) -> None:
        """Fail unless two names stand for the same device."""
        self.assertEqual(parse_device(str(device1 or "")), parse_device(str(device2 or "")), msg)

    @contextlib.contextmanager
    def assertRaisesWithPredicateMatch(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, exception_type: type[BaseException], expected_err_re_or_predicate: Any
    ) -> Iterator[None]:
        """Fail unless an exception is raised whose message has a pattern, or of which a function says True."""
        wanted = expected_err_re_or_predicate
        is_wanted = wanted if callable(wanted) else lambda error: re.search(wanted, str(error)) is not None
        try:
            yield
        except Exception as error:
            if not isinstance(error, exception_type) or not is_wanted(error):
                raise AssertionError(f"Exception of type {type(error).__name__}: {error}") from error
        else:
            self.fail(f"{exception_type.__name__} not raised")

    def assertRaisesOpError(self, expected_err_re_or_predicate: Any) -> Any:
        """Fail unless an error of `tf.errors` is raised whose message has a pattern."""
        return self.assertRaisesWithPredicateMatch(OpError, expected_err_re_or_predicate)

    def assertRaisesIncompatibleShapesError(self, exception_type: Any = InvalidArgumentError) -> Any:
        """Fail unless shapes are refused."""
        return self.assertRaisesRegex(exception_type, _SHAPES)

    def assertProtoEquals(self, *args: Any, **kwargs: Any) -> None:
        """Refuse: there are no protocol buffers."""
        raise NotImplementedError(_PROTOCOL_BUFFERS)

    assertProtoEqualsVersion = assertProtoEquals


def _value_of(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else value


def _array_of(value: Any) -> np.ndarray:
    value = _value_of(value)
    if isinstance(value, list | tuple):
        value = map_structure(_value_of, value)
    try:
        return np.array(value, object) if isinstance(value, HostTensor | str | bytes) else np.asarray(value)
    except ValueError:  # A list whose parts differ in shape.
        return np.array(value, object)


def _as_structure(value: Any) -> Any:
    return value._asdict() if hasattr(value, "_asdict") else value


def _as_arrays(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return two values as arrays; None if they are structures whose parts differ in shape."""
    arrays = _array_of(a), _array_of(b)
    is_structure = any(array.dtype == object for array in arrays) and isinstance(a, list | tuple)
    return None if is_structure else arrays


def _equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    equal = np.asarray(a == b)
    if all(np.issubdtype(x.dtype, np.inexact) for x in (a, b)):
        equal |= np.isnan(a) & np.isnan(b)
    return equal


@final
class _EagerSession:
    """What `session` gives where everything has run already."""

    def __init__(self, case: TestCase) -> None:
        self._case = case

    def run(self, fetches: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the values of tensors.

        Raises:
            NotImplementedError: If values are fed.
        """
        if kwargs.pop("feed_dict", None):
            raise NotImplementedError("feed_dict is not supported in eager mode: pass the values to the function.")
        return self._case.evaluate(fetches)

    def close(self) -> None:
        """Do nothing."""


@final
class _CheckedThread:
    """A thread that keeps what is raised in it until it is joined."""

    def __init__(self, case: TestCase, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._case, self._target = case, functools.partial(target, *args, **kwargs)
        self._thread = threading.Thread(target=self._run)
        self._error: Exception | None = None

    def _run(self) -> None:
        try:
            self._target()
        except Exception as error:
            self._error = error

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread, and fail the test if its function has raised."""
        self._thread.join()
        if self._error is not None:
            self._case.fail(f"Error in checkedThread: {self._error}")

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()


@final
class _Written:
    """What was written to a stream."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def contents(self) -> str:
        """Return it as a string."""
        self._file.flush()
        self._file.seek(0)
        return self._file.read()
