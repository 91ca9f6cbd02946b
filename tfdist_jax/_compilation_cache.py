"""Compiled programs, kept in a folder for later processes: JAX's persistent compilation cache, in files of its own.

JAX writes its files in place, so that a killed process leaves half of one and others read it meanwhile. It bounds them only with the
help of another package, by a lock around every read. And it loads what XLA then says may crash.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import logging
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import jax

from tfdist_jax import _internals

VARIABLE = "TFDIST_COMPILATION_CACHE"
"""The environment variable that names another folder, or says that there is none."""

OFF = "off"
"""Stands for no folder."""

_LIMIT_BYTES = 1_000_000_000
# Of the 22 programs that `fit` of a small CNN starts with, 8 compile for longer than this, which is 96 % of the time; JAX's own limit
# of a second would keep one. Loading takes 5-10 ms.
_MIN_COMPILE_S = 0.05
_PROBE_TIMEOUT_S = 120

_SUFFIX = "-cache"
_MAX_NAME = 200
_DIGEST_BYTES = hashlib.sha256().digest_size

# Compiles a program and loads it. XLA only says on stderr that a program may crash on this processor.
_PROBE = """
import jax
from jax.experimental import serialize_executable
compiled = jax.jit(lambda x: x @ x + 1).lower(jax.ShapeDtypeStruct((8, 8), "float32")).compile()
loaded = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
loaded(jax.numpy.ones((8, 8))).block_until_ready()
"""

# In the text of a compiled program: the first line of a computation, such as a loop's body, or a collective.
_COMPUTATION = re.compile(r"^\S.*\{$")
_COLLECTIVE = re.compile(
    r" (?:all-gather|all-reduce|all-to-all|collective-[a-z]+|ragged-all-to-all|reduce-scatter)(?:-start)?\("
)

_log = logging.getLogger("tfdist_jax")


def bypass_for_unordered_collectives() -> None:
    """Let programs be compiled each time that would wait for ever if they were loaded: on CPU, some with collectives in loops.

    XLA:CPU executes independent operations in any order, but collectives, on all devices, in that of the program. A program that has
    been written and read again has forgotten this for collectives of which one is in a loop or a branch, and the other is not: its
    parts no longer know that they use the same communicator. Holds for JAX's own cache too. Called on import.
    """
    _internals.bypass_compilation_cache(lambda platform, executable: platform == "cpu" and _loses_order(executable))


def _loses_order(executable: Any) -> bool:
    return any(_communicating_computations(module.to_string()) > 1 for module in executable.hlo_modules())


def _communicating_computations(hlo: str) -> int:
    """Return how many computations of a program have collectives."""
    computation, communicating = 0, set()
    for line in hlo.splitlines():
        if _COMPUTATION.match(line):
            computation += 1
        elif _COLLECTIVE.search(line):
            communicating.add(computation)
    return len(communicating)


def enable() -> None:
    """Let JAX load programs that earlier processes have compiled, and keep what it compiles.

    What the user has set for JAX's own cache counts before that, in the environment or in the program: a folder, a switch, limits.
    Nothing is read or written before the first compilation.
    """
    folder = find_folder()
    if folder is None:
        return
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _MIN_COMPILE_S)
    _internals.write_compilation_cache_in_all_processes()
    is_named, cache_of = bool(os.environ.get(VARIABLE)), functools.cache(functools.partial(CompilationCache, folder))

    def find(platform: str) -> CompilationCache | None:
        # XLA compiles for GPUs of several processes together: each waits for what the others have tried out, and for ever for one that
        # has loaded the program instead. Folders of their own need not hold the same; who names a folder can share it.
        return (
            None
            if platform == "gpu" and not is_named and _has_other_processes()
            else cache_of(is_probed=platform == "cpu")
        )

    _internals.replace_compilation_cache(find)


def find_folder() -> Path | None:
    """Return where compiled programs are kept, or None if they are not: the user's choice, or where the user's caches are."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return None if chosen == OFF else Path(chosen).absolute()
    with contextlib.suppress(RuntimeError):  # Some users have no home.
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tfdist_jax", "programs").absolute()
    return None


def _has_other_processes() -> bool:
    joined = _internals.joined_processes()
    return joined is not None and joined[1] > 1


