"""What Keras does in a step, cut where the replicas meet: a local part for each replica, and what follows from all."""

import abc
import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import keras

from tfdist_jax import ReduceOp
from tfdist_jax._stateful import _state
from tfdist_jax._stateful._merging import Part
from tfdist_jax._stateful._served_storage import update
from tfdist_jax._stateful._state import Merge
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order
from tfdist_jax.compat.tensorflow.distribute._current import get_replica_context
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy
from tfdist_jax.compat.tensorflow.keras._internals import get_keras_mask, set_keras_mask
from tfdist_jax.compat.tensorflow.keras._training._accumulation import accumulates, apply_accumulating
from tfdist_jax.compat.tensorflow.keras._training._loss_scaling import (
    rescale_regularizers,
    scaling_only_gradients,
)
from tfdist_jax.compat.tensorflow.keras._training._optimizer import overriding
from tfdist_jax.compat.tensorflow.keras._training._round_gradients import give_to_round
from tfdist_jax.compat.tensorflow.keras._training._summed_updates import can_postpone, postpone, sum_laid_out
from tfdist_jax.compat.tensorflow.keras._training._sync_batch_norm import meets_other_replicas
from tfdist_jax.compat.tensorflow.keras._training._train_step_signature import (
    forward,
    is_overridden,
    is_tensorflow_form,
    takes_state,
)
from tfdist_jax.compat.tensorflow.keras._training._workers import strategy_of
from tfdist_jax.compat.tensorflow.keras._variables._gradient_memory import prepare_memory
from tfdist_jax.compat.tensorflow.keras._variables._overwrite_with_gradient import (
    join_overwriting,
    reduce_apart,
    reduce_gradients,
)
from tfdist_jax.compat.tensorflow.keras._variables._reading_scope import reading
from tfdist_jax.compat.tensorflow.keras._variables._served import assign_now, note_read
from tfdist_jax.compat.tensorflow.keras._variables._tensor_attributes import LOGITS
from tfdist_jax.compat.tensorflow.keras._variables._variables import merge_of

Sizes = tuple[int, ...]
"""How many rows each replica has."""

State = tuple[list[jax.Array], ...]
"""The model's values as Keras passes them to a step: a list for each kind of variable."""

Logs = dict[str, Any]

TRAINED_KINDS = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")
"""What Keras's loops hand to a step: all of it to `fit`'s, which are the only ones with an optimizer."""


def variables_of(model: keras.Model, kind: str) -> list[Any]:
    """Return the variables of one kind of a model that was compiled."""
    return list(model.optimizer.variables if kind == "optimizer_variables" else getattr(model, kind))


def recurrent_states(model: keras.Model) -> list[Any]:
    """Return the states of a model's stateful recurrent layers, which Keras counts among no kind of variables."""
    layers = [each for each in model._flatten_layers() if isinstance(each, keras.layers.RNN) and each.stateful]
    return [state for layer in layers for state in keras.tree.flatten(layer.states) if state is not None]


class OwnResults(NamedTuple):
    """What a replica's own rows give.

    Attributes:
        logs: Log entries, of which the mean over all replicas' rows is shown; None for those that a metric gives.
        changes: The new values of the statistics and metrics; None where nothing changed.
        gradients: To be added up over the replicas.
        rows: Results with one row for each of the batch, which are joined.
    """

    logs: Logs
    changes: Sequence[jax.Array | None]
    gradients: Any = None
    rows: Any = None


