"""`tf.compat.v1`: the names that programs of TensorFlow 2 use."""

from collections.abc import Callable
from typing import Any, NoReturn


def _accepted(name: str) -> Callable[[], None]:
    def switch() -> None:
        pass

    switch.__name__ = switch.__qualname__ = name
    switch.__doc__ = "Accept the switch: TensorFlow 2's behaviour is the only one."
    return switch


enable_v2_behavior = _accepted("enable_v2_behavior")
enable_v2_tensorshape = _accepted("enable_v2_tensorshape")
enable_resource_variables = _accepted("enable_resource_variables")
enable_tensor_equality = _accepted("enable_tensor_equality")
enable_control_flow_v2 = _accepted("enable_control_flow_v2")


def enable_eager_execution(config: Any = None, device_policy: Any = None, execution_mode: Any = None) -> None:
    """Accept the switch: programs run eagerly outside of `tf.function`."""


def disable_eager_execution() -> NoReturn:
    """Refuse to make graphs and sessions.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError(
        "TensorFlow 1's graphs and sessions are not there. Port the program to TensorFlow 2, with `tf.function` for what "
        "a graph did: https://www.tensorflow.org/guide/migrate."
    )


disable_v2_behavior = disable_eager_execution


def _always(name: str) -> Callable[[], bool]:
    def question() -> bool:
        return True

    question.__name__ = question.__qualname__ = name
    question.__doc__ = "Return True: TensorFlow 2's behaviour is the only one."
    return question


executing_eagerly_outside_functions = _always("executing_eagerly_outside_functions")
resource_variables_enabled = _always("resource_variables_enabled")
control_flow_v2_enabled = _always("control_flow_v2_enabled")


def assign(ref: Any, value: Any, validate_shape: Any = None, use_locking: Any = None, name: str | None = None) -> Any:
    """Give a variable a value."""
    return ref.assign(value)


def assign_add(ref: Any, value: Any, use_locking: Any = None, name: str | None = None) -> Any:
    """Add a value to a variable."""
    return ref.assign_add(value)


def assign_sub(ref: Any, value: Any, use_locking: Any = None, name: str | None = None) -> Any:
    """Take a value from a variable."""
    return ref.assign_sub(value)
