"""`tf.train.Checkpoint`: saves and restores variables by the attributes that lead to them."""

import copy
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, final

from tfdist_jax._checkpoint._background_saving import BackgroundSaving
from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax._stateful import _state
from tfdist_jax._stateful._snapshot import SnapshotScope
from tfdist_jax.compat.tensorflow._functions._concrete_function import ConcreteFunction
from tfdist_jax.compat.tensorflow._platform._context import replica_context
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._variables._tracking import attributes_changed, tracked
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow.train._objects import Collection, children, is_trackable
from tfdist_jax.compat.tensorflow.train._options import CheckpointOptions, call_back, calling_too
from tfdist_jax.compat.tensorflow.train._reader import checked_path
from tfdist_jax.compat.tensorflow.train._restoration import Restoration, listed
from tfdist_jax.compat.tensorflow.train._state_file import as_text, update_checkpoint_state
from tfdist_jax.compat.tensorflow.train._writing import begin_writing


class Checkpoint(Collection):
    """Drop-in for `tf.train.Checkpoint`: groups objects whose variables are saved together.

    Each saved checkpoint is there completely or not at all. It can be restored under any strategy and on any number of
    devices. TensorFlow's own checkpoints are restored, too.

    Differs from TensorFlow: a checkpoint is a folder, in Orbax's format, unless TFDIST_CHECKPOINT_FORMAT=tensorflow is set in
    the environment.
    Ref: https://www.tensorflow.org/api_docs/python/tf/train/Checkpoint
    """

    # The names of what this checkpoint has put beside its root's own attributes; without a root, all attributes count.
    _attached: tuple[str, ...] | None = None

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        """Group objects.

        Args:
            root: An object whose attributes are saved as if they were this checkpoint's.
            **kwargs: Objects by name: variables, modules, Keras models and optimizers, lists and dicts of such.

        Raises:
            ValueError: If an object has nothing to save, or `root` has another one of that name.
        """
        self._save_counter: Variable | None = None
        self._saving: BackgroundSaving | None = None
        self._lock = threading.RLock()
        objects = dict(sorted(kwargs.items()))
        if root is not None:
            _require_trackable("root", _followed(root), but=list | tuple | Mapping)
            self._attached = tuple(sorted(["root", *objects]))
            self.root = root
        own = {name: child for each in self.roots() for name, child in children(each)}
        for name, value in objects.items():
            child = _followed(value)
            if own.get(name, child) is not child:
                raise ValueError(
                    f"Cannot create a Checkpoint with keyword argument {name} if root.{name} already exists."
                )
            _require_trackable(name, child)
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, tracked(value))
        attributes_changed(self)

    @property
    def save_counter(self) -> Variable:
        """How often `save` has been called, int64; saved with the rest."""
        counter = self._save_counter
        if counter is None:
            of_root = (child for root in self.roots() for name, child in children(root) if name == "save_counter")
            counter = next(of_root, None)
        if counter is None:
            counter = Variable(0, dtype=_dtypes.int64, name="save_counter", trainable=False)
        self._save_counter = counter
        return counter

    @property
    def lock(self) -> threading.RLock:
        """Held by the thread that saves."""
        return self._lock

    def children(self) -> Iterator[tuple[str, Any]]:
        """Yield the objects to save besides the root's, by name."""
        names = vars(self) if self._attached is None else self._attached
        yield from [(name, _followed(vars(self)[name])) for name in names if not name.startswith("_")]
        if self._save_counter is not None:
            yield "save_counter", self._save_counter

    def roots(self) -> Iterator[Any]:
        """Yield the root, if there is one and it is still there."""
        root = None if self._attached is None else _followed(self.root)
        if root is not None:
            yield root

    def __deepcopy__(self, memo: dict[int, Any]) -> "Checkpoint":
        """Return a checkpoint of copies of the objects, which saves on its own."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        for name, own in vars(self).items():
            apart = {"_lock": threading.RLock, "_saving": lambda: None}.get(name)
            vars(copied)[name] = copy.deepcopy(own, memo) if apart is None else apart()
        return copied

    def save(self, file_prefix: Any, options: CheckpointOptions | None = None) -> str:
        """Save as `file_prefix-N`, count up N, and note it in the folder as the newest.

        Args:
            file_prefix: The path without the number.
            options: Whether to write in the background, and what to call when all is written.

        Returns:
            The path to restore from.

        Raises:
            RuntimeError: If what was written in the background before has failed.
        """
        _require_outside("Saving", _SAVING_IN_FUNCTION)
        with self._lock:
            self.save_counter.assign_add(1)
            path = f"{as_text(file_prefix)}-{int(self.save_counter.numpy())}"
            note = lambda path: update_checkpoint_state(os.path.dirname(path), path)
            return self.write(path, calling_too(options, note))

    def write(self, file_prefix: Any, options: CheckpointOptions | None = None) -> str:
        """Do as `save`, but as `file_prefix`, without a number and without noting it as the newest.

        A function that calls it runs as Python.
        """
        _require_outside("Writing")
        with self._lock:
            return self._write(as_text(file_prefix), options or CheckpointOptions())

    def _write(self, path: str, options: CheckpointOptions) -> str:
        self.sync()
        finish_writing = begin_writing(path, self)

        def finish() -> None:
            finish_writing()
            call_back(options, path)

        if not options.enable_async:
            finish()
            return path
        self._saving = self._saving or BackgroundSaving()
        self._saving.start(path, finish)
        return path

    def sync(self) -> None:
        """Wait until all is written that is being written in the background, and raise if that has failed."""
        if self._saving is not None:
            self._saving.wait()

    def restore(self, save_path: Any, options: Any = None) -> "LoadStatus":
        """Give the variables the saved values: those that are there now, and others as soon as they are made.

        Args:
            save_path: What `save` has returned, or a folder, for its newest checkpoint; None restores nothing.
            options: Accepted.

        Returns:
            A status that says whether everything has found its place.

        Raises:
            NotFoundError: If there is no such checkpoint.
            ValueError: If a variable has another shape.
            InvalidArgumentError: If a variable has another dtype.
        """
        self.save_counter  # noqa: B018 - so that it is restored with the rest.
        return self.read(save_path)

    def read(self, save_path: Any, options: Any = None) -> "LoadStatus":
        """Do as `restore`, for what `write` has saved.

        A function that calls it runs as Python.
        """
        if replica_context() is None:
            _require_outside("Reading")
        self.sync()
        return LoadStatus(self, None if save_path is None else Restoration(checked_path(save_path), self))


_SAVING_IN_FUNCTION = (
    "Calling tf.train.Checkpoint.save() from a function is not supported, as it counts and notes the checkpoint in its "
    "folder. Use tf.train.Checkpoint.write(), or save when the function has returned."
)


def _require_outside(doing: str, refusal: str = "") -> None:
    """Raise in code whose variables have no values yet; if that is a function, one that makes it run as Python."""
    scope = _state.current_scope()
    if isinstance(scope, SnapshotScope | None):
        return
    if replica_context() is not None or not scope.is_traced:
        raise NotImplementedError(
            f"{doing} a checkpoint inside strategy.run is not supported: the values are not known yet. Do it when the "
            "step has returned."
        )
    if refusal:
        raise NotImplementedError(refusal)
    raise ConcreteValueRequiredError(f"{doing} a checkpoint takes the values of variables, at each call.")


def _followed(value: Any) -> Any:
    return value() if isinstance(value, weakref.ref) else value


def _require_trackable(name: str, value: Any, *, but: Any = ()) -> None:
    # A function has nothing to save in a checkpoint, but a SavedModel of this one has it.
    is_function = isinstance(value, ConcreteFunction) or hasattr(type(value), "concrete_functions")
    if is_function or (is_trackable(value) and not isinstance(value, but)):
        return
    raise ValueError(
        f"`Checkpoint` was expecting {name} to be a trackable object (an object that holds variables), got "
        f"{value!r} of type {type(value).__name__}. {_instead_of(value)}"
    )


def _instead_of(value: Any) -> str:
    if hasattr(value, "__next__"):
        return "Of such an iterator, save the number of steps in a tf.Variable, and go on from `dataset.skip(steps)`."
    return "A number can be kept in a tf.Variable."


@final
class LoadStatus:
    """What has become of the values that were restored.

    Ref: https://www.tensorflow.org/api_docs/python/tf/train/Checkpoint#restore
    """

    def __init__(self, checkpoint: Checkpoint, restoration: Restoration | None) -> None:
        """Report on a restoration, or on none."""
        self._checkpoint = checkpoint
        self._restoration = restoration

    def _begun(self) -> Restoration:
        if self._restoration is None:
            raise AssertionError("No checkpoint specified (save_path=None); nothing is being restored.")
        return self._restoration

    def assert_consumed(self) -> "LoadStatus":
        """Require that all saved values have found a variable and all variables a value.

        Raises:
            AssertionError: If not.
        """
        self.assert_existing_objects_matched()
        restoration = self._begun()
        if restoration.unused:
            raise AssertionError(
                f"Unresolved object in checkpoint {restoration.path}: no variable has been made yet for "
                f"{listed(restoration.unused.values())}."
            )
        return self

    def assert_existing_objects_matched(self) -> "LoadStatus":
        """Require that all variables that are there have been restored.

        Raises:
            AssertionError: If not.
        """
        restoration = self._begun()
        missing = restoration.missing(self._checkpoint)
        if missing:
            raise AssertionError(f"No values were found in checkpoint {restoration.path} for {listed(missing)}.")
        return self

    def assert_nontrivial_match(self) -> "LoadStatus":
        """Require that at least one object besides the root has been found in the checkpoint.

        Raises:
            AssertionError: If not.
        """
        restoration = self._begun()
        if not restoration.has_matched:
            raise AssertionError(f"Nothing except the root object matched an object of {restoration.path}.")
        return self

    def expect_partial(self) -> "LoadStatus":
        """Do not warn about values that are never used."""
        if self._restoration is not None:
            self._restoration.is_partial_expected = True
        return self

    def initialize_or_restore(self, session: Any = None) -> None:
        """Do nothing: values are restored when their variables are there."""

    def run_restore_ops(self, session: Any = None) -> None:
        """Do nothing, likewise; an AssertionError if nothing is restored."""
        self._begun()