class Step(abc.ABC):
    """A training, test or prediction step of one model, over its variables as cells.

    Attributes:
        name: What it is called in messages.
        kinds: The kinds of variables that Keras passes to the step, in its order.
        communicates: Whether `local` uses collectives or writes variables, so that replicas must not branch around it.
    """

    name = "train_step"
    kinds: tuple[str, ...] = ("trainable_variables", "non_trainable_variables", "metrics_variables")
    communicates = False

    def __init__(self, model: keras.Model, num_replicas: int) -> None:
        """Make the step that `model`'s class defines, for so many replicas."""
        self.model = model
        self.num_replicas = num_replicas

    def begin(self, strategy: Strategy) -> None:
        """Make what the replicas of a strategy keep of compressed gradients from step to step, before they run."""
        if self.kinds is TRAINED_KINDS and self.model.optimizer is not None:
            prepare_memory(strategy, self.model.optimizer, variables_of(self.model, "trainable_variables"), _call)

    def prepared(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which all replicas run."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def local(self, batch: Any, sizes: Sizes) -> OwnResults:
        """Run the step on one replica's rows; the replicas have `sizes` of them."""

    def finish(self, results: OwnResults, part: Part) -> Logs:
        """Change the variables by what the rows of all replicas give, in one reduction, and return the logs."""
        return self._merge(results, part)[0]

    def finish_alone(self, results: OwnResults) -> Logs:
        """Change the variables by what one worker's rows give, beside other workers, and return the logs."""
        return self.write_alone(results)

    def write_alone(self, results: OwnResults) -> Logs:
        """Write what rows that no other replica shares have changed in statistics and metrics, and return the logs."""
        changed = [
            (variable, value)
            for variable, value in zip(self._merged_variables(), results.changes, strict=True)
            if value is not None
        ]
        for variable, value in changed:
            array = jnp.asarray(value, variable.dtype)
            if _state.current_scope() is None and variable.storage.is_served:
                assign_now(variable, array)
            else:
                _state.write(variable, array, merge=merge_of(variable))
        shown = _results(self.model, {id(variable) for variable, _ in changed})
        return {name: shown[name] if value is None else value for name, value in results.logs.items()}

    def nothing(self, types: OwnResults) -> OwnResults:
        """Return what no rows give: zeros, in the shapes of the other replicas' results, and variables as they are."""
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), types)
        kept = zip(self._merged_variables(), types.changes, strict=True)
        return zeros._replace(changes=[None if new is None else _state.read(variable) for variable, new in kept])

    def variables(self) -> tuple[list[Any], ...]:
        """Return the variables that the step reads, a list for each kind."""
        return tuple(variables_of(self.model, kind) for kind in self.kinds)

    def _merged_variables(self) -> list[Any]:
        """Return the variables that each replica changes by its own rows."""
        return [*self.model.non_trainable_variables, *self.model.metrics_variables, *self._recurrent_states()]

    def _recurrent_states(self) -> list[Any]:
        """Return what recurrent layers carry from batch to batch.

        Raises:
            NotImplementedError: If there are several replicas, whose rows would need states of their own.
        """
        states = recurrent_states(self.model)
        if states and self.num_replicas > 1:
            raise NotImplementedError(
                f"A recurrent layer with `stateful=True` keeps the state of one batch, {states[0].path!r}, but the strategy has "
                f"{self.num_replicas} replicas with rows of their own. Train the model on one device, or give the state as "
                "`initial_state`."
            )
        return states

    def _merge(self, results: OwnResults, part: Part, others: Any = ()) -> tuple[Logs, Any]:
        """Change statistics and metrics; return the logs, and `others` added up over the replicas."""
        scope: Any = _state.current_scope()
        changed = zip(self._merged_variables(), results.changes, strict=True)
        for variable, value in changed:
            if value is not None:
                merge = merge_of(variable)
                # What moves on equally on all replicas, such as a seed, stays where there are no rows.
                merge = Merge.FIRST if merge is Merge.SAME and not all(part.counts) else merge
                _state.write(variable, jnp.asarray(value, variable.dtype), merge=merge)
        share = lambda value: value * part.count / part.total
        shares = jax.tree.map(share, results.logs) if len(part.counts) > 1 else results.logs
        leaves, tree = jax.tree.flatten((shares, others))
        means, sums = tree.unflatten(scope.merge(part, _add_up, leaves))
        shown = _results(self.model, _written())
        return {name: shown[name] if value is None else value for name, value in means.items()}, sums

    def _run_on_values(self, fn: Callable[[], tuple[Any, Any]], weights: Any = None) -> tuple[OwnResults, Any]:
        """Run a function of the step's variables on values in their place, which JAX can differentiate and branch around.

        Args:
            fn: Returns log entries and anything else; it may assign the variables.
            weights: The trainable variables' values, if not the present ones.

        Returns:
            The log entries with what has become of statistics and metrics; and what else `fn` returns.
        """
        kinds = (*self.variables(), self._recurrent_states())
        pairs = [(variable, _state.read(variable)) for kind in kinds for variable in kind]
        if weights is not None:
            pairs[: len(weights)] = zip(self.variables()[0], weights, strict=True)
        with reading(), keras.StatelessScope(state_mapping=pairs, collect_losses=True) as scope:
            logs, other = fn()
            new = {id(variable): scope.get_current_value(variable) for variable, _ in pairs}
        changed = {id(variable): new[id(variable)] for variable, old in pairs if new[id(variable)] is not old}
        changes = [changed.get(id(variable)) for variable in self._merged_variables()]
        results = OwnResults(self._own_logs(logs, changed.keys()), changes)
        for variable, old in pairs:
            if variable.storage.is_served:
                note_read(variable, old)  # Last: it is what the changes begin with.
        return results, other

    def _run_on_state(self, batch: Any, count: int | None = None) -> tuple[State, Any]:
        """Run a step in JAX's form; return the values that it has got, of the first `count` kinds, and what it returns."""
        variables = self.variables()[:count]
        state = tuple(map(read_all, variables))
        with reading(refused=itertools.chain(*variables)):
            return state, getattr(self.model, self.name)(state, batch)

    def _from_state(self, logs: Mapping[str, Any], old: Sequence[Any], new: Sequence[Any]) -> OwnResults:
        """Return a replica's results, given the statistics and metrics that a step in JAX's form has got and returned."""
        changes = [None if after is before else after for before, after in zip(old, new, strict=True)]
        changed = zip(self._merged_variables(), changes, strict=False)
        updated = {id(variable) for variable, value in changed if value is not None}
        # Steps in JAX's form know nothing of recurrent layers' states.
        changes += [None] * len(self._recurrent_states())
        return OwnResults(self._own_logs(logs, updated), changes)

    def _own_logs(self, logs: Mapping[str, Any], updated: Set[int]) -> Logs:
        """Return a step's log entries, None in place of the results of metrics whose variables are `updated`."""
        shown = _results(self.model, updated)
        as_array = functools.partial(jax.tree.map, jnp.asarray)
        return {name: None if name in shown else as_array(value) for name, value in _flat(logs).items()}


