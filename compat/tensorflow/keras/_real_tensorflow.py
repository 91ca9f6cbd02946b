"""The real TensorFlow, where one is installed: for parts of Keras that compute with it, or ask what is its."""

import sys
from typing import Any, final

from tfdist_jax.compat.tensorflow.keras._internals import lazy_tensorflow


@final
class TensorFlowIfLoaded:
    """The real TensorFlow, for questions whether an object is TensorFlow's: none is before the program has loaded it."""

    @property
    def available(self) -> bool:
        """Whether it is loaded."""
        return "tensorflow" in sys.modules and lazy_tensorflow.available

    def __getattr__(self, name: str) -> Any:
        """Return what TensorFlow has by this name."""
        return getattr(lazy_tensorflow, name)
