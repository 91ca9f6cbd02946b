"""The file `checkpoint` in a folder of checkpoints: which there are, and which is the newest."""

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any, final

from google.protobuf import text_encoding

from tfdist_jax._checkpoint import _checkpoint
from tfdist_jax.compat.tensorflow.train._damage import find_whole

_FIELD = re.compile(r'^(\w+): "?(.*?)"?$', re.MULTILINE)


@final
@dataclasses.dataclass
class CheckpointState:
    """What the file says.

    Attributes:
        model_checkpoint_path: The newest checkpoint.
        all_model_checkpoint_paths: All, the oldest first.
        all_model_checkpoint_timestamps: When they were made, in seconds since 1970.
        last_preserved_timestamp: When the newest was made that is kept for good.
    """

    model_checkpoint_path: str = ""
    all_model_checkpoint_paths: list[str] = dataclasses.field(default_factory=list)
    all_model_checkpoint_timestamps: list[float] = dataclasses.field(default_factory=list)
    last_preserved_timestamp: float = 0.0


def as_text(path: Any) -> str:
    """Return a path as a string, from a string, bytes, a `pathlib.Path` or a tensor."""
    if hasattr(path, "numpy"):
        path = path.numpy()
    return os.fspath(os.fsdecode(path))


def _unescape(shown: str) -> str:
    """Return a text from the form that it has in a message's text: bytes of other letters as octal numbers."""
    return text_encoding.CUnescape(shown).decode() if "\\" in shown else shown


def get_checkpoint_state(checkpoint_dir: Any, latest_filename: str | None = None) -> CheckpointState | None:
    """Return what the state file in a folder says, paths made absolute or relative as the folder is; None without one."""
    folder = as_text(checkpoint_dir)
    file = _checkpoint.local_path(folder) / (latest_filename or "checkpoint")
    if not file.is_file():
        return None
    state = CheckpointState()
    for name, shown in _FIELD.findall(file.read_text(encoding="utf-8")):
        value = _unescape(shown)
        match name:
            case "model_checkpoint_path":
                state.model_checkpoint_path = os.path.join(folder, value)
            case "all_model_checkpoint_paths":
                state.all_model_checkpoint_paths.append(os.path.join(folder, value))
            case "all_model_checkpoint_timestamps":
                state.all_model_checkpoint_timestamps.append(float(value))
            case "last_preserved_timestamp":
                state.last_preserved_timestamp = float(value)
    return state


def update_checkpoint_state(
    save_dir: Any,
    model_checkpoint_path: Any,
    all_model_checkpoint_paths: Sequence[Any] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> None:
    """Write the state file of a folder; a reader sees the old one or the new one, whatever happens.

    Only a manager gives times: by them another one knows what it may remove.
    """
    folder, newest = as_text(save_dir), as_text(model_checkpoint_path)
    paths = [as_text(path) for path in all_model_checkpoint_paths or ()]
    paths = paths if paths and paths[-1] == newest else [*paths, newest]
    times = list(all_model_checkpoint_timestamps or ())
    if times and len(times) != len(paths):
        raise ValueError(f"There are {len(paths)} checkpoints but {len(times)} timestamps: give one for each.")
    relative = lambda path: os.path.relpath(_checkpoint.local_path(path), _checkpoint.local_path(folder))
    shown = lambda path: text_encoding.CEscape(relative(path), as_utf8=True)  # type: ignore[arg-type] # Takes text, too.
    lines = [f'model_checkpoint_path: "{shown(newest)}"']
    lines += [f'all_model_checkpoint_paths: "{shown(path)}"' for path in paths]
    lines += [f"all_model_checkpoint_timestamps: {moment!r}" for moment in times]
    if last_preserved_timestamp is not None:
        lines.append(f"last_preserved_timestamp: {last_preserved_timestamp!r}")
    file = _checkpoint.local_path(folder) / (latest_filename or "checkpoint")
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.new")
    with _checkpoint.alone_in(file.parent), open(new, "w", encoding="utf-8") as writer:
        writer.write("\n".join(lines) + "\n")
        writer.flush()
        os.fsync(writer.fileno())
        new.replace(file)


def latest_checkpoint(checkpoint_dir: Any, latest_filename: str | None = None) -> str | None:
    """Return the newest complete checkpoint of a folder, or None.

    One that is damaged is passed over with a warning: all files are read and compared with their digests, once in a process.

    Raises:
        DataLossError: If all are damaged.
    """
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None:
        return None
    return find_whole(dict.fromkeys([state.model_checkpoint_path, *reversed(state.all_model_checkpoint_paths)]))