@final
class TrainStep(Step):
    """Keras's own training step.

    Attributes:
        accumulates_locally: Whether gradients stay on their replicas until the optimizer uses them.
    """

    kinds = TRAINED_KINDS

    def __init__(self, model: keras.Model, num_replicas: int) -> None:
        """Make the training step of `model`."""
        super().__init__(model, num_replicas)
        self.communicates = meets_other_replicas(model)
        # Accumulated gradients of replicas differ in the program of one: they are compressed as they come, or split over devices.
        strategy = strategy_of(model)
        is_summed = strategy is not None and (strategy.compression is not None or strategy.storage.updates_apart)
        may = num_replicas > 1 and not model.run_eagerly and not self.communicates and not is_summed
        self.accumulates_locally = may and accumulates(model.optimizer)

    def local(self, batch: Any, sizes: Sizes) -> OwnResults:
        """Return this replica's gradients and what it changes in statistics and metrics.

        Raises:
            ValueError: If no replica has rows: a mean over nothing has no gradient.
        """
        if not any(sizes):
            raise ValueError(
                "A batch to train on has no rows. Leave such batches out of what the generator or dataset gives, for instance "
                "with `if len(x): yield x, y`."
            )
        trainable = variables_of(self.model, "trainable_variables")
        with rescale_regularizers(sizes):
            gradients, results = jax.grad(self._loss_and_results, has_aux=True)(read_all(trainable), batch)
        return results._replace(gradients=gradients)

    def finish_alone(self, results: OwnResults) -> Logs:
        """Apply the gradients of one worker to what the weights are by then, or give them to its round."""
        trainable, _, optimizer, _ = self.variables()
        if not give_to_round(self.model.optimizer, results.gradients, trainable):
            apply = functools.partial(_apply_in_place, self.model.optimizer, results.gradients, trainable)
            update(apply, [*trainable, *optimizer])
        return self.write_alone(results)

    def _loss_and_results(self, weights: list[Any], batch: Any) -> tuple[Any, OwnResults]:
        """Return the loss to be differentiated, for a replica's rows and trainable `weights`, and what the rows give beside it."""

        def fn() -> tuple[Logs, Any]:
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
            y_pred, loss = forward(self.model, x, y, sample_weight, training=True)
            scaled = self.model.optimizer.scale_loss(loss)
            return self.model.compute_metrics(x, y, jax.tree.map(_without_gradient, y_pred), sample_weight), scaled

        results, loss = self._run_on_values(fn, weights)
        return loss, results

    def finish(self, results: OwnResults, part: Part) -> Logs:
        """Apply the gradients of all replicas, which share the reduction."""
        trainable, _, optimizer, _ = self.variables()
        context = get_replica_context()
        own, apart = reduce_apart(context, self.model.optimizer, results.gradients, trainable)
        if can_postpone(self.model.optimizer, trainable):
            own, split = sum_laid_out(context, own, trainable)
            logs, own = self._merge(results, part, own)
            sums = join_overwriting(own, join_overwriting(split, apart))
            apply = lambda gradients: self.model.optimizer.apply(gradients, trainable)
            postpone(self.model.optimizer, trainable, sums, apply)
            return logs
        if getattr(self.model.optimizer, "writes_variables", False):
            logs, own = self._merge(results, part, own)
            _apply_in_place(self.model.optimizer, join_overwriting(own, apart), trainable)
            return logs
        state = read_all(optimizer), read_all(trainable)
        if self.accumulates_locally:
            logs, _ = self._merge(results, part)
            weights, slots = apply_accumulating(self.model.optimizer, state[0], join_overwriting(own, apart), state[1])
        else:
            logs, own = self._merge(results, part, own)
            weights, slots = self.model.optimizer.stateless_apply(state[0], join_overwriting(own, apart), state[1])
        write_same((*trainable, *optimizer), (*weights, *slots))
        return logs


