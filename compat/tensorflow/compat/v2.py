"""`tf.compat.v2`: TensorFlow 2, which is what the facade is, and the switch to it.

See https://www.tensorflow.org/api_docs/python/tf/compat/v2.
"""

import importlib
from typing import Any

_tensorflow = importlib.import_module(__name__.rpartition(".compat.")[0])


def enable_v2_behavior() -> None:
    """Accept the switch: TensorFlow 2's behaviour is the only one."""


def __getattr__(name: str) -> Any:
    return getattr(_tensorflow, name)


def __dir__() -> list[str]:
    return [*dir(_tensorflow), "enable_v2_behavior"]
