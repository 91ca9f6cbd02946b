"""Files of models: replaced only when they are complete, and under the names without suffix that TensorFlow 2 took."""

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import h5py
import jax
import keras
import keras._tf_keras.keras as tf_keras

from tfdist_jax._checkpoint._checkpoint import put_on_disk
from tfdist_jax._thread_state import having
from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import (
    keras_option_scope,
    legacy_h5_format,
    saving_api,
    saving_lib,
    saving_utils,
    serialization_lib,
)
from tfdist_jax.compat.tensorflow.keras._saving._orbax_folders import (
    find_orbax_step,
    load_orbax_model,
    load_orbax_weights,
)
from tfdist_jax.compat.tensorflow.keras._saving._seal import check, seal
from tfdist_jax.compat.tensorflow.keras._saving._seeds import add_seeds
from tfdist_jax.compat.tensorflow.train._checkpoint import Checkpoint
from tfdist_jax.compat.tensorflow.train._state_file import update_checkpoint_state

_MODEL_SUFFIXES = (".keras", ".h5", ".hdf5")
_WEIGHTS_SUFFIXES = (*_MODEL_SUFFIXES, ".weights.json")
# Where a model lies in the folder that a name without suffix stands for.
_IN_FOLDER = "model.keras"


def _outside_strategies(original: Callable[[str], Any]) -> Callable[[str], Any]:
    """To see which attributes objects have, Keras makes some, with variables that belong to no strategy or other scope."""

    @functools.cache
    @functools.wraps(original)
    def get_attr_skipset(obj_type: str) -> Any:
        with ThreadPoolExecutor(1) as outside:
            return outside.submit(original, obj_type).result()

    return get_attr_skipset


_additions: ContextVar[tuple[Callable[[str], None], ...]] = ContextVar("additions", default=())


@contextlib.contextmanager
def adding(write: Callable[[str], None]) -> Iterator[None]:
    """Let `write(path)` add to what is saved inside the context, before it replaces the file that was there."""
    with having(_additions, (*_additions.get(), write)):
        yield


def _replacing_at_once(original: Callable[..., Any]) -> Callable[..., Any]:
    """Write beside the file and rename: whatever stops the process leaves the old file or the new one."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def save(model: keras.Model, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(model, filepath, *args, **kwargs).arguments
        is_folder = given.get("zipped") is False or given.get("max_shard_size") is not None
        if is_folder or not _is_local_file(filepath):
            return original(model, filepath, *args, **kwargs)
        path = Path(filepath).absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        # The suffix says in which format to write. The name is always the same, so that rests do not pile up; but each
        # worker of several writes its own.
        worker = f".{jax.process_index()}" if jax.process_count() > 1 else ""
        beside = path.with_name(f".new{worker}.{path.name}")
        try:
            result = original(model, str(beside), *args, **kwargs)
            add_seeds(model, str(beside))
            for add in _additions.get():
                add(str(beside))
            seal(beside)
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
        put_on_disk(path.parent)
        return result

    return save


def _is_local_file(filepath: Any) -> bool:
    return isinstance(filepath, str | os.PathLike) and "://" not in str(filepath)


def _has_suffix(filepath: Any, suffixes: tuple[str, ...]) -> bool:
    return str(filepath).endswith(suffixes) or not _is_local_file(filepath)


def _check(filepath: Any) -> None:
    if _is_local_file(filepath) and _has_suffix(filepath, _MODEL_SUFFIXES) and os.path.isfile(filepath):
        check(filepath)


def _saving_folders(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def save_model(
        model: keras.Model, filepath: Any, overwrite: bool = True, zipped: Any = None, **kwargs: Any
    ) -> None:
        if _has_suffix(filepath, _MODEL_SUFFIXES) or zipped is False:
            return original(model, filepath, overwrite, zipped, **kwargs)
        form = kwargs.pop("save_format", None)
        if form in ("h5", "hdf5"):
            return legacy_h5_format.save_model_to_hdf5(
                model, filepath, overwrite=overwrite, include_optimizer=kwargs.pop("include_optimizer", True)
            )
        if kwargs.pop("signatures", None) is not None:
            raise NotImplementedError(
                "`save` writes no SavedModel, so it takes no `signatures`. Use `model.export(path)` for serving."
            )
        kwargs.pop("options", None)
        return original(model, os.path.join(filepath, _IN_FOLDER), overwrite, zipped, **kwargs)

    return save_model


def _loading_folders(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_model(filepath: Any, *args: Any, **kwargs: Any) -> Any:
        if not _has_suffix(filepath, _MODEL_SUFFIXES):
            if os.path.isfile(os.path.join(filepath, _IN_FOLDER)):
                filepath = os.path.join(filepath, _IN_FOLDER)
            elif os.path.isfile(filepath) and h5py.is_hdf5(filepath):
                check(filepath)
                return legacy_h5_format.load_model_from_hdf5(filepath, *args, **kwargs)
            elif (step := find_orbax_step(filepath)) is not None:
                return load_orbax_model(step, *args, **kwargs)
        _check(filepath)
        return original(filepath, *args, **kwargs)

    return load_model


def _saving_checkpoints(original: Callable[..., None]) -> Callable[..., None]:
    """Save weights under a name without suffix as TensorFlow 2 does: as a checkpoint that is its folder's newest."""

    @functools.wraps(original)
    def save_weights(model: keras.Model, filepath: Any, overwrite: bool = True, *args: Any, **kwargs: Any) -> None:
        form = kwargs.pop("save_format", None)
        kwargs.pop("options", None)
        if _is_old_weights(filepath, form):
            return _replacing_at_once(_save_old_weights)(model, filepath)
        if _has_suffix(filepath, _WEIGHTS_SUFFIXES):
            return original(model, filepath, overwrite, *args, **kwargs)
        path = Checkpoint(model).write(filepath)
        return update_checkpoint_state(os.path.dirname(path) or ".", path)

    return save_weights