@final
class CustomTrainStep(Step):
    """The user's `train_step`: the optimizer sums gradients over replicas when it applies them."""

    kinds = TRAINED_KINDS
    communicates = True

    @contextlib.contextmanager
    def prepared(self) -> Iterator[None]:
        """Let the optimizer sum gradients.

        A step in JAX's form shows the losses of its rows as they are; one in TensorFlow's form sees its replica's
        part of the global loss, as under TensorFlow.
        """
        with _summing_gradients(self.model, "train_step"), _loss_values(self.model, "train_step"):
            yield

    def local(self, batch: Any, sizes: Sizes) -> OwnResults:
        """Run the user's step; its weights come out equal on all replicas.

        Raises:
            NotImplementedError: If it returns new weights, where several workers change them at once.
        """
        if not takes_state(self.model, self.name):
            return self._run_with_variables(batch, sizes)
        if any(variable.storage.is_served for variable in self.model.trainable_variables):
            raise NotImplementedError(
                "A `train_step` that takes and returns the state returns weights, which would replace what other workers have made of "
                "them meanwhile. Under ParameterServerStrategy write it in TensorFlow's form: `def train_step(self, data)`, with "
                "`self.optimizer.apply_gradients`."
            )
        with rescale_regularizers(sizes):
            state, (logs, new) = self._run_on_state(batch)
        trainable, _, optimizer, _ = self.variables()
        write_same((*trainable, *optimizer), (*new[0], *new[2]))
        return self._from_state(logs, (*state[1], *state[3]), (*new[1], *new[3]))

    def _run_with_variables(self, batch: Any, sizes: Sizes) -> OwnResults:
        """Run a step that reads and writes variables itself."""
        with rescale_regularizers(sizes):
            logs = self.model.train_step(_without_absent(batch))
        return OwnResults(self._own_logs(logs, _written()), [None] * len(self._merged_variables()))


@final
class TestStep(Step):
    """Keras's evaluation step, or the user's `test_step`."""

    name = "test_step"

    def local(self, batch: Any, sizes: Sizes) -> OwnResults:
        """Return what this replica changes in statistics and metrics."""
        if takes_state(self.model, self.name):
            state, (logs, new) = self._run_on_state(batch)
            return self._from_state(logs, (*state[1], *state[2]), (*new[1], *new[2]))
        return self._run_on_values(lambda: (self.model.test_step(_without_absent(batch)), None))[0]

    def prepared(self) -> contextlib.AbstractContextManager[None]:
        """Show the user's step losses as its form has them."""
        own = is_overridden(self.model, "test_step") or takes_state(self.model, "test_step")
        return _loss_values(self.model, "test_step") if own else contextlib.nullcontext()


