"""Looking into checkpoints: names, shapes and values."""

from typing import Any, final

from tfdist_jax._checkpoint import _checkpoint
from tfdist_jax.compat.tensorflow._platform._errors import NotFoundError
from tfdist_jax.compat.tensorflow.train import _formats
from tfdist_jax.compat.tensorflow.train._bundle._table import is_table
from tfdist_jax.compat.tensorflow.train._saved import open_saved
from tfdist_jax.compat.tensorflow.train._state_file import as_text, latest_checkpoint


def checked_path(save_path: Any) -> str:
    """Return the path of a checkpoint, or of the newest one in a folder.

    Raises:
        NotFoundError: If there is no such checkpoint.
        NotImplementedError: If it is a single file, as TensorFlow wrote them before version 1.
    """
    path = _checkpoint.local_path(as_text(save_path))
    newest = path if _formats.is_saved(path) else latest_checkpoint(path)
    if newest is not None:
        return str(_checkpoint.local_path(str(newest)))
    if path.is_file() and is_table(path):
        raise NotImplementedError(
            f"{path} is a checkpoint in the first of TensorFlow's formats, a single file (`write_version=1`). Restore it with "
            "tf.compat.v1.train.Saver in TensorFlow, and save it anew without `write_version`."
        )
    raise NotFoundError(
        None, None, f"Unsuccessful restore: failed to find any checkpoint at {path}; or it was not saved completely."
    )


@final
class CheckpointReader:
    """The values in one checkpoint.

    Ref: https://www.tensorflow.org/api_docs/python/tf/train/load_checkpoint
    """

    def __init__(self, path: str) -> None:
        """Open a checkpoint."""
        self._saved = open_saved(path)
        self._types = self._saved.types()

    def get_tensor(self, name: str) -> Any:
        """Return a value, as a NumPy array.

        Raises:
            NotFoundError: If there is none of this name.
        """
        if name not in self._types:
            raise NotFoundError(None, None, f"Key {name} not found in checkpoint")
        return self._saved.load([name])[name][()]

    def has_tensor(self, name: str) -> bool:
        """Tell whether there is a value of this name."""
        return name in self._types

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Return the shapes by name."""
        return {name: list(shape) for name, (shape, _) in self._types.items()}

    def get_variable_to_dtype_map(self) -> dict[str, Any]:
        """Return the dtypes by name."""
        return {name: dtype for name, (_, dtype) in self._types.items()}


def load_checkpoint(ckpt_dir_or_file: Any) -> CheckpointReader:
    """Open a checkpoint, or the newest one of a folder.

    Raises:
        ValueError: If there is none in the folder.
        NotFoundError: If there is no such checkpoint.
    """
    path = as_text(ckpt_dir_or_file)
    if _checkpoint.local_path(path).is_dir() and not _formats.is_saved(path) and latest_checkpoint(path) is None:
        raise ValueError(f"Couldn't find 'checkpoint' file or checkpoints in given directory {path}")
    return CheckpointReader(checked_path(path))


def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """Return the names and shapes in a checkpoint, or the newest one of a folder."""
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


def load_variable(ckpt_dir_or_file: Any, name: str) -> Any:
    """Return one value of a checkpoint, or of the newest one of a folder."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))
