"""Keras's callbacks without TensorFlow, and without waiting for values that nobody reads."""

# Names that load when they are touched, which type checkers do not see.
# pyright: reportAttributeAccessIssue=false

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any, final

import keras

from tfdist_jax.compat.tensorflow import summary
from tfdist_jax.compat.tensorflow.keras._change import Hook, instead
from tfdist_jax.compat.tensorflow.keras._internals import CallbackList, python_utils, tensorboard
from tfdist_jax.compat.tensorflow.summary import _recording


@final
class LazyLogs(dict[str, Any]):
    """Logs of a batch: names are there at once, values are waited for by whoever reads the first one."""

    def __init__(self, logs: Any, read: Callable[[Any], dict[str, Any]]) -> None:
        """Stand for what `read` makes of the step's `logs`."""
        super().__init__(logs)
        self._read: Callable[[Any], dict[str, Any]] | None = read

    def _settle(self) -> None:
        if self._read is not None:
            read, self._read = self._read, None
            values = read(dict(super().items()))
            super().clear()
            super().update(values)

    def __getitem__(self, name: str) -> Any:
        """Return a value."""
        self._settle()
        return super().__getitem__(name)

    def __setitem__(self, name: str, value: Any) -> None:
        """Add a value of a callback's own."""
        self._settle()
        super().__setitem__(name, value)

    def __iter__(self) -> Iterator[str]:
        """Go through the names; overridden so that `dict(logs)` and `**logs` read the values."""
        self._settle()
        return super().__iter__()

    def __eq__(self, other: object) -> bool:
        """Compare values."""
        self._settle()
        return super().__eq__(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        """Write the values."""
        self._settle()
        return super().__repr__()

    def __reduce__(self) -> Any:
        """Become a plain dictionary in other processes."""
        return dict, (dict(self),)


def _settling(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    @functools.wraps(method)
    def settled(self: LazyLogs, *args: Any, **kwargs: Any) -> Any:
        self._settle()
        return method(self, *args, **kwargs)

    return settled


for _name in ("get", "items", "values", "keys", "copy", "pop", "popitem", "setdefault", "update", "__or__", "__ror__"):
    setattr(LazyLogs, _name, _settling(_name))


def _with_lazy_logs(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def event(self: CallbackList, batch: int, logs: Any = None) -> None:
        # Nested logs become flat, under names that are known only then.
        is_flat = type(logs) is dict and not any(isinstance(value, dict) for value in logs.values())
        original(self, batch, LazyLogs(logs, python_utils.pythonify_logs) if is_flat else logs)

    return event


def _leaving_lazy(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def pythonify_logs(logs: Any) -> Any:
        return logs if isinstance(logs, LazyLogs) else original(logs)

    return pythonify_logs


def _reading_logs_if_recording(original: Callable[..., None]) -> Callable[..., None]:
    """Keep TensorBoard from waiting for logs that it throws away."""

    @functools.wraps(original)
    def on_train_batch_end(self: keras.callbacks.TensorBoard, batch: int, logs: Any = None) -> None:
        recording = _recording.current()
        is_wanted = recording.writer is not None and bool(_recording.asked(recording.condition))
        original(self, batch, logs if is_wanted else None)

    return on_train_batch_end


def _profiling(original: Callable[..., None]) -> Callable[..., None]:
    """Let profiles be made under every Python; Keras wants 3.12."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: keras.callbacks.TensorBoard, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs)
        given.apply_defaults()
        profiled, given.arguments["profile_batch"] = given.arguments["profile_batch"], 0
        original(*given.args, **given.kwargs)
        self._init_profile_batch(profiled)

    return __init__


def _write_model(name: str, data: Any, step: Any = None) -> Any:
    """Write a model's configuration, of which TensorBoard draws the graph of layers."""
    from tensorboardX.proto.summary_pb2 import SummaryMetadata  # Loads much, for what few programs use.

    plugin = SummaryMetadata.PluginData(plugin_name="graph_keras_model", content=b"1")
    try:
        config = data.to_json()
    except Exception as error:  # Whatever a layer's `get_config` raises: training goes on without the picture.
        warnings.warn(f"The model's graph is not shown in TensorBoard, as it has no JSON: {error}", stacklevel=2)
        return False
    return summary.write(name, config, step, SummaryMetadata(plugin_data=plugin))


_Board = keras.callbacks.TensorBoard

CHANGES = (
    Hook(_Board, "summary", instead(property(lambda self: summary)), None, "this project's `tf.summary`; not called"),
    Hook(_Board, "__init__", _profiling, "self log_dir", "profiles under every Python"),
    Hook(
        _Board, "on_train_batch_end", _reading_logs_if_recording, "self batch logs", "no wait for logs nobody records"
    ),
    Hook(
        tensorboard,
        "keras_model_summary",
        instead(_write_model),
        "name data step",
        "the graph of layers without TensorFlow; not called",
    ),
    Hook(python_utils, "pythonify_logs", _leaving_lazy, "logs", "lazy logs stay lazy"),
    *(
        Hook(
            CallbackList,
            f"on_{kind}_batch_end",
            _with_lazy_logs,
            "self batch logs",
            "values of logs are waited for by whoever reads them",
        )
        for kind in ("train", "test", "predict")
    ),
)
