"""Modules that are run when something of theirs is asked for, and not when they are imported."""

import importlib.abc
import sys
import threading
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, final

_TPU_ATTENTION = "jax.experimental.pallas.ops.tpu.splash_attention"

# What Keras loads at its start and few programs use. Scikit-learn, Matplotlib and SciPy take as long as all the rest.
DEFERRED = frozenset(
    (
        "jax.experimental.sparse.linalg",
        _TPU_ATTENTION,
        f"{_TPU_ATTENTION}.splash_attention_kernel",
        f"{_TPU_ATTENTION}.splash_attention_mask",
        "keras.src.visualization",
        *(f"{keras}.{name}" for keras in ("keras", "keras._tf_keras.keras") for name in ("visualization", "wrappers")),
    )
)


def defer(spec: ModuleSpec) -> ModuleSpec:
    """Change a module's spec so that the module is run when it is used first; an error of its imports comes there."""
    if spec.loader is not None:
        spec.loader = _DeferringLoader(spec.loader)
    return spec


def _run(module: Any) -> bool:
    return module.__spec__.loader.run(module)


@final
class _Deferred(ModuleType):
    """A module that has not been run; it becomes an ordinary one when it is. What Python itself notes in modules runs nothing."""

    def __getattr__(self, name: str) -> Any:
        is_noted_by_python = (name.startswith("__") and name != "__all__") or f"{self.__name__}.{name}" in DEFERRED
        if is_noted_by_python or not _run(self):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self, name)

    def __dir__(self) -> Iterable[str]:
        _run(self)
        return ModuleType.__dir__(self)


@final
class _DeferringLoader(importlib.abc.Loader):
    """Puts running a module off. `importlib.util.LazyLoader` shows other threads modules that are half run."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._lock = threading.RLock()
        self._is_running = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the module."""
        return _Deferred(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing yet; run a module again that was run, as `importlib.reload` wants it."""
        if type(module) is not _Deferred:
            self._loader.exec_module(module)

    def run(self, module: Any) -> bool:
        """Run the module, after the one that it lies in, unless that was done; return False if this thread is at it."""
        outer = sys.modules.get(module.__name__.rpartition(".")[0])
        if type(outer) is _Deferred:
            _run(outer)
        with self._lock:
            if self._is_running:
                return False
            if type(module) is _Deferred:
                self._is_running = True
                try:
                    self._loader.exec_module(module)
                    module.__class__ = ModuleType  # pyright: ignore[reportAttributeAccessIssue]
                finally:
                    self._is_running = False
            return True
