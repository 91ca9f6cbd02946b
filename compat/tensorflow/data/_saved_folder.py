"""Folders of saved elements, as TensorFlow's `Dataset.save` and `snapshot` write them.

`snapshot.metadata` names a run, a folder of shards with records; `dataset_spec.pb` is the elements' spec. The first one is written last,
in one step: a folder without it is none, and one whose elements are saved again has those before until then.

Ref: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/data/snapshot_utils.h
"""

import base64
import dataclasses
import functools
import json
import os
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

from etils import epath
from google.protobuf.message import DecodeError

from tfdist_jax._checkpoint._checkpoint import put_on_disk
from tfdist_jax.compat.tensorflow._platform._errors import DataLossError, NotFoundError
from tfdist_jax.compat.tensorflow.data import _unfinished
from tfdist_jax.compat.tensorflow.data._cache_file import is_url
from tfdist_jax.compat.tensorflow.data._element_parts import ElementParts
from tfdist_jax.compat.tensorflow.data._element_records import ElementDecoder, encode_element
from tfdist_jax.compat.tensorflow.data._plan import UNKNOWN
from tfdist_jax.compat.tensorflow.data._spec_messages import decode_spec, encode_spec
from tfdist_jax.compat.tensorflow.io import _messages
from tfdist_jax.compat.tensorflow.io._records import frame, read_records
from tfdist_jax.compat.tensorflow.io._tensor_messages import dtype_number

_METADATA, _SPEC = "snapshot.metadata", "dataset_spec.pb"
_SHARD, _FILE = ".shard", ".snapshot"
_VERSION = 2  # TensorFlow's: records of TFRecord, with its compression.
_BUFFER_BYTES = 1 << 20
_GZIP = 31  # zlib's sign for gzip's form.


@final
@dataclasses.dataclass(frozen=True)
class SavedFolder:
    """A complete folder.

    Attributes:
        path: Where it is.
        run: The run whose elements count.
        spec: The spec of an element; None if it is not told.
        num_elements: How many there are.
        manifest: What only this project writes: how many elements each shard has, and seeds; empty of TensorFlow's folders.
    """

    path: str
    run: str
    spec: Any
    num_elements: int
    manifest: Mapping[str, Any]

    def shards(self) -> list[str]:
        """Return the folders of the run's shards, in order."""
        run = epath.Path(self.path) / self.run
        if not run.is_dir():
            raise DataLossError(None, None, f"{self.path}: its elements, {run}, are gone.")
        found = sorted(str(entry) for entry in run.iterdir() if entry.name.endswith(_SHARD))
        gone = self.manifest.get("shards", {}).keys() - {os.path.basename(name) for name in found}
        if gone:
            raise DataLossError(None, None, f"{run}: of its shards {sorted(gone)} are gone.")
        return found

    def elements_of(self, shard: str, decoder: ElementDecoder, compression: str) -> Iterator[Any]:
        """Yield the elements of a shard.

        Raises:
            DataLossError: If it is damaged.
        """
        count = 0
        for file in sorted(str(entry) for entry in epath.Path(shard).iterdir() if entry.name.endswith(_FILE)):
            for element in _elements_of_file(file, decoder, compression):
                count += 1
                yield element
        wanted = self.count_of(shard)
        if wanted not in (count, UNKNOWN):
            raise DataLossError(None, None, f"{shard}: {wanted} elements were written to it, and {count} are there.")

    def count_of(self, shard: str) -> int:
        """Return how many elements a shard has; `UNKNOWN` in TensorFlow's folders."""
        return self.manifest.get("shards", {}).get(os.path.basename(shard), UNKNOWN)


def _elements_of_file(file: str, decoder: ElementDecoder, compression: str) -> Iterator[Any]:
    group: list[bytes] = []
    at = 0
    for record in read_records(file, compression, _BUFFER_BYTES):
        group.append(record)
        if len(group) == decoder.record_count:
            try:
                yield decoder.decode(group)
            except DataLossError as error:
                raise DataLossError(None, None, f"{file}: element {at}: {error.message}") from error
            group = []
            at += 1
    if group:
        raise DataLossError(
            None, None, f"{file}: it ends within element {at}: {len(group)} of {decoder.record_count} parts are there."
        )


