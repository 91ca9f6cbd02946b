"""The TensorFlow version whose API the facade follows. Nothing of TensorFlow itself is here."""

from typing import Any

from tfdist_jax.compat.tensorflow._platform._devices import has_plugin

VERSION = "2.21.0"
GIT_VERSION = "v2.21.0"
COMPILER_VERSION = "XLA (jaxlib)"
GRAPH_DEF_VERSION = 0
GRAPH_DEF_VERSION_MIN_CONSUMER = 0
GRAPH_DEF_VERSION_MIN_PRODUCER = 0


def get_build_info() -> dict[str, Any]:
    """Return what programs ask of a build: whether JAX's CUDA or ROCm plugin is installed."""
    return {"is_cuda_build": has_plugin("cuda"), "is_rocm_build": has_plugin("rocm"), "is_tensorrt_build": False}
