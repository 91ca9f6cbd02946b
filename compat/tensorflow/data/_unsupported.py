"""Methods of `tf.data.Dataset` that are not there, each with what to use in its place."""

from typing import Any, NoReturn

from tfdist_jax.compat.tensorflow.data._planned import Planned

_FILES = (
    "writes TensorFlow's own files. Save arrays with `numpy.savez` or records with `tensorflow_datasets`, and make a "
    "dataset of them with `from_tensor_slices` or `tfds.load`."
)


class Unsupported(Planned):
    """What raises NotImplementedError."""

    def fingerprint(self) -> NoReturn:
        """Raise NotImplementedError."""
        _refuse("fingerprint", "is about TensorFlow's graph of the dataset. Compare the elements.")

    @staticmethod
    def load(
        path: Any, element_spec: Any = None, compression: Any = None, reader_func: Any = None, wait: bool = False
    ) -> NoReturn:
        """Raise NotImplementedError."""
        _refuse("load", _FILES)

    def save(self, path: Any, compression: Any = None, shard_func: Any = None, checkpoint_args: Any = None) -> NoReturn:
        """Raise NotImplementedError."""
        _refuse("save", _FILES)

    def snapshot(
        self,
        path: Any,
        compression: str = "AUTO",
        reader_func: Any = None,
        shard_func: Any = None,
        name: str | None = None,
    ) -> NoReturn:
        """Raise NotImplementedError."""
        _refuse("snapshot", f"{_FILES} `cache` keeps elements in memory.")


def _refuse(method: str, reason: str) -> NoReturn:
    raise NotImplementedError(f"`Dataset.{method}` {reason}")