def read_folder(path: str) -> SavedFolder | None:
    """Return what a folder holds; None if there is none that is complete.

    Raises:
        DataLossError: If what describes it is damaged.
        NotImplementedError: If it is of a kind that only TensorFlow reads.
    """
    folder = epath.Path(path)
    if not (folder / _METADATA).exists():
        if (folder / "streams").is_dir():
            raise NotImplementedError(
                f"{path} is written by `distributed_save` of TensorFlow's data service. Load it there, and save it with `Dataset.save`."
            )
        return None
    try:
        message = _messages.SnapshotMetadataRecord.FromString((folder / _METADATA).read_bytes())
        manifest = _open(message.tfdist_jax)
    except (DecodeError, ValueError):
        raise DataLossError(None, None, f"{folder / _METADATA} is damaged, at byte 0 or behind it.") from None
    if not message.finalized:
        return None
    if message.version != _VERSION:
        raise NotImplementedError(
            f"{path} is of version {message.version} of TensorFlow's snapshots, which is read by TensorFlow only: save it again there, "
            "with `Dataset.save`."
        )
    spec = _read_spec(folder / _SPEC, manifest)
    return SavedFolder(path, message.run_id, spec, message.num_elements, manifest)


def open_folder(path: str) -> tuple[SavedFolder, Any] | None:
    """Return what a folder holds, and an object as long as which it stays, whoever saves there again; None if there is none."""
    while True:
        folder = read_folder(path)
        if folder is None or is_url(path):
            return None if folder is None else (folder, None)
        try:
            held = _unfinished.Reading(Path(path, folder.run))
        except FileNotFoundError:
            held = None
        again = read_folder(path)
        if again is not None and again.run == folder.run:
            return folder, held


def _open(sealed: bytes) -> dict[str, Any]:
    """Return a manifest, which is kept as a record is, with its checksum; nothing of TensorFlow's folders.

    Raises:
        ValueError: If it is damaged.
    """
    if not sealed:
        return {}
    before, after = 12, 4
    data = sealed[before : len(sealed) - after]
    if sealed != frame(data):
        raise ValueError("a manifest with another checksum")
    return json.loads(data)


def _read_spec(file: epath.Path, manifest: Mapping[str, Any]) -> Any:
    """Return the spec beside the metadata, or that in them: the other one may be that of a run that was not completed."""
    if "spec" not in manifest and not file.exists():
        return None
    try:
        return decode_spec(base64.b64decode(manifest["spec"]) if "spec" in manifest else file.read_bytes())
    except ValueError:
        raise DataLossError(
            None, None, f"{file} is damaged, at byte 0 or behind it: it is no spec of elements."
        ) from None
    except NotImplementedError as error:
        raise NotImplementedError(
            f"The dataset saved at {file.parent} has elements that are not there: {error}. In TensorFlow, map them to tensors and "
            "save them again."
        ) from None


def wait_for_folder(path: str) -> None:
    """Return when there is a complete folder."""
    delay_s = 0.05
    while read_folder(path) is None:
        time.sleep(delay_s)
        delay_s = min(2 * delay_s, 2.0)


def missing(path: str) -> NotFoundError:
    """Return the error for a folder that is not there."""
    return NotFoundError(
        None,
        None,
        f"There is no saved dataset at {path}: {_METADATA} is not there. One that was not saved completely is none.",
    )


