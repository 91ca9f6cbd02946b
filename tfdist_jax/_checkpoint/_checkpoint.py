"""Arrays in a folder that is there completely or not at all."""

import contextlib
import glob
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from tfdist_jax._checkpoint import _array_files, _integrity
from tfdist_jax._checkpoint._integrity import ABOUT, ABOUT_FILE, ARRAYS, HAS_DIGESTS

if TYPE_CHECKING:
    from etils import epath

PROCESSES = "processes"  # In that file: what each process has saved as its own, where it has no file for that.


# A URL, also one that `pathlib` has taken for a path.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")


class Together(NamedTuple):
    """How the processes of a program do what they can only do together.

    Attributes:
        run: A string that no run of the program before has had, so that nobody has to wait until old rests are removed.
        do: Does something, and raises if it, or the same thing in another process, has failed.
    """

    run: str
    do: Callable[[Callable[[], None]], None]


def local_path(path: str | Path) -> Path:
    """Return a path in this machine's files, where folders can be renamed in one step.

    Raises:
        NotImplementedError: If it is a URL of something else than a file.
    """
    url = _URL.match(str(path))
    if url is None:
        return Path(path)
    if url[1] != "file":
        raise NotImplementedError(
            f"Checkpoints are saved in folders of this machine or mounted on it, got {path}: save there, and copy each folder when it is "
            "complete, or mount the bucket. Only tfdist_jax.Checkpointer saves to gs://."
        )
    return Path("/", str(path)[url.end() :])


def begin_saving(path: str | Path, arrays: Mapping[str, Any], about: Mapping[str, Any]) -> Callable[[], None]:
    """Save arrays by name; take their values as they are now.

    The folder gets its name when everything is in it, on disk: whatever stops the process before leaves no such folder.

    Args:
        path: The folder to write; one that is there is replaced.
        arrays: JAX or NumPy arrays, of any sharding.
        about: What `read_about` returns, as JSON has it.

    Returns:
        The rest, for this thread or another one. A process that is one of several writes alone, without the others.
    """
    final = _absolute(path)
    by_number, text = number_arrays(arrays, about)
    part = _beside(final, f"new.part{_failures or ''}")
    if jax.process_count() > 1:
        copied = _array_files.copy_to_write_alone(by_number)

        def write() -> None:
            with alone_in(final.parent), _removing_rests(part):
                _make_empty(part)
                _array_files.write_alone(part / ARRAYS, copied)
                _complete(final, part, text)

        return write
    with _removing_rests(part):
        _make_empty(part)
        wait = _array_files.start_writing(part / ARRAYS, by_number)

    def finish() -> None:
        with _removing_rests(part):
            wait()
            _finish_writing(part)
            _complete(final, part, text)

    return finish


def begin_saving_together(
    path: str | Path, arrays: Mapping[str, Any], about: Mapping[str, Any], own: Any, together: Together
) -> Callable[[], None]:
    """Do as `begin_saving` in all processes at once, each writing the parts of arrays that it has.

    Args:
        path: A folder that all processes see.
        arrays: As in `begin_saving`.
        about: What `read_about` returns; the first process's counts.
        own: What `read_own` returns for this process, as JSON has it.
        together: What the processes have agreed on.
    """
    final = _absolute(path)
    part = _beside(final, f"new.{together.run}")
    is_first = jax.process_index() == 0
    by_number, text = number_arrays(arrays, about)

    def begin() -> Callable[[], None]:
        for name in (ARRAYS, ABOUT):
            (part / name).mkdir(parents=True, exist_ok=True)
        return _array_files.start_writing(part / ARRAYS, by_number)

    wait = defer_errors(begin)

    def write() -> None:
        wait()
        if jax.process_count() > 1:
            _write_own_digests(part)
        own_file = _own_file(part, jax.process_index())
        own_file.write_text(json.dumps(own))
        put_on_disk(own_file)

    def complete() -> None:
        if is_first:
            _finish_writing(part)
            _complete(final, part, text)

    def finish() -> None:
        with _removing_rests(part) if is_first else contextlib.nullcontext():
            together.do(write)
            together.do(complete)

    return finish


