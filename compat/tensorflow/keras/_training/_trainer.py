"""Keras's trainer under strategies: a model trains on the replicas of the strategy in whose scope it was made."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.distribution import distribution

from tfdist_jax._thread_state import having, restoring_thread_state, restoring_variables
from tfdist_jax.compat.tensorflow._platform._context import current_strategy
from tfdist_jax.compat.tensorflow.distribute._strategy import DefaultStrategy, Strategy
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import JAXTrainer, Trainer, get_stateless_scope, jax_trainer
from tfdist_jax.compat.tensorflow.keras._training._step_function import (
    METRIC_RESET,
    MetricReset,
    StepFunction,
    VariableIds,
    note_training,
    require_batch,
    settle,
)
from tfdist_jax.compat.tensorflow.keras._training._steps import (
    TRAINED_KINDS,
    PredictStep,
    Step,
    TestStep,
    make_train_step,
)
from tfdist_jax.compat.tensorflow.keras._training._threads import building, end_building
from tfdist_jax.compat.tensorflow.keras._training._train_step_signature import is_tensorflow_form
from tfdist_jax.compat.tensorflow.keras._training._workers import STRATEGY, prepared, strategy_of

_STEPS: dict[str, Callable[[Any, int], Step]] = {"train": make_train_step, "test": TestStep, "predict": PredictStep}
# With the kind of their steps and their first parameters.
_METHODS = (
    ("fit", "train", "self x y"),
    ("train_on_batch", "train", "self x y"),
    ("evaluate", "test", "self x y"),
    ("test_on_batch", "test", "self x y"),
    ("predict", "predict", "self x"),
    ("predict_on_batch", "predict", "self x"),
)

# The calls that reset metrics before their only step.
_RESETTING = ("train_on_batch", "test_on_batch")


@functools.cache
def _one_replica() -> DefaultStrategy:
    return DefaultStrategy()


def _strategy_for(model: keras.Model, kind: str) -> Strategy | None:
    """Return the strategy under which a model's steps of a kind run; None if Keras runs them, as a `keras.distribution` wants."""
    strategy = strategy_of(model)
    if strategy is not None or (distribution() is not None and not is_tensorflow_form(model, f"{kind}_step")):
        return strategy
    return _one_replica()


