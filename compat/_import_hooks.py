"""Settles what must be settled before Keras and JAX start: Keras's backend, and TensorFlow's environment variables.

Keras reads its backend once, when it is imported; programs may set it to "tensorflow" before that, or have it in keras.json.
"""

import functools
import importlib.abc
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, final

from tfdist_jax._garbage_collection import importing_modules
from tfdist_jax._user_code import see_as_library
from tfdist_jax.compat._deferred_module import DEFERRED, defer
from tfdist_jax.compat.tensorflow._platform._environment import apply_environment


@functools.cache
def install() -> None:
    """Notice from now on that Keras is imported, and that JAX starts; Keras that is loaded already gets its hooks.

    Raises:
        RuntimeError: If Keras is loaded with another backend than JAX.
    """
    see_as_library("keras")
    sys.meta_path.insert(0, _StartFinder())
    os.environ["KERAS_BACKEND"] = "jax"
    if "keras" in sys.modules:
        _hook_keras()
    apply_environment()


@final
class _StartFinder:
    """Notices that Keras is imported, and that JAX is about to start on an accelerator."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """Leave finding to the other finders; for `keras` and what it need not load yet, put a loader around theirs."""
        if name.startswith("jax_plugins."):
            # JAX imports its plugins when the first device is asked for, and reads its memory settings then.
            apply_environment()
        if name != "keras" and name not in DEFERRED:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is None or spec.loader is None:
            return spec
        if name in DEFERRED:
            return defer(spec)
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
        with importing_modules():
            self._loader.exec_module(module)
            _hook_keras()


def _hook_keras() -> None:
    from tfdist_jax.compat.tensorflow.keras._install import install as install_hooks

    install_hooks()
