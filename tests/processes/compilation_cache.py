"""What XLA has compiled for one process of the tests, the others load: a folder of programs, kept from run to run.

`TFDIST_TEST_CACHE` names another folder; an empty one turns it off. Where this processor cannot load what it has compiled itself
(https://github.com/jax-ml/jax/issues/38445), there is none.
"""

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, final

import jax
import jaxlib
from jax._src import compilation_cache as _compilation_cache
from jax._src.compilation_cache_interface import CacheInterface

_VARIABLE = "TFDIST_TEST_CACHE"
_LIMIT_BYTES = 2_000_000_000
_SUFFIX = "-cache"  # As JAX calls its files, which it shares with processes that do without `use`.


@final
class _WholeFiles(CacheInterface):
    """Programs in files that are there whole or not at all: JAX's own are read while they are written, and killed halfway."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def get(self, key: str) -> bytes | None:
        """Return a program, or None if it has not been compiled yet."""
        with contextlib.suppress(FileNotFoundError):
            return self._file(key).read_bytes()
        return None

    def put(self, key: str, value: bytes) -> None:
        """Keep a program."""
        descriptor, name = tempfile.mkstemp(dir=self._path)
        with open(descriptor, "wb") as file:
            file.write(value)
        os.replace(name, self._file(key))

    def _file(self, key: str) -> Path:
        return self._path / f"{key}{_SUFFIX}"


@functools.cache
def _processor() -> str:
    """Return what a compiled program depends on besides JAX."""
    with contextlib.suppress(OSError):
        about = Path("/proc/cpuinfo").read_text()
        return "".join(
            sorted({line for line in about.splitlines() if line.startswith(("model name", "flags", "Features"))})
        )
    return platform.processor()


def folder() -> Path | None:
    """Return where programs are kept on this machine, or None if they are not."""
    chosen = os.environ.get(_VARIABLE)
    if chosen == "":
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tfdist_jax", "tests")
    key = hashlib.sha256(f"{platform.machine()} {_processor()}".encode()).hexdigest()[:12]
    return Path(chosen or home, f"{jaxlib.__version__}-{key}")


def use(programs: str) -> None:
    """Let this process, and its forks, take programs from a folder and leave there what they compile."""
    _compilation_cache.get_file_cache = lambda path: (_WholeFiles(path), path)
    for name, value in _settings(programs).items():
        jax.config.update(name, value)


def variables() -> dict[str, str]:
    """Return the environment variables that let a process that is started do as this one, though it writes in place."""
    programs = jax.config.jax_compilation_cache_dir
    return {name.upper(): str(value) for name, value in _settings(programs).items()} if programs else {}


def _settings(programs: str) -> dict[str, Any]:
    return {
        "jax_compilation_cache_dir": programs,
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }


def prepare() -> str | None:
    """Return the folder, made and cleaned; None if there is none or if what lies there cannot be loaded."""
    programs = folder()
    if programs is None:
        return None
    works = programs / "works"
    if works.exists():
        _clean(programs, works.stat().st_mtime)
    programs.mkdir(parents=True, exist_ok=True)
    if not works.exists():
        works.write_text("".join(_try(programs) for _ in range(2)))
    works.touch()
    return None if works.read_text() else str(programs)


def _clean(programs: Path, since: float) -> None:
    """Remove what killed processes have left half written since then, and all if it is too much."""
    files = [entry for entry in os.scandir(programs) if entry.name.endswith(_SUFFIX)]
    if sum(file.stat().st_size for file in files) > _LIMIT_BYTES:
        shutil.rmtree(programs)
        return
    for file in files:
        if file.stat().st_mtime >= since:
            try:
                _compilation_cache.decompress_executable(Path(file).read_bytes())
            except Exception:  # Whatever the decompressor raises: which one JAX takes depends on what is installed.
                os.unlink(file)


def _try(programs: Path) -> str:
    """Return what XLA says of a program that is compiled or, the second time, loaded: nothing, or why it cannot be."""
    command = [sys.executable, __file__, str(programs)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stderr


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    use(sys.argv[1])
    jax.jit(lambda x: x @ x + 1)(jax.numpy.ones([8, 8])).block_until_ready()
