"""`tf.test`: what there is to test with."""

import unittest
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._devices import has_plugin
from tfdist_jax.compat.tensorflow._tensor import convert_to_tensor, is_tensor
from tfdist_jax.compat.tensorflow.config._devices import list_logical_devices


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


class TestCase(unittest.TestCase):
    """A test case that compares tensors.

    See https://www.tensorflow.org/api_docs/python/tf/test/TestCase. Difference: only the comparisons are there.
    """

    def assertAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None) -> None:
        """Fail unless two structures of tensors are nearly equal."""
        self._compare(a, b, lambda x, y: np.testing.assert_allclose(x, y, rtol, atol, err_msg=msg or ""))

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Fail unless two structures of tensors are equal."""
        self._compare(a, b, lambda x, y: np.testing.assert_array_equal(x, y, err_msg=msg or ""))

    def evaluate(self, tensors: Any) -> Any:
        """Return tensors as NumPy arrays."""
        return np.asarray(convert_to_tensor(tensors))

    def _compare(self, a: Any, b: Any, compare: Any) -> None:
        if isinstance(a, dict):
            self.assertEqual(a.keys(), b.keys())
            a, b = list(a.values()), [b[key] for key in a]
        if isinstance(a, list | tuple) and any(is_tensor(item) for item in a):
            self.assertEqual(len(a), len(b))
            for x, y in zip(a, b, strict=True):
                self._compare(x, y, compare)
        else:
            compare(np.asarray(a), np.asarray(b))


def main(argv: list[str] | None = None) -> None:
    """Run the tests of the script."""
    unittest.main(argv=argv)