@final
class FolderWriter:
    """Elements on their way to a folder."""

    def __init__(
        self,
        path: str,
        spec: Any,
        compression: str,
        shard_of: Callable[[Any], int],
        describe: Callable[[], Mapping[str, Any]] = dict,
        *,
        keeps_first: bool = False,
    ) -> None:
        """Begin a run.

        Args:
            path: The folder, which is made if it is not there.
            spec: The elements' spec.
            compression: "" or "GZIP".
            shard_of: Which shard an element belongs to.
            describe: What else is to be known, at the end.
            keeps_first: Whether elements that are there at the end stay, rather than those that were written.
        """
        self._path, self._spec, self._parts = path, spec, ElementParts(spec)
        self._encoded = encode_spec(spec)
        self._compression, self._shard_of, self._describe = compression, shard_of, describe
        self._keeps_first = keeps_first
        self._run = epath.Path(path) / str(uuid.uuid4().int >> 65)
        self._shards: dict[str, _ShardWriter] = {}
        self._unfinished: _unfinished.Unfinished | None = None
        if is_url(path):
            self._run.mkdir(parents=True)
            return
        Path(path).mkdir(parents=True, exist_ok=True)
        # Nobody looks for what stopped processes have left between the folder and its lock.
        with _unfinished.alone_in(Path(path)):
            self._run.mkdir()
            self._unfinished = _unfinished.Unfinished(Path(self._run), functools.partial(_abandon, self._shards))

    def write(self, element: Any) -> None:
        """Append an element."""
        number = self._shard_of(element)
        name = f"{number:08d}{_SHARD}"
        shard = self._shards.get(name)
        if shard is None:
            shard = self._shards[name] = _ShardWriter(self._run / name, self._compression)
        shard.write(encode_element(self._parts, element))

    def finish(self, failed: int) -> None:
        """Complete the folder; the elements that were in it before go."""
        try:
            for shard in self._shards.values():
                shard.close()
        except BaseException:
            self.discard()
            raise
        if self._unfinished is None:
            self._publish(failed)
            return
        with _unfinished.alone_in(Path(self._path)):
            if self._keeps_first and read_folder(self._path) is not None:
                self.discard()
            else:
                self._unfinished.finish(lambda: self._publish(failed))
                self._remove_other_runs()

    def _publish(self, failed: int) -> None:
        counts = {name: shard.count for name, shard in self._shards.items()}
        manifest = {
            **self._describe(),
            "shards": counts,
            "failed": failed,
            "spec": base64.b64encode(self._encoded).decode(),
        }
        message = _messages.SnapshotMetadataRecord(
            run_id=self._run.name,
            creation_timestamp=time.time_ns() // 1000,
            version=_VERSION,
            dtype=[dtype_number(spec.dtype.name) for spec in self._parts.specs if type(spec).__name__ == "TensorSpec"],
            num_elements=sum(counts.values()),
            finalized=True,
            tfdist_jax=frame(json.dumps(manifest).encode()),
        )
        folder = epath.Path(self._path)
        _replace(folder / _SPEC, self._encoded)
        _replace(folder / _METADATA, message.SerializeToString())

    def _remove_other_runs(self) -> None:
        """Remove the runs before, and what stopped processes have left of others; in a bucket nobody can tell who reads them."""
        for entry in Path(self._path).iterdir():
            if entry.name.isdecimal() and entry.is_dir() and entry.name != self._run.name:
                _unfinished.remove_unless_held(entry)

    def discard(self) -> None:
        """Remove what is written."""
        if self._unfinished is None:
            _abandon(self._shards)
            self._run.rmtree()
        else:
            self._unfinished.discard()


def _replace(path: epath.Path, data: bytes) -> None:
    """Write a file in one step."""
    if is_url(str(path)):
        path.write_bytes(data)
        return
    local = Path(path)
    _unfinished.remove_rests(local)
    part = _unfinished.beside(local)
    with part.open("xb") as file:
        unfinished = _unfinished.Unfinished(part, file.close)
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            unfinished.discard()
            raise
    unfinished.finish(lambda: part.replace(local))
    put_on_disk(Path(path).parent)


def _abandon(shards: Mapping[str, "_ShardWriter"]) -> None:
    for shard in shards.values():
        shard.abandon()


@final
class _ShardWriter:
    """The records of a shard."""

    def __init__(self, folder: epath.Path, compression: str) -> None:
        folder.mkdir()
        self._name = str(folder / f"{0:08d}{_FILE}")
        self._file: Any = epath.Path(self._name).open("wb")
        self._compressor = zlib.compressobj(wbits=_GZIP) if compression else None
        self.count = 0

    def write(self, records: Iterator[bytes]) -> None:
        data = b"".join(map(frame, records))
        self._put(self._compressor.compress(data) if self._compressor else data)
        self.count += 1

    def _put(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}, while elements are saved", self._name) from error

    def close(self) -> None:
        if self._compressor:
            self._put(self._compressor.flush())
        try:
            self._file.close()
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}, while elements are saved", self._name) from error
        if not is_url(self._name):
            put_on_disk(Path(self._name))

    def abandon(self) -> None:
        # What is held back need not go to a disk that may be full.
        getattr(self._file, "raw", self._file).close()