@final
class CompilationCache:
    """Programs in files that are there whole or not at all; the least recently used ones go when they are too much.

    Where the folder cannot be used, a warning says so once, and everything is compiled.
    """

    def __init__(self, root: Path, *, is_probed: bool = True) -> None:
        """Keep programs in `root`, apart from those of other processors and versions.

        Args:
            root: The folder, which is made when something is written.
            is_probed: Whether to find out, before the first program is loaded, if this processor can do that.
        """
        self._root = root
        self._is_probed = is_probed
        self._size: int | None = None

    def get(self, key: str) -> bytes | None:
        """Return a program, or None if it has to be compiled."""
        with self._surviving():
            program = _read_program(self._file(key))
            return program if program is not None and self._loads else None

    def put(self, key: str, value: bytes) -> None:
        """Keep a program."""
        if len(value) > _limit_bytes():
            return
        with self._surviving():
            if not self.find_problem():
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # What others put there would be run.
                self._make_room(len(value))
                _write_whole(self._file(key), hashlib.sha256(value).digest() + value)

    def find_problem(self) -> str | None:
        """Return why this processor cannot load what it has compiled: empty if it can, None if it has not been tried."""
        if not self._is_probed:
            return ""
        with contextlib.suppress(FileNotFoundError):
            return self._problem_file.read_text()
        return None

    @functools.cached_property
    def _loads(self) -> bool:
        problem = self.find_problem()
        if problem is None:
            with self._surviving():
                problem = _probe()
                _write_whole(self._problem_file, problem.encode())
        return problem == ""

    @functools.cached_property
    def _folder(self) -> Path:
        key = hashlib.sha256(f"{platform.machine()} {_processor()}".encode()).hexdigest()[:12]
        return self._root / f"jaxlib-{importlib.metadata.version('jaxlib')}-{key}"

    @property
    def _problem_file(self) -> Path:
        return self._folder / "reload_problem"

    def _file(self, key: str) -> Path:
        return self._folder / f"{key[-_MAX_NAME:]}{_SUFFIX}"

    def _make_room(self, size: int) -> None:
        """Keep count of what is there, and look again when it might be too much: other processes write, too."""
        if self._size is None or self._size + size > _limit_bytes():
            self._size = _remove_oldest(self._root, _limit_bytes() - size)
        self._size += size

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except (OSError, subprocess.SubprocessError) as error:
            _warn_once(
                f"Compiled programs cannot be kept in {self._root}: {getattr(error, 'strerror', None) or error}. Programs go on, and "
                f"compile what they need. Name another folder by {VARIABLE} or --compilation-cache, or say {OFF!r} there."
            )


@functools.cache
def _warn_once(message: str) -> None:
    _log.warning(message)


def _limit_bytes() -> int:
    chosen = _internals.setting("jax_compilation_cache_max_size")
    return _LIMIT_BYTES if chosen < 0 else chosen


def _read_program(path: Path) -> bytes | None:
    """Return a program and mark it as used; None if it is not there, or damaged, as by a machine that lost its power."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    program = data[_DIGEST_BYTES:]
    if hashlib.sha256(program).digest() != data[:_DIGEST_BYTES]:
        path.unlink(missing_ok=True)
        return None
    with contextlib.suppress(OSError):  # A folder that cannot be written can still be read.
        os.utime(path)
    return program


def _write_whole(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _remove_oldest(root: Path, limit: int) -> int:
    """Where programs, of all processors and versions, have more than `limit` bytes, remove a tenth more than is too much.

    Returns:
        How many bytes are left.
    """
    files = []
    for path in root.glob(f"jaxlib-*/*{_SUFFIX}*"):  # With those that killed processes have begun.
        with contextlib.suppress(FileNotFoundError):  # Other processes remove, too.
            about = path.stat()
            files.append((about.st_mtime_ns, about.st_size, path))
    left = sum(size for _, size, _ in files)
    aim = left if left <= limit else limit * 9 // 10
    for _, size, path in sorted(files):
        if left <= aim:
            break
        path.unlink(missing_ok=True)
        left -= size
    return left


def _processor() -> str:
    """Return what a compiled program depends on besides the version."""
    with contextlib.suppress(OSError):
        about = Path("/proc/cpuinfo").read_text()
        return "".join(
            sorted({line for line in about.splitlines() if line.startswith(("model name", "flags", "Features"))})
        )
    return platform.processor()


def _probe() -> str:
    """Return what XLA says of a program that this processor has compiled and loads, or nothing.

    Some Intel processors refuse their own: https://github.com/jax-ml/jax/issues/38445. Another process tries that, as it may crash.

    Raises:
        SubprocessError: If it ends otherwise.
    """
    given = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_", "TF_CPP_"))}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROBE],
        env={**given, "JAX_PLATFORMS": "cpu"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PROBE_TIMEOUT_S,
    )
    if ran.returncode not in (0, -signal.SIGILL):
        raise subprocess.SubprocessError(
            f"trying to load a program ended with exit code {ran.returncode}: {ran.stderr}"
        )
    return ran.stderr or ("" if ran.returncode == 0 else "the program is killed by SIGILL")