@final
class PredictStep(Step):
    """Keras's prediction step, or the user's `predict_step`."""

    name = "predict_step"
    kinds = ("trainable_variables", "non_trainable_variables")

    def variables(self) -> tuple[list[Any], ...]:
        """Return the variables that the step reads: of metrics too, which layers may count in."""
        return (*super().variables(), self.model.metrics_variables)

    def local(self, batch: Any, sizes: Sizes) -> OwnResults:
        """Predict this replica's rows; what predicting changes is kept, such as seeds."""
        if takes_state(self.model, self.name):
            state, (outputs, statistics) = self._run_on_state(batch, count=len(self.kinds))
            totals = [None] * len(self.model.metrics_variables)
            results = self._from_state({}, (*state[1], *totals), (*statistics, *totals))
        else:
            results, outputs = self._run_on_values(lambda: ({}, self.model.predict_step(batch)))
        return results._replace(rows=in_order(outputs))


def make_train_step(model: keras.Model, num_replicas: int) -> Step:
    """Make the training step of `model`, its own or Keras's, for so many replicas."""
    is_custom = is_overridden(model, "train_step") or takes_state(model, "train_step")
    return (CustomTrainStep if is_custom else TrainStep)(model, num_replicas)


def _without_absent(batch: Any) -> Any:
    """Return a batch as TensorFlow's steps unpack it: without targets and weights that `train_on_batch` was not given."""
    while isinstance(batch, tuple) and len(batch) > 1 and batch[-1] is None:
        batch = batch[:-1]
    return batch


def _results(model: keras.Model, updated: Set[int]) -> Logs:
    """Return the results, by name, of the metrics that have one of the `updated` variables, given by identity."""
    results: Logs = {}
    for metric in model.metrics:
        if updated.isdisjoint(id(variable) for variable in metric.variables):
            continue
        result = metric.result()
        results.update(result if isinstance(result, Mapping) else {metric.name: result})
    return results


def read_all(variables: Sequence[Any]) -> list[jax.Array]:
    """Return what variables hold."""
    return [_state.read(variable) for variable in variables]


def _apply_in_place(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
    """Let an optimizer write variables itself, also in conditionals, of which a list of values would know nothing."""
    with get_replica_context().replicated_update():
        optimizer.apply(gradients, variables)


def write_same(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Write values that are equal on all replicas."""
    for variable, value in zip(variables, values, strict=True):
        _state.write(variable, jnp.asarray(value, variable.dtype))


def _written() -> set[int]:
    """Return which variables the replica has written, by identity; none where it writes at once."""
    scope: Any = _state.current_scope()
    return set() if scope is None else {id(cell) for cell, *_ in scope.writes()}


def _without_gradient(prediction: Any) -> Any:
    """Return a prediction for metrics, with its mask, and the logits that it was made of."""
    value, mask = jax.lax.stop_gradient(prediction), get_keras_mask(prediction)
    set_keras_mask(value, mask)
    logits = getattr(prediction, LOGITS, None)
    if logits is not None:
        setattr(value, LOGITS, jax.lax.stop_gradient(logits))
    return value


def _call(make: Callable[[], Any]) -> None:
    make()


def _add_up(values: list[jax.Array]) -> list[jax.Array]:
    return get_replica_context().reduce(ReduceOp.SUM, values)


def _flat(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Put the entries of nested logs side by side, as Keras does when it shows them."""
    flat: dict[str, Any] = {}
    for name, value in logs.items():
        flat.update(_flat(value) if isinstance(value, Mapping) else {name: value})
    return flat


def _loss_values(model: keras.Model, name: str) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if is_tensorflow_form(model, name) else scaling_only_gradients()


@contextlib.contextmanager
def _summing_gradients(model: keras.Model, name: str) -> Iterator[None]:
    """Let this model's optimizer, while a step in JAX's form is traced, sum the gradients before it applies them."""
    if is_tensorflow_form(model, name):
        yield  # There each optimizer does.
        return
    optimizer = model.optimizer
    apply = optimizer.stateless_apply

    @functools.wraps(apply)
    def summing_apply(*args: Any, **kwargs: Any) -> Any:
        call = inspect.signature(apply).bind(*args, **kwargs)
        own, trained = call.arguments["grads"], optimizer._trainable_variables
        gradients = reduce_gradients(get_replica_context(), optimizer, own, trained)
        call.arguments["grads"] = gradients
        return apply(*call.args, **call.kwargs)

    # On the instance: other models' optimizers are not concerned.
    with overriding(optimizer, stateless_apply=summing_apply):
        yield
