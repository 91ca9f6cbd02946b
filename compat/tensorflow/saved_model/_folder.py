"""The folder of a SavedModel: one of saved arrays, the programs among them, in the folder that the user names.

What else the user's folder holds stays. The folder in it is written under another name and renamed, as checkpoints are.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfdist_jax import DataLossError as DamagedError
from tfdist_jax._checkpoint import _checkpoint
from tfdist_jax.compat.tensorflow._platform._errors import DataLossError
from tfdist_jax.compat.tensorflow.saved_model import _constants
from tfdist_jax.compat.tensorflow.train._state_file import as_text

_NAME = "saved_model"
_FORMAT = "tfdist_jax.saved_model"
VERSION = 1
"""Goes up when folders that are written can no longer be read by what was released before."""


def _of_tensorflow(export_dir: str) -> bool:
    names = (_constants.SAVED_MODEL_FILENAME_PB, _constants.SAVED_MODEL_FILENAME_PBTXT)
    return any((_checkpoint.local_path(export_dir) / name).is_file() for name in names)


def _inside(export_dir: Any) -> Path:
    return _checkpoint.local_path(as_text(export_dir)) / _NAME


def contains_saved_model(export_dir: Any) -> bool:
    """Tell whether a folder is a SavedModel, of this project or of TensorFlow.

    Ref: https://www.tensorflow.org/api_docs/python/tf/saved_model/contains_saved_model
    """
    return _checkpoint.is_saved(_inside(export_dir)) or _of_tensorflow(as_text(export_dir))


def begin_writing(export_dir: Any, arrays: Mapping[str, Any], model: Mapping[str, Any]) -> Callable[[], None]:
    """Take the arrays of a model; what is returned writes them with what describes it, and replaces one that is there."""
    folder = _inside(export_dir)
    return _checkpoint.begin_saving(folder, arrays, {"format": _FORMAT, "version": VERSION, "model": model})


def read(export_dir: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays of a model by name, and what describes it.

    Raises:
        FileNotFoundError: If there is none.
        NotImplementedError: If it is TensorFlow's own, or written by a newer version of this project.
        DataLossError: If it is damaged.
    """
    folder, given = _inside(export_dir), as_text(export_dir)
    if not _checkpoint.is_saved(folder):
        _must_not_be_of_tensorflow(given)
        raise FileNotFoundError(
            f"SavedModel file does not exist at: {given}. `tf.saved_model.save` and `model.export` write one; one that was not "
            "saved completely is not there."
        )
    try:
        _checkpoint.must_be_whole(folder)
    except DamagedError as error:
        raise DataLossError(None, None, f"The SavedModel at {given} cannot be loaded. {error}") from error
    about = _checkpoint.read_about(folder)[1]
    if about.get("format") != _FORMAT:
        raise ValueError(f"{folder} holds saved arrays, but no SavedModel: read it with tf.train.load_checkpoint.")
    if about["version"] > VERSION:
        raise NotImplementedError(
            f"The SavedModel at {given} is of version {about['version']}, and this version of tfdist_jax reads those up to {VERSION}: "
            "its programs or objects may mean something else. Load it with a newer tfdist_jax."
        )
    return _checkpoint.load_arrays(folder), about["model"]


def _must_not_be_of_tensorflow(export_dir: str) -> None:
    if _of_tensorflow(export_dir):
        variables = f"{export_dir}/{_constants.VARIABLES_DIRECTORY}/{_constants.VARIABLES_FILENAME}"
        raise NotImplementedError(
            f"The SavedModel at {export_dir} is TensorFlow's own: its functions are graphs of TensorFlow's operations, and programs "
            f"here are XLA's. Its variables are read by tf.train.load_checkpoint({variables!r}): make the model from its code and "
            "assign them, or save the model with `model.save('name.keras')` where TensorFlow is."
        )
