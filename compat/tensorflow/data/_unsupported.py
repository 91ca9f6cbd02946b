"""Methods of `tf.data.Dataset` that are not there, each with what to use in its place."""

from typing import NoReturn

from tfdist_jax.compat.tensorflow.data._planned import Planned


class Unsupported(Planned):
    """What raises NotImplementedError."""

    def fingerprint(self) -> NoReturn:
        """Raise NotImplementedError."""
        raise NotImplementedError(
            "`Dataset.fingerprint` is about TensorFlow's graph of the dataset. Compare the elements."
        )