def _is_old_weights(filepath: Any, form: str | None) -> bool:
    """Whether weights are asked for in the file that Keras 2 wrote, which `load_weights` still reads, also by name."""
    if not _is_local_file(filepath) or str(filepath).endswith((".weights.h5", ".weights.json", ".keras")):
        return False
    return form in ("h5", "hdf5", "keras") or str(filepath).endswith((".h5", ".hdf5"))


def _save_old_weights(model: keras.Model, filepath: str) -> None:
    tell_old_form("weights in a file of Keras 2", "a name that ends in `.weights.h5`")
    with h5py.File(filepath, "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, model)


def _load_old_weights(model: keras.Model, filepath: Any, skip_mismatch: bool = False, by_name: bool = False) -> None:
    load = legacy_h5_format.load_weights_from_hdf5_group
    with h5py.File(filepath, "r") as file:
        if "layer_names" not in file.attrs:
            raise ValueError(
                f"{filepath} holds no weights that Keras 2 has saved. Give the file a name that ends in `.weights.h5`."
            )
        (legacy_h5_format.load_weights_from_hdf5_group_by_name if by_name else load)(file, model, skip_mismatch)


def _loading_checkpoints(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_weights(model: keras.Model, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        if filepath is None or _has_suffix(filepath, _WEIGHTS_SUFFIXES):
            _check(filepath)
            return original(model, filepath, *args, **kwargs)
        if (step := find_orbax_step(filepath)) is not None:
            return load_orbax_weights(model, step, *args, **kwargs)
        if os.path.isfile(filepath) and h5py.is_hdf5(filepath):
            return _load_old_weights(model, filepath, *args, **kwargs)
        return Checkpoint(model).read(filepath)

    return load_weights


def _taking_format(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def save_weights(self: keras.Model, filepath: Any, overwrite: bool = True, *args: Any, **kwargs: Any) -> None:
        saving_api.save_weights(self, filepath, overwrite, *args, **kwargs)

    return save_weights


def _returning_status(original: Callable[..., None]) -> Callable[..., Any]:
    """Return what loading a checkpoint returns, for `model.load_weights(path).expect_partial()`."""

    @functools.wraps(original)
    def load_weights(self: keras.Model, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        if filepath is None or _has_suffix(filepath, _WEIGHTS_SUFFIXES):
            return original(self, filepath, *args, **kwargs)
        return saving_api.load_weights(self, filepath, *args, **kwargs)

    return load_weights


def _taking_any_name(original: Callable[..., None]) -> Callable[..., None]:
    """Let `ModelCheckpoint` take the names without suffix that `save` and `save_weights` take."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self.period, self._epochs_waited = kwargs.pop("period", 1), 0
        kwargs.pop("options", None)
        given = signature.bind(self, *args, **kwargs)
        path = str(given.arguments["filepath"])
        weights_only = given.arguments.get("save_weights_only", False)
        if path.endswith((".weights.h5",) if weights_only else (".keras", ".h5")):
            original(self, *args, **kwargs)
            return
        given.arguments["filepath"] = f"{path}.weights.h5" if weights_only else f"{path}.keras"
        original(*given.args, **given.kwargs)
        self.filepath = path

    return __init__


def _once_a_period(original: Callable[..., None]) -> Callable[..., None]:
    """Look at every so many epochs only, as `ModelCheckpoint(period=...)` of Keras 2 asks."""

    @functools.wraps(original)
    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> None:
        self._epochs_waited += 1
        if self._epochs_waited < self.period:
            return
        if self.period > 1:
            tell_old_form("`ModelCheckpoint(period=...)`", "`save_freq=` in batches")
        self._epochs_waited = 0
        original(self, epoch, logs)

    return on_epoch_end


def _finding_functions(original: Callable[..., Any]) -> Callable[..., Any]:
    """Find Keras's own functions, such as "mse", which `.h5` files name; Keras 3.15 finds its classes only."""

    @functools.wraps(original)
    def _retrieve_class_or_fn(
        name: str, registered_name: Any, module: Any, obj_type: str, *args: Any, **kwargs: Any
    ) -> Any:
        if obj_type == "function" and module in ("keras.losses", "keras.metrics"):
            namespaces = (keras.losses, keras.metrics, tf_keras.losses, tf_keras.metrics)
            found = next((getattr(one, name) for one in namespaces if hasattr(one, name)), None)
            if inspect.isfunction(found) and found.__module__.startswith("keras."):
                return found
        return original(name, registered_name, module, obj_type, *args, **kwargs)

    return _retrieve_class_or_fn


def _telling(name: str, original: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Tell an argument that a class of Keras 3.15 leaves out, with which its objects come back as others."""

    @functools.wraps(original)
    def get_config(self: Any) -> dict[str, Any]:
        if not type(self).__module__.startswith("keras."):
            return original(self)  # A class of the program's own may not take it.
        arguments = self.__dict__.get("_fn_kwargs", self.__dict__)
        return {**original(self), name: arguments[name]}

    return get_config


def _telling_modules(original: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Describe a model for HDF5 with the modules of its classes, and leave it its optimizer.

    Keras writes "Add" for a layer and for `x + 1`, and reads the layer. It takes the optimizer out of what the model tells of
    itself, and files that are written later have RMSprop.
    """

    @functools.wraps(original)
    def model_metadata(model: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        compiled = getattr(getattr(model, "_compile_config", None), "config", {})
        kept = dict(compiled)
        try:
            metadata = original(model, *args, **kwargs)
        finally:
            compiled.update(kept)
        if "config" in metadata["model_config"]:
            with keras_option_scope(use_legacy_config=False):
                metadata["model_config"]["config"] = model.get_config()
        return metadata

    return model_metadata


def _handed_out(name: str, wrapper: Callable[[Any], Any], parameters: str) -> Hook:
    elsewhere = tuple(module for module in (keras.models, keras.saving, tf_keras.models) if hasattr(module, name))
    reason = "TensorFlow 2's names without suffix: a folder for a model, a checkpoint for weights"
    return Hook(saving_api, name, wrapper, parameters, reason, elsewhere)


_LEFT_OUT = (
    (keras.initializers.Identity, "gain"),
    (keras.losses.CosineSimilarity, "axis"),
    (keras.losses.Huber, "delta"),
    (keras.losses.SparseCategoricalCrossentropy, "axis"),
    (keras.metrics.CosineSimilarity, "axis"),
)

_SAVES = "write beside the file and rename it, with the seeds: a crash leaves the old file"

CHANGES = (
    Hook(
        serialization_lib,
        "_retrieve_class_or_fn",
        _finding_functions,
        "name registered_name module obj_type full_config",
        "losses and metrics that are functions",
    ),
    *(
        Hook(cls, "get_config", functools.partial(_telling, name), "self", f"`{name}`, which Keras leaves out")
        for cls, name in _LEFT_OUT
    ),
    Hook(saving_utils, "model_metadata", _telling_modules, "model", "HDF5 with modules; the model keeps its optimizer"),
    Hook(
        saving_lib,
        "get_attr_skipset",
        _outside_strategies,
        "obj_type",
        "the objects it makes to look at belong to no strategy",
    ),
    Hook(saving_lib, "save_model", _replacing_at_once, "model filepath weights_format zipped", _SAVES),
    Hook(saving_lib, "save_weights_only", _replacing_at_once, "model filepath max_shard_size", _SAVES),
    Hook(
        legacy_h5_format, "save_model_to_hdf5", _replacing_at_once, "model filepath overwrite include_optimizer", _SAVES
    ),
    _handed_out("save_model", _saving_folders, "model filepath overwrite zipped"),
    _handed_out("load_model", _loading_folders, "filepath"),
    _handed_out("save_weights", _saving_checkpoints, "model filepath overwrite"),
    _handed_out("load_weights", _loading_checkpoints, "model filepath"),
    Hook(keras.Model, "save_weights", _taking_format, "self filepath overwrite", "Keras 2's `save_format`; not called"),
    Hook(keras.Model, "load_weights", _returning_status, "self filepath", "return a status, for `expect_partial`"),
    Hook(keras.callbacks.ModelCheckpoint, "on_epoch_end", _once_a_period, "self epoch logs", "Keras 2's `period`"),
    Hook(
        keras.callbacks.ModelCheckpoint,
        "__init__",
        _taking_any_name,
        "self filepath",
        "TensorFlow 2's names without suffix",
    ),
)
