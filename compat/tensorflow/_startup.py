"""What must be settled before Keras and JAX start: Keras's backend, and TensorFlow's environment variables.

Imported first by the facade. Keras reads its backend once, when it is imported; programs may set it to
"tensorflow" before that, or have it in keras.json.
"""

import importlib.abc
import logging
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, final

import jax

from tfdist_jax._internals import backends_are_initialized
from tfdist_jax._user_code import see_as_library

_logger = logging.getLogger("tfdist_jax")


@final
class _StartFinder:
    """Notices that Keras is imported, and that JAX is about to start on an accelerator."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """Leave finding to the other finders; for `keras`, put a loader around the one that they find."""
        if name.startswith("jax_plugins."):
            # JAX imports its plugins when the first device is asked for, and reads its memory settings then.
            apply_environment()
        if name != "keras":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _KerasLoader(spec.loader)
        return spec


@final
class _KerasLoader(importlib.abc.Loader):
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


def _prepare_keras() -> None:
    """Make Keras start on JAX, or hook the one that is loaded.

    Raises:
        RuntimeError: If Keras is loaded with another backend.
    """
    os.environ["KERAS_BACKEND"] = "jax"
    if "keras" in sys.modules:
        from tfdist_jax.compat.tensorflow.keras._install import install

        install()


# TensorFlow's variable and value, and the setting of JAX's that does the same.
_MEMORY_SETTINGS = {
    ("TF_FORCE_GPU_ALLOW_GROWTH", "true"): ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    ("TF_FORCE_GPU_ALLOW_GROWTH", "false"): ("XLA_PYTHON_CLIENT_PREALLOCATE", "true"),
    ("TF_GPU_ALLOCATOR", "cuda_malloc_async"): ("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"),
}


def apply_environment() -> None:
    """Give JAX's memory settings the values that TensorFlow's environment variables ask for.

    A setting of JAX's own stays. Called when JAX starts, since programs set the variables after their imports, and
    whenever the program asks about devices, to say so if it set them too late.
    """
    missing = {
        setting: value
        for (variable, wanted), (setting, value) in _MEMORY_SETTINGS.items()
        if os.environ.get(variable, "").lower() == wanted and setting not in os.environ
    }
    os.environ.update(missing)
    if missing and backends_are_initialized() and jax.default_backend() == "gpu":
        _logger.warning("JAX has started already: %s take(s) effect in the next run only.", ", ".join(missing))


def set_preallocation(whole: bool) -> None:
    """Let JAX take an accelerator's memory at once, or as it is needed."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true" if whole else "false"


see_as_library("keras")
sys.meta_path.insert(0, _StartFinder())
_prepare_keras()
apply_environment()
