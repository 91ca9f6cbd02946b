"""Numbered arrays as files: Orbax's, or NumPy's where one of several processes writes alone."""

import asyncio
import concurrent.futures
import zipfile
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tfdist_jax._checkpoint._digests import Damage
from tfdist_jax._internals import let_asyncio_end_without_threads
from tfdist_jax._sharding._placement import local, put

_ALONE = "arrays.npz"
_NOTHING = "nothing"  # Orbax saves no empty tree.


def start_writing(folder: Path, arrays: Mapping[str, Any]) -> Callable[[], None]:
    """Take the arrays' values as they are now and write them in threads; what is returned waits until they are on disk.

    All processes that have parts of the arrays call it with the same folder, which is there; `finish_writing` comes next.

    Args:
        folder: Where to; empty.
        arrays: Arrays that have elements. What is not laid out over several processes is written by the first one.
    """
    import orbax.checkpoint as ocp  # Its import takes a second.
    from etils import epath  # Orbax's own paths: Python's do for reading only.

    tree = as_orbax_takes_them(arrays)
    let_asyncio_end_without_threads()  # Orbax goes on in the background, maybe longer than the program.
    # In a thread, since notebooks have an event loop running in this one.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        saving = _handler().async_save(epath.Path(folder), args=ocp.args.PyTreeSave(tree))
        futures = thread.submit(_run, saving).result() or []

    def wait() -> None:
        failures = list(
            filter(None, map(_failure_of, futures))
        )  # All are to have ended before what they wrote is removed.
        if failures:
            raise failures[0]

    return wait


def _failure_of(future: Any) -> Exception | None:
    try:
        future.result()
    except Exception as failure:
        return failure
    return None


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    # `asyncio.run` would look at the tasks of Orbax's threads too, which come and go meanwhile.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


def as_orbax_takes_them(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbered arrays as a tree that Orbax writes."""
    return {number: as_orbax_takes_it(array) for number, array in arrays.items()} or {_NOTHING: np.zeros(1)}


def as_orbax_takes_it(array: Any) -> Any:
    """Return an array in a form that Orbax writes: one of this process alone, of several, as NumPy's."""
    if jax.process_count() > 1 and isinstance(array, jax.Array) and array.is_fully_addressable:
        return np.asarray(array)
    return array


def finish_writing(folder: Path) -> None:
    """Make one set of files of what all processes have written; one of them calls it, when all have."""
    _handler().finalize(folder)


def copy_to_write_alone(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the arrays' values as they are now, for `write_alone`."""
    return {number: np.array(local(array)) for number, array in arrays.items()}


def write_alone(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write as one of several processes; with Orbax, they would all have to write, into the same place."""
    np.savez(folder / _ALONE, **arrays)  # type: ignore[arg-type]


def read(
    folder: Path, wanted: Mapping[str, np.dtype], shardings: Mapping[str, jax.sharding.Sharding]
) -> dict[str, Any]:
    """Return arrays by number; a process reads them without the others.

    Args:
        folder: Where they are.
        wanted: Which ones, and their types.
        shardings: How to lay arrays out, each device reading its own part; those without one come as NumPy arrays.
    """
    # Orbax lays 64 bits out as 32 where JAX's configuration says so; what was saved with 64 keeps them.
    direct = {number: sharding for number, sharding in shardings.items() if _is_kept(wanted[number])}
    arrays = (
        _read_from_numpy(folder, wanted) if (folder / _ALONE).exists() else _read_with_orbax(folder, wanted, direct)
    )
    for number, sharding in shardings.items():
        if not isinstance(arrays[number], jax.Array):
            arrays[number] = lay_out(arrays[number], sharding)
    return arrays


def folder_of_process(process: int) -> str:
    """Return where among the arrays a process writes for itself alone, which `finish_writing` leaves as it is."""
    return f"ocdbt.process_{process}/"


def find_in_damaged(folder: Path, above: str, damages: Iterable[Damage]) -> set[str] | None:
    """Return the numbers of arrays that lie in damaged bytes; None if what says where they are is damaged.

    Args:
        folder: Where the arrays are.
        above: How the damaged files' names begin where they are in it.
        damages: What is wrong.
    """
    damaged = {damage.file.removeprefix(above): damage for damage in damages}
    try:
        places = list(_places_in_numpy(folder) if (folder / _ALONE).exists() else _places(folder))
    except (ValueError, OSError, zipfile.BadZipFile):
        return None
    return {
        number for number, file, offset, length in places if file in damaged and damaged[file].reaches(offset, length)
    }


def _places_in_numpy(folder: Path) -> Iterator[tuple[str, str, int, int]]:
    with zipfile.ZipFile(folder / _ALONE) as found:
        for entry in found.infolist():
            yield (
                entry.filename.removesuffix(".npy"),
                _ALONE,
                entry.header_offset,
                entry.compress_size + len(entry.FileHeader()),
            )


def _places(folder: Path) -> Iterator[tuple[str, str, int, int]]:
    """Yield an array's number, and the file, offset and length of each part of it, as Orbax's database has them."""
    import tensorstore

    store = tensorstore.KvStore.open({"driver": "file", "path": f"{folder}/"}).result()
    nodes = [version["root"]["location"] for version in tensorstore.ocdbt.dump(store).result()["versions"]]
    while nodes:
        node = nodes.pop()
        for entry in tensorstore.ocdbt.dump(store, node).result()["entries"]:
            if "location" in entry:
                nodes.append(entry["location"])
                continue
            # Small parts are in the node itself.
            _, base, file, offset, length = entry.get("indirect_value", node).split(":")
            yield entry["key"].decode().partition("/")[0], f"{base}{file}", int(offset), int(length)


def read_tree(folder: Path) -> dict[str, Any]:
    """Return the arrays and strings of any tree that Orbax has written, arrays as NumPy's; a process reads without the others."""
    import orbax.checkpoint as ocp

    kept = _handler().metadata(folder).tree
    types = jax.tree.map(lambda leaf: ocp.RestoreArgs(restore_type=np.ndarray if hasattr(leaf, "shape") else str), kept)
    return _handler().restore(folder, args=ocp.args.PyTreeRestore(restore_args=types))


def lay_out(array: np.ndarray, sharding: jax.sharding.Sharding) -> jax.Array:
    """Return an array of the host laid out, as the type it has."""
    with jax.enable_x64(True):
        return put(array, sharding)


def _is_kept(dtype: np.dtype) -> bool:
    return jax.dtypes.canonicalize_dtype(dtype) == dtype


def _read_from_numpy(folder: Path, wanted: Mapping[str, np.dtype]) -> dict[str, Any]:
    with np.load(folder / _ALONE) as found:
        # NumPy's files know only NumPy's own types; others come back as bytes of their size.
        return {number: found[number].view(dtype) for number, dtype in wanted.items()}


def _read_with_orbax(folder: Path, wanted: Mapping[str, Any], shardings: Mapping[str, Any]) -> dict[str, Any]:
    import orbax.checkpoint as ocp

    to_host = ocp.RestoreArgs(restore_type=np.ndarray)
    how = {
        number: ocp.ArrayRestoreArgs(sharding=shardings[number]) if number in shardings else to_host
        for number in wanted
    }
    request = ocp.args.PyTreeRestore(dict.fromkeys(wanted, 0), restore_args=how, partial_restore=True)
    return dict(_handler().restore(folder, args=request))


def _handler() -> Any:
    import orbax.checkpoint as ocp

    return ocp.PyTreeCheckpointHandler()
