"""The kinds of summaries, each in the form in which TensorBoard expects it from TensorFlow 2."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._ops._graph_compat import get_current_name_scope, name_scope
from tfdist_jax.compat.tensorflow._platform._context import replica_context
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor, is_tracing
from tfdist_jax.compat.tensorflow.summary import _encoding, _recording
from tfdist_jax.compat.tensorflow.summary._recording import Recording
from tfdist_jax.compat.tensorflow.summary._writer import stage

Encode = Callable[[Any], tuple[np.ndarray, bytes]]


def scalar(name: str, data: Any, step: Any = None, description: str | None = None) -> Any:
    """Write a number.

    Args:
        name: The tag; name scopes come before it.
        data: A number, or a tensor of one.
        step: The step; the default one if None.
        description: A string that TensorBoard shows with it.

    Returns:
        Whether it was written; True in functions that are compiled, where that is known only later.

    Raises:
        ValueError: If `data` is no scalar; or there is a default writer, but no step.
    """
    shape = np.shape(data if not is_tensor(data) else convert_to_tensor(data))
    if shape != ():
        raise ValueError(f"tf.summary.scalar takes one number, got {name!r} of shape {shape}.")
    return _write(name, data, step, "scalars", _encoding.scalar, description)


def histogram(
    name: str, data: Any, step: Any = None, buckets: int | None = None, description: str | None = None
) -> Any:
    """Write how the values of a tensor of any shape are distributed over `buckets` (30) of equal width."""
    return _write(name, data, step, "histograms", lambda a: _encoding.histogram(a, buckets or 30), description)


def image(name: str, data: Any, step: Any = None, max_outputs: int = 3, description: str | None = None) -> Any:
    """Write images.

    Args:
        name: The tag.
        data: `[count, height, width, channels]` with 1 to 4 channels; floats in [0, 1] or integers up to their type's
            largest.
        step: The step; the default one if None.
        max_outputs: How many of the images are written at most.
        description: A string that TensorBoard shows with them.
    """
    shape = np.shape(data)
    if len(shape) != 4 or not 1 <= shape[-1] <= 4:
        raise ValueError(f"tf.summary.image takes [count, height, width, 1 to 4], got {name!r} of shape {shape}.")
    return _write(name, data[:max_outputs], step, "images", _encoding.images, description)


def text(name: str, data: Any, step: Any = None, description: str | None = None) -> Any:
    """Write a string, or a tensor of strings, which TensorBoard shows as Markdown."""
    return _write(name, HostTensor.of(_encoding.strings(data)), step, "text", _encoding.text, description)


def audio(
    name: str,
    data: Any,
    sample_rate: int,
    step: Any = None,
    max_outputs: int = 3,
    encoding: str | None = None,
    description: str | None = None,
) -> Any:
    """Write sounds, `[count, frames, channels]` of floats in [-1, 1], as WAV."""
    if encoding not in (None, "wav"):
        raise ValueError(f"tf.summary.audio writes 'wav', got {encoding!r}.")
    shape = np.shape(data)
    if len(shape) != 3:
        raise ValueError(f"tf.summary.audio takes [count, frames, channels], got {name!r} of shape {shape}.")
    return _write(name, data[:max_outputs], step, "audio", lambda a: _encoding.sounds(a, int(sample_rate)), description)


def write(tag: str, tensor: Any, step: Any = None, metadata: Any = None, name: str | None = None) -> Any:
    """Write a tensor as it is, with `metadata` that says which of TensorBoard's plugins it is for."""
    if isinstance(tensor, str | bytes):
        tensor = HostTensor.of(_encoding.strings(tensor))
    described = _encoding.copy_of(metadata)
    return _record(tag, tensor, step, lambda array: _encoding.value(tag, array, described))


@contextlib.contextmanager
def summary_scope(name: str, default_name: str = "summary", values: Any = None) -> Iterator[tuple[str, str]]:
    """Yield the tag for a summary, its name after the name scopes around it; and the scope's name."""
    tag = _tag(name or default_name)
    with name_scope(name or default_name) as scope:
        yield tag, scope


def _tag(name: str) -> str:
    scope = get_current_name_scope()
    return f"{scope}/{name}" if scope else name


def _write(name: str, data: Any, step: Any, plugin: str, encode: Encode, description: str | None) -> Any:
    tag = _tag(name)

    def value_of(array: Any) -> Any:
        tensor, content = encode(array)
        return _encoding.value(tag, tensor, _encoding.metadata(plugin, content, description or ""))

    return _record(tag, data, step, value_of)


def _record(tag: str, data: Any, step: Any, value_of: Callable[[Any], Any]) -> Any:
    """Write the summary that `value_of` makes of an array: now, or when the function that is being traced runs."""
    recording = _recording.current()
    if is_tracing() or isinstance(data, Tracer):
        return _stage(data, step, recording, value_of)
    if recording.writer is None or not bool(_recording.asked(recording.condition)):
        return convert_to_tensor(False)
    recording.writer.add(value_of(_host(data)), _step(step, recording))
    return convert_to_tensor(True)


def _stage(data: Any, step: Any, traced: Recording, value_of: Callable[[Any], Any]) -> Any:
    """Leave a callback in the program that is being traced.

    The writer, the step and the condition are the ones that hold when the program runs, if there is a writer then:
    a program outlives the writers of one training. Tensors and variables are read by the program.
    """
    if step is None and ("step" in traced.inside or is_tensor(traced.step)):
        step = traced.step
    condition = None
    if "condition" in traced.inside or is_tensor(traced.condition):
        condition = _recording.asked(traced.condition)
    replica = replica_context()
    operands = {
        "data": None if isinstance(data, HostTensor) else convert_to_tensor(data),
        "step": convert_to_tensor(step) if is_tensor(step) else None,
        "condition": convert_to_tensor(condition) if is_tensor(condition) else None,
        "replica": None if replica is None else replica.replica_id_in_sync_group,
    }

    def run(given: Any) -> None:
        now = _recording.current()
        recording = traced if "writer" in traced.inside or now.writer is None else now
        wanted = given["condition"] if condition is None or is_tensor(condition) else condition
        wanted = _recording.asked(recording.condition) if wanted is None else wanted
        is_first = given["replica"] is None or int(given["replica"]) == 0
        if recording.writer is None or not is_first or not bool(wanted):
            return
        array = np.asarray(data if given["data"] is None else given["data"])
        recording.writer.add(value_of(array), _step(step if given["step"] is None else given["step"], recording))

    jax.debug.callback(run, operands)
    stage()
    return True


def _step(step: Any, recording: Recording) -> int:
    step = recording.step if step is None else step
    if step is None:
        raise ValueError(
            "No step set. Please specify one either through the `step` argument or through "
            "tf.summary.experimental.set_step()"
        )
    return int(np.asarray(_host(step)))


def _host(value: Any) -> np.ndarray:
    return np.asarray(convert_to_tensor(value) if is_tensor(value) else value)
