"""What must be settled before Keras and JAX start: Keras's backend, and TensorFlow's environment variables.

Imported first by the facade. Keras reads its backend once, when it is imported; programs may set it to
"tensorflow" before that, or have it in keras.json.
"""

import importlib.machinery
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, final

from tfdist_jax._internals import backends_are_initialized

_logger = logging.getLogger("tfdist_jax")


@final
class _KerasFinder:
    """Finds `keras`, and sees to it that it starts on JAX and hooked."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """Return the module's own spec with a loader that prepares and finishes the import."""
        if name != "keras":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _KerasLoader(spec.loader)
        return spec


@final
class _KerasLoader:
    """Loads Keras with its JAX backend and puts the hooks in."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        """Let Python make the module."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module with the backend set, whatever the program or keras.json say."""
        os.environ["KERAS_BACKEND"] = "jax"
        self._loader.exec_module(module)
        from tfdist_jax.compat.tensorflow.keras._install import install

        install()


def prepare_keras() -> None:
    """Make Keras start on JAX, or hook the one that is loaded.

    Raises:
        RuntimeError: If Keras is loaded with another backend.
    """
    os.environ["KERAS_BACKEND"] = "jax"
    if "keras" in sys.modules:
        from tfdist_jax.compat.tensorflow.keras._install import install

        install()
    elif not any(isinstance(finder, _KerasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _KerasFinder())


_TRUE = ("1", "true", "yes")


def apply_environment() -> None:
    """Give JAX's memory settings the values that TensorFlow's environment variables ask for.

    A setting of JAX's own stays. Called when the facade is imported and again before it first uses devices, since
    programs set the variables after their imports.
    """
    wanted = {}
    if os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "").lower() in _TRUE:
        wanted["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if os.environ.get("TF_GPU_ALLOCATOR") == "cuda_malloc_async":
        wanted["XLA_PYTHON_CLIENT_ALLOCATOR"] = "cuda_async"
    missing = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(missing)
    if missing and backends_are_initialized():
        _logger.warning("JAX has started already: %s take(s) effect in the next run only.", ", ".join(missing))


def set_preallocation(whole: bool) -> None:
    """Let JAX take an accelerator's memory at once, or as it is needed."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true" if whole else "false"


prepare_keras()
apply_environment()
