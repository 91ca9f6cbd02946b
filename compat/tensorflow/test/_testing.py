"""`tf.test`: what there is to test with."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from absl.testing import absltest

from tfdist_jax.compat.tensorflow._gradients._gradient_tape import GradientTape
from tfdist_jax.compat.tensorflow._platform._devices import has_plugin
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.config._devices import list_logical_devices


def compute_gradient(f: Any, x: Any, delta: float | None = None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the Jacobian matrices of a function, as gradients give them and as differences give them.

    See https://www.tensorflow.org/api_docs/python/tf/test/compute_gradient.

    Args:
        f: Takes tensors and returns one.
        x: A list of floating-point tensors.
        delta: How far apart the two points of a difference are, halved; 2 ** -10 if None.
    """
    if not isinstance(x, list):
        raise ValueError(f"`x` must be a list; got {type(x).__name__}")
    step = 2.0**-10 if delta is None else delta
    given = [np.asarray(convert_to_tensor(one)) for one in x]
    value = lambda points: np.asarray(f(*(convert_to_tensor(point) for point in points))).reshape(-1)
    tensors = [convert_to_tensor(point) for point in given]
    with GradientTape(persistent=True) as tape:
        for tensor in tensors:
            tape.watch(tensor)
        result = f(*tensors)
    by_tape = [tape.jacobian(result, tensor, unconnected_gradients="zero") for tensor in tensors]
    theory = tuple(np.asarray(one).reshape(-1, point.size) for one, point in zip(by_tape, given, strict=True))
    return theory, tuple(_differences(value, given, i, step) for i in range(len(given)))


def _differences(value: Any, given: list[np.ndarray], i: int, step: float) -> np.ndarray:
    columns = []
    for place in np.ndindex(given[i].shape):
        moved = [[point.copy() for point in given] for _ in range(2)]
        for points, by in zip(moved, (step, -step), strict=True):
            points[i][place] += by
        columns.append((value(moved[0]) - value(moved[1])) / (2 * step))
    return np.stack(columns, -1).astype(given[i].dtype)


def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: tuple[int, int] | None = None) -> bool:
    """Whether JAX has a GPU. The arguments are accepted: JAX runs on every GPU that it finds."""
    return bool(list_logical_devices("GPU"))


def gpu_device_name() -> str:
    """Return the name of the first GPU, or an empty string."""
    devices = list_logical_devices("GPU")
    return devices[0].name if devices else ""


def is_built_with_cuda() -> bool:
    """Whether JAX's CUDA plugin is installed."""
    return has_plugin("cuda")


def is_built_with_rocm() -> bool:
    """Whether JAX's ROCm plugin is installed."""
    return has_plugin("rocm")


def is_built_with_gpu_support() -> bool:
    """Whether a GPU plugin of JAX is installed."""
    return is_built_with_cuda() or is_built_with_rocm()


def is_built_with_xla() -> bool:
    """Return True: everything runs on XLA."""
    return True


def is_cpu_target_available(target: str) -> bool:
    """Return True: XLA compiles for this processor, whichever is named."""
    return True


def with_eager_op_as_function(cls: Any = None, only_as_function: bool = False) -> Any:
    """Return the class of tests as it is: operations are functions anyway."""
    return (lambda cls: cls) if cls is None else cls


def disable_with_predicate(pred: Callable[[], bool], skip_message: str) -> Callable[..., Any]:
    """Return a decorator that skips a test if `pred()` says so when it runs."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
            return self.skipTest(skip_message) if pred() else test(self, *args, **kwargs)

        return checked

    return decorate


def main(argv: list[str] | None = None) -> None:
    """Run the tests of the script."""
    absltest.main(argv=argv)