def defer_errors(begin: Callable[[], Callable[[], None]]) -> Callable[[], None]:
    """Begin; an error is raised by what is returned, where the other processes hear of it."""
    try:
        return begin()
    except Exception as error:
        failure = error

    def fail() -> None:
        raise failure

    return fail


def number_arrays(arrays: Mapping[str, Any], about: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what has elements, by numbers, since names of users' attributes are no file names; and what else is to be known."""
    names = sorted(arrays)
    described = {name: [list(np.shape(arrays[name])), str(arrays[name].dtype)] for name in names}
    # Orbax saves no array without elements; its shape and type say all.
    by_number = {str(i): arrays[name] for i, name in enumerate(names) if np.size(arrays[name])}
    return by_number, {"arrays": described, "about": dict(about)}


# How often saving has failed. Orbax's other writers may still write then, but not among what is saved next.
_failures = 0


@contextlib.contextmanager
def _removing_rests(part: Path) -> Iterator[None]:
    """Let nothing of what was not completed take room on a disk that may be full."""
    global _failures
    try:
        yield
    except BaseException:
        _failures += 1
        shutil.rmtree(part, ignore_errors=True)
        raise


def _make_empty(part: Path) -> None:
    for rest in part.parent.glob(f"{glob.escape(part.name.rstrip('0123456789'))}*"):
        shutil.rmtree(rest, ignore_errors=True)
    for name in (ARRAYS, ABOUT):
        (part / name).mkdir(parents=True)


def _finish_writing(part: Path) -> None:
    if jax.process_count() > 1:
        _array_files.finish_writing(part / ARRAYS)
        return
    with meanwhile(lambda: _write_own_digests(part)):
        _array_files.finish_writing(part / ARRAYS)


def _write_own_digests(part: Path) -> None:
    put_on_disk(_integrity.write_own_digests(part, jax.process_index()))


def _complete(final: Path, part: Path, text: Any) -> None:
    (part / ABOUT / ABOUT_FILE).write_text(json.dumps({**text, HAS_DIGESTS: True}))
    paths = [path for path in part.rglob("*") if path != part / ABOUT]
    with meanwhile(lambda: put_on_disk(_integrity.write_digests(part))):
        for path in (*paths, part):
            put_on_disk(path)
    put_on_disk(part / ABOUT)
    _settled(final)
    new, old = _beside(final, "new"), _beside(final, "old")
    shutil.rmtree(new, ignore_errors=True)
    part.rename(new)
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    _put_in_place(new, final)
    shutil.rmtree(old, ignore_errors=True)
    put_on_disk(final.parent)
    _integrity.note(final)


@contextlib.contextmanager
def meanwhile(do: Callable[[], None]) -> Iterator[None]:
    """Do something during the context; at the program's end, where from Python 3.12 on no thread can be started, after it."""
    failures = []

    def run() -> None:
        try:
            do()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    try:
        thread.start()
        wait = thread.join
    except RuntimeError:
        wait = run
    try:
        yield
    finally:
        wait()
    if failures:
        raise failures[0]


def put_on_disk(path: Path) -> None:
    """Return when a file, or the names in a folder, will be there after a loss of power, too."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_saved(path: str | Path) -> bool:
    """Tell whether a folder is one of saved arrays; what is gone of it since is for `must_be_whole` to find."""
    folder = _settled(path)
    return (folder / ABOUT).is_dir() or (folder / ARRAYS).is_dir()


def must_be_whole(path: str | Path) -> None:
    """Compare a folder of saved arrays with its digests; again, only if files have changed.

    Raises:
        DataLossError: If a file is gone, or does not hold what was written; it names the files and the arrays in them.
    """
    _integrity.must_be_whole(_settled(path))


def read_about(path: "str | Path | epath.Path") -> tuple[dict[str, tuple[tuple[int, ...], np.dtype]], dict[str, Any]]:
    """Return shape and dtype of the saved arrays by name, and what was saved beside them; reads no array.

    Raises:
        DataLossError: If a file that says so is damaged.
    """
    found = _read_about_file(path)
    arrays = {name: (tuple(shape), jax.numpy.dtype(dtype)) for name, (shape, dtype) in found["arrays"].items()}
    return arrays, found["about"]


def read_own(path: "str | Path | epath.Path") -> list[Any]:
    """Return what each process has saved as its own, in their order; nothing if one has saved alone."""
    about = _read_about_file(path)
    if PROCESSES in about:
        return about[PROCESSES]
    folder = _settled(path)
    found = []
    while (file := _own_file(folder, len(found))).exists():
        found.append(json.loads(file.read_text()))
    return found


def _read_about_file(path: "str | Path | epath.Path") -> dict[str, Any]:
    folder = _settled(path)
    if isinstance(folder, Path):
        _integrity.about_must_be_whole(folder)
    return json.loads((folder / ABOUT / ABOUT_FILE).read_text())


def _own_file(folder: Path, process: int) -> Path:
    return folder / ABOUT / f"process{process}.json"


def load_arrays(
    path: "str | Path | epath.Path",
    names: Iterable[str] | None = None,
    sharding_of: Callable[[str], jax.sharding.Sharding | None] | None = None,
) -> dict[str, Any]:
    """Return saved arrays by name, whatever devices and processes they were on when they were saved.

    Args:
        path: A folder of saved arrays.
        names: Which ones; all if None.
        sharding_of: The sharding to give an array, by its name; each device then reads its own part. On the host, as
            NumPy arrays, those without one.

    Raises:
        DataLossError: If a file of the folder is damaged; not in a bucket, whose service takes care of that.
    """
    if isinstance(path, str | Path):
        must_be_whole(path)
    types = read_about(path)[0]
    chosen = types.keys() if names is None else set(names)
    numbers = {str(i): name for i, name in enumerate(sorted(types)) if name in chosen}
    shardings = {number: sharding_of(name) for number, name in numbers.items()} if sharding_of is not None else {}
    given = {number: sharding for number, sharding in shardings.items() if sharding is not None}
    filled = {number: types[name][1] for number, name in numbers.items() if 0 not in types[name][0]}
    of_filled = {number: sharding for number, sharding in given.items() if number in filled}
    arrays = _array_files.read(_settled(path) / ARRAYS, filled, of_filled) if filled else {}
    for number, name in numbers.items():
        if number not in filled:
            empty = np.zeros(*types[name])
            arrays[number] = _array_files.lay_out(empty, given[number]) if number in given else empty
    return {name: arrays[number] for number, name in numbers.items()}


def delete(path: str | Path) -> None:
    """Remove a saved folder, if it is there; one that is half removed is never taken for complete."""
    with alone_in(_absolute(path).parent):
        final = _settled(path)
        old = _beside(final, "old")
        shutil.rmtree(old, ignore_errors=True)
        if final.exists():
            final.rename(old)
            shutil.rmtree(old, ignore_errors=True)


def clear_leftovers(folder: str | Path, prefix: str) -> None:
    """Remove what processes have left behind that were stopped while they saved or removed.

    Args:
        folder: Where no process of another program is saving under such names.
        prefix: How the names of the saved folders begin.
    """
    folder = _absolute(folder)
    with alone_in(folder):
        for path in folder.glob(f"{glob.escape(prefix)}*.old"):
            _settled(path.with_suffix(""))
            shutil.rmtree(path, ignore_errors=True)
        for path in folder.glob(f"{glob.escape(prefix)}*.new*"):
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let the processes of a program that write into the same folder do it one after the other; not to be nested."""
    if jax.process_count() == 1:
        yield
        return
    import fcntl  # Not on every system.

    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _is_complete(path: Path) -> bool:
    return (path / ABOUT).is_dir() and (path / ARRAYS).is_dir()


def _absolute(path: str | Path) -> Path:
    return local_path(path).absolute()


def _beside(path: Path, role: str) -> Path:
    return path.with_name(f"{path.name}.{role}")


def _settled(path: "str | Path | epath.Path") -> Any:
    """Return the folder; one whose replacement was stopped between its last two steps is put in its place."""
    if not isinstance(path, str | Path):
        return path  # In a bucket, where nothing is renamed.
    final = _absolute(path)
    new = _beside(final, "new")
    if not final.exists() and _beside(final, "old").exists() and _is_complete(new):
        _put_in_place(new, final)
    return final


def _put_in_place(new: Path, final: Path) -> None:
    try:
        new.rename(final)
    except FileNotFoundError:
        if not _is_complete(final):  # Unless another process, reader or writer, has been faster.
            raise
