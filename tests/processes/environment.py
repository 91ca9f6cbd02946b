"""The environment and the patience of processes that tests start."""

import os
import types
from collections.abc import Mapping
from pathlib import Path

import jax

from tfdist_jax import _compilation_cache

# How long a test waits for what must happen. On a busy machine a process may get a tenth of its time.
LIMIT_S = 300
# Longer than that, as an option: what happens sooner has another cause.
NEVER_S = str(2 * LIMIT_S)

# What a user's shell would not set; a program that a test starts must find its own way.
_NOT_INHERITED = ("JAX_", "XLA_", "TF_", "TFDIST_", "KERAS_", "NPROC", "CUDA_", "PYTEST_")

# What XLA compiles is kept for all processes and later runs, also what compiles in no time.
_CACHE = {
    _compilation_cache.VARIABLE: os.environ.get("TFDIST_TEST_CACHE")
    or str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tfdist_jax", "tests")),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}

# XLA compiles small programs in a quarter of the time (jax 0.12, which has one kind of emitters for fusions: two thirds) into slower
# ones that compute the same.
_QUICK_COMPILATION = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1" + (
    " --xla_cpu_use_fusion_emitters=false" if jax.__version_info__ < (0, 11) else ""
)
COMPILATION = _CACHE | {"XLA_FLAGS": os.environ.get("TFDIST_TEST_XLA_FLAGS", _QUICK_COMPILATION)}


def clean(home: Path, changes: Mapping[str, str] = types.MappingProxyType({})) -> dict[str, str]:
    """Return what a user's shell would have, changed; warnings are shown, and compiled programs are those of all tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    return kept | COMPILATION | {"HOME": str(home), "PYTHONWARNINGS": "default"} | changes