def _remembering_strategy(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: keras.Model, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        # Past Keras's attribute tracking, which is for layers and variables.
        object.__setattr__(self, STRATEGY, current_strategy())

    return init


def _making_step_function(kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make_function(self: keras.Model, force: bool = False) -> Any:
        end_building()
        strategy, attribute = _strategy_for(self, kind), f"{kind}_function"
        if strategy is None:
            before = getattr(self, attribute)
            original(self, force)
            if getattr(self, attribute) is not before:
                setattr(self, attribute, _giving_back(self, kind, getattr(self, attribute)))
            return getattr(self, attribute)
        if force or getattr(self, attribute) is None:
            setattr(self, attribute, StepFunction(_STEPS[kind](self, strategy.num_replicas_in_sync), strategy))
        return getattr(self, attribute)

    return make_function


def _giving_back(model: keras.Model, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Lose no state that Keras's own engine has taken from the variables where there is no batch."""

    @functools.wraps(function)
    def step_function(state: Any, iterator: Any) -> Any:
        try:
            results = function(state, iterator)
        except StopIteration:
            kinds = [name for name in TRAINED_KINDS if kind == "train" or name != "optimizer_variables"]
            model._jax_state = dict(zip(kinds, state, strict=False))
            if kind == "train":
                require_batch(model)
            raise
        if kind == "train":
            note_training(model)
        return results

    return step_function


def _in_scope(name: str, kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Run a training method inside its model's strategy, as if the script had."""
    signature = inspect.signature(original)

    def run(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        strategy = strategy_of(self)
        if strategy is None:
            return original(self, *args, **kwargs)
        with strategy.scope():
            if not name.endswith("_on_batch"):
                given = signature.bind(self, *args, **kwargs)
                given.apply_defaults()
                kwargs = prepared(self, name, given.arguments, kwargs)
            return original(self, *args, **kwargs)

    @functools.wraps(original)
    def method(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        is_first = getattr(self, f"{kind}_function", None) is None
        leave_reset = _leaving_reset(self, kind) if name in _RESETTING else contextlib.nullcontext()
        # Later calls trace only where programs are made, which restores the thread's state, too.
        restoring = restoring_thread_state if is_first or self.run_eagerly else restoring_variables
        with restoring(), building(self) if is_first else contextlib.nullcontext(), leave_reset:
            return run(self, *args, **kwargs)

    return method


@contextlib.contextmanager
def _leaving_reset(model: keras.Model, kind: str) -> Iterator[None]:
    call = MetricReset(model, kind)
    try:
        with having(METRIC_RESET, call):
            yield
    finally:
        if call.left is not None:  # The step has failed.
            call.left()


def _left_to_step(original: Callable[..., None]) -> Callable[..., None]:
    """Reset metrics in the program of the batch that comes with the call, where variables are all that there is to reset."""

    @functools.wraps(original)
    def reset_metrics(self: keras.Model) -> None:
        call = METRIC_RESET.get()
        if call is not None and call.model is self and call.can_leave():
            call.left = functools.partial(original, self)
        else:
            original(self)

    return reset_metrics


def _left_in_variables(original: Callable[..., Any]) -> Callable[..., Any]:
    """Leave values in the variables, where steps under a strategy find and put them."""

    @functools.wraps(original)
    def _get_jax_state(self: keras.Model, *, purge_model_variables: bool = False, **wanted: bool) -> Any:
        names = [name for name in TRAINED_KINDS if wanted.get(name)]
        kind = "train" if "optimizer_variables" in names else "test" if "metrics_variables" in names else "predict"
        if _strategy_for(self, kind) is None:
            return original(self, purge_model_variables=purge_model_variables, **wanted)
        name = f"make_{kind}_function"
        if getattr(type(self), name) is not getattr(JAXTrainer, name):
            return original(self, **wanted)  # The user's own function may work on values.
        return tuple(VariableIds.of(self, name) for name in names)

    return _get_jax_state


def _unless_made_of_built_parts(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build nothing for a model that has steps of its own in place of `call`, such as a pair of networks."""

    @functools.wraps(original)
    def _symbolic_build(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        parts = [layer for layer in self._flatten_layers() if layer is not self]
        if type(self).call is not keras.Model.call or not all(layer.built for layer in parts):
            # Without a batch there is nothing to build from; the loops that come next say so, or have nothing to do.
            with contextlib.suppress(StopIteration):
                return original(self, *args, **kwargs)
            return None
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return None

    return _symbolic_build


def _asking_for_results_of_batches(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _get_metrics_result_or_logs(self: keras.Model, logs: Any) -> Any:
        return original(self, logs) if logs else logs

    return _get_metrics_result_or_logs


def _refusing_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Say that there is nothing to predict, where Keras fails over a name of its own."""

    @functools.wraps(original)
    def predict(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except (StopIteration, UnboundLocalError) as error:
            if isinstance(error, UnboundLocalError) and "'batch_outputs'" not in str(error):
                raise
            raise ValueError(
                "`predict` has got no batch of data. Look whether the arrays or the dataset are empty, and whether a generator or "
                "an iterator has been used up by an earlier call."
            ) from error

    return predict


def _settling_first(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Make state equal on all replicas before the model's variables get it."""

    @functools.wraps(original)
    def jax_state_sync(self: keras.Model) -> None:
        if get_stateless_scope() is not None:
            return  # It says what the variables hold.
        settle(self)
        original(self)

    return jax_state_sync


def _left_on_host(original: Callable[..., Any]) -> Callable[..., Any]:
    """Keep whole batches off the first device: the step function sends each replica its rows."""

    @functools.wraps(original)
    def distribute_data(data: Any, layouts: Any = None) -> Any:
        return data if current_strategy() is not None or distribution() is None else original(data, layouts)

    return distribute_data


CHANGES = (
    Hook(
        JAXTrainer,
        "__init__",
        _remembering_strategy,
        "self",
        "a model belongs to the strategy in whose scope it is made",
    ),
    Hook(
        JAXTrainer,
        "jax_state_sync",
        _settling_first,
        "self",
        "accumulated gradients become equal before variables get them",
    ),
    Hook(
        JAXTrainer,
        "_get_jax_state",
        _left_in_variables,
        "self trainable_variables non_trainable_variables optimizer_variables metrics_variables purge_model_variables",
        "values stay in the variables",
    ),
    Hook(
        JAXTrainer,
        "_symbolic_build",
        _unless_made_of_built_parts,
        "self iterator data_batch",
        "a model without `call` has nothing to build",
    ),
    Hook(
        JAXTrainer,
        "_get_metrics_result_or_logs",
        _asking_for_results_of_batches,
        "self logs",
        "without a batch metrics may have no result yet",
    ),
    Hook(Trainer, "reset_metrics", _left_to_step, "self", "calls with one batch reset in the batch's program"),
    Hook(JAXTrainer, "predict", _refusing_nothing, "self x", "an error that says that there are no data"),
    *(
        Hook(
            JAXTrainer,
            f"make_{kind}_function",
            functools.partial(_making_step_function, kind),
            "self force",
            "one program over the replicas for each step",
        )
        for kind in _STEPS
    ),
    *(
        Hook(
            JAXTrainer,
            name,
            functools.partial(_in_scope, name, kind),
            parameters,
            "run in the strategy of the model, as if the script had opened its scope",
        )
        for name, kind, parameters in _METHODS
    ),
    Hook(jax_trainer, "_distribute_data", _left_on_host, "data layouts", "no whole batch visits the first device"),
)
