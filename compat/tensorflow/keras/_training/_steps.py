"""What Keras does in a step, cut where the replicas meet: a local part for each replica, and what follows from all."""

import abc
import contextlib
import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import keras

from tfdist_jax.compat.tensorflow._tensors._ordered import in_order
from tfdist_jax.compat.tensorflow.distribute._current import get_replica_context
from tfdist_jax.compat.tensorflow.keras._internals import get_keras_mask, set_keras_mask
from tfdist_jax.compat.tensorflow.keras._training._accumulation import accumulates, apply_accumulating
from tfdist_jax.compat.tensorflow.keras._training._aggregation import Share, changes, merged
from tfdist_jax.compat.tensorflow.keras._training._loss_scaling import (
    rescale_regularizers,
    scaling_only_gradients,
    unscale_loss,
)
from tfdist_jax.compat.tensorflow.keras._training._optimizer import overriding
from tfdist_jax.compat.tensorflow.keras._training._sync_batch_norm import meets_other_replicas
from tfdist_jax.compat.tensorflow.keras._training._train_step_signature import (
    is_overridden,
    is_tensorflow_form,
    stateless,
)
from tfdist_jax.compat.tensorflow.keras._variables._overwrite_with_gradient import joined, reduced, separated

State = tuple[list[jax.Array], ...]
"""The model's values as Keras passes them to a step: a list for each kind of variable."""

BeforeAfter = tuple[list[jax.Array], list[jax.Array]]


class Parts(NamedTuple):
    """What a replica's own rows give.

    Attributes:
        summed: To be added up over the replicas.
        same: Equal on all replicas that have rows.
        largest: Not negative; the largest of the replicas' counts, element by element.
        own: For this replica alone.
        rows: Results with one row for each of the batch, which are joined.
    """

    summed: dict[str, Any]
    same: dict[str, Any]
    largest: Any = None
    own: Any = None
    rows: Any = None


class Step(abc.ABC):
    """A training, test or prediction step of one model.

    Attributes:
        name: What it is called in messages.
        num_read_only: How many leading lists of the state the step leaves as they are.
        communicates: Whether `local` uses collectives, so that replicas must not branch around it.
        carried: Variables of optimizers beside the model's own, whose values follow those of the model's optimizer.
    """

    name = "train_step"
    num_read_only = 0
    communicates = False

    def __init__(self, model: keras.Model) -> None:
        """Make the step that `model`'s class defines."""
        self.model = model
        self.carried: list[Any] = []

    def prepared(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which all replicas' `local` run."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def local(self, state: State, batch: Any, share: Share) -> Parts:
        """Run the step on one replica's rows."""

    @abc.abstractmethod
    def finish(self, state: State, parts: Parts, share: Share) -> tuple[Any, State]:
        """Return the logs and the new state from the parts of all replicas, the summed ones added up; `share` is any's."""


@final
class TrainStep(Step):
    """Keras's own training step.

    Attributes:
        accumulates_locally: Whether gradients stay on their replicas until the optimizer uses them.
    """

    def __init__(self, model: keras.Model) -> None:
        """Make the training step of `model`."""
        super().__init__(model)
        self.communicates = meets_other_replicas(model)
        self.accumulates_locally = accumulates(model.optimizer) and not model.run_eagerly and not self.communicates

    def local(self, state: State, batch: Any, share: Share) -> Parts:
        """Return this replica's gradients and what it changes in statistics and metrics.

        Raises:
            ValueError: If no replica has rows: a mean over nothing has no gradient.
        """
        if not any(share.sizes):
            raise ValueError(
                "A batch to train on has no rows. Leave such batches out of what the generator or dataset gives, for instance "
                "with `if len(x): yield x, y`."
            )
        trainable, non_trainable, optimizer, metrics = state
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        gradient_of = jax.value_and_grad(self._loss_and_updates, has_aux=True)
        with rescale_regularizers(share.sizes):
            (_, (aux, masks)), gradients = gradient_of(
                trainable, non_trainable, optimizer, metrics, x, y, sample_weight
            )
        loss, y_pred, new_non_trainable, new_metrics = aux
        for prediction, mask in zip(jax.tree.leaves(y_pred), masks, strict=True):
            set_keras_mask(prediction, mask)
        logs, new_metrics = self.model._update_metrics_variables(
            new_metrics, unscale_loss(loss), x, y, y_pred, sample_weight
        )
        parts = _parts(self.model, share, logs, (non_trainable, new_non_trainable), (metrics, new_metrics))
        gradients, largest = separated(gradients, self.model.trainable_variables)
        if self.accumulates_locally:
            return parts._replace(own=gradients, largest=largest)
        parts.summed["gradients"] = gradients
        return parts._replace(largest=largest)

    def _loss_and_updates(self, trainable: Any, non_trainable: Any, optimizer: Any, metrics: Any, *data: Any) -> Any:
        """Return Keras's loss and its parts, and the predictions' masks, which the arrays lose in differentiation."""
        loss, aux = self.model.compute_loss_and_updates(
            trainable, non_trainable, metrics, *data, training=True, optimizer_variables=optimizer
        )
        return loss, (aux, [get_keras_mask(prediction) for prediction in jax.tree.leaves(aux[1])])

    def finish(self, state: State, parts: Parts, share: Share) -> tuple[Any, State]:
        """Apply the global gradients."""
        trainable, non_trainable, optimizer, metrics = state
        if self.accumulates_locally:
            gradients = joined(parts.own, parts.largest)
            trainable, optimizer = apply_accumulating(self.model.optimizer, optimizer, gradients, trainable)
        else:
            gradients = joined(parts.summed["gradients"], parts.largest)
            trainable, optimizer = self.model.optimizer.stateless_apply(optimizer, gradients, trainable)
        logs, non_trainable, metrics = _merged_parts(self.model, parts, non_trainable, metrics, share)
        return logs, (trainable, non_trainable, optimizer, metrics)


@final
class CustomTrainStep(Step):
    """The user's `train_step`: the optimizer sums gradients over replicas when it applies them."""

    communicates = True

    def __init__(self, model: keras.Model) -> None:
        """Make the training step that `model`'s class brings."""
        super().__init__(model)
        self._train_step = stateless(model, "train_step", self.carried)

    @contextlib.contextmanager
    def prepared(self) -> Iterator[None]:
        """Let the optimizer sum gradients.

        A step in JAX's form shows the losses of its rows as they are; one in TensorFlow's form sees its replica's
        part of the global loss, as under TensorFlow.
        """
        with _summing_gradients(self.model, "train_step"), _loss_values(self.model, "train_step"):
            yield

    def local(self, state: State, batch: Any, share: Share) -> Parts:
        """Run the user's step; its weights come out equal on all replicas."""
        with rescale_regularizers(share.sizes):
            logs, (trainable, non_trainable, optimizer, metrics) = self._train_step(state, batch)
        parts = _parts(self.model, share, logs, (state[1], list(non_trainable)), (state[3], list(metrics)))
        parts.same.update(trainable=list(trainable), optimizer=list(optimizer))
        return parts

    def finish(self, state: State, parts: Parts, share: Share) -> tuple[Any, State]:
        """Put the replicas' statistics and metrics together."""
        logs, non_trainable, metrics = _merged_parts(self.model, parts, state[1], state[3], share)
        return logs, (parts.same["trainable"], non_trainable, parts.same["optimizer"], metrics)


@final
class TestStep(Step):
    """Keras's evaluation step, or the user's `test_step`."""

    name = "test_step"
    num_read_only = 1

    def __init__(self, model: keras.Model) -> None:
        """Make the evaluation step of `model`."""
        super().__init__(model)
        self._test_step = stateless(model, "test_step") if is_overridden(model, "test_step") else self._evaluate

    def local(self, state: State, batch: Any, share: Share) -> Parts:
        """Return what this replica changes in statistics and metrics."""
        logs, (_, new_non_trainable, new_metrics) = self._test_step(state, batch)
        return _parts(self.model, share, logs, (state[1], list(new_non_trainable)), (state[2], list(new_metrics)))

    def prepared(self) -> contextlib.AbstractContextManager[None]:
        """Show the user's step losses as its form has them."""
        own = is_overridden(self.model, "test_step")
        return _loss_values(self.model, "test_step") if own else contextlib.nullcontext()

    def _evaluate(self, state: State, batch: Any) -> tuple[Any, Any]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        _, aux = self.model.compute_loss_and_updates(*state, x, y, sample_weight, training=False)
        loss, y_pred, non_trainable, metrics = aux
        logs, metrics = self.model._update_metrics_variables(metrics, unscale_loss(loss), x, y, y_pred, sample_weight)
        return logs, (state[0], non_trainable, metrics)

    def finish(self, state: State, parts: Parts, share: Share) -> tuple[Any, State]:
        """Put the replicas' metrics together."""
        logs, non_trainable, metrics = _merged_parts(self.model, parts, state[1], state[2], share)
        return logs, (state[0], non_trainable, metrics)


@final
class PredictStep(Step):
    """Keras's prediction step, or the user's `predict_step`."""

    name = "predict_step"
    num_read_only = 1

    def __init__(self, model: keras.Model) -> None:
        """Make the prediction step of `model`."""
        super().__init__(model)
        self._predict_step = stateless(model, "predict_step")

    def local(self, state: State, batch: Any, share: Share) -> Parts:
        """Predict this replica's rows."""
        outputs, non_trainable = self._predict_step(state, batch)
        summed, same = changes(self.model.non_trainable_variables, state[1], list(non_trainable), share)
        return Parts({"non_trainable": summed}, {"non_trainable": same}, rows=in_order(outputs))

    def finish(self, state: State, parts: Parts, share: Share) -> tuple[Any, State]:
        """Keep what predicting changes, such as seeds."""
        variables, summed, same = self.model.non_trainable_variables, parts.summed, parts.same
        return {}, (state[0], merged(variables, state[1], summed["non_trainable"], same["non_trainable"], share))


def make_train_step(model: keras.Model) -> Step:
    """Make the training step of `model`, its own or Keras's."""
    return CustomTrainStep(model) if is_overridden(model, "train_step") else TrainStep(model)


def _parts(model: keras.Model, share: Share, logs: Any, non_trainable: BeforeAfter, metrics: BeforeAfter) -> Parts:
    """Collect what a replica contributes to statistics, metrics and logs."""
    statistics, same_statistics = changes(model.non_trainable_variables, *non_trainable, share)
    totals, same_totals = changes(model.metrics_variables, *metrics, share)
    tracked = _results(model, *metrics)
    # A log entry that no metric explains is averaged over the rows. Others follow from the metrics' sums.
    logs = _flat(logs)
    others = {name: value for name, value in logs.items() if name not in tracked}
    others = jax.tree.map(lambda value: jnp.asarray(value) * share.weight, others)
    tracked = {name: None for name in tracked if name in logs}
    return Parts(
        {"non_trainable": statistics, "metrics": totals, "logs": others},
        {"non_trainable": same_statistics, "metrics": same_totals, "logs": tracked},
    )


def _merged_parts(
    model: keras.Model, parts: Parts, non_trainable: list[jax.Array], metrics: list[jax.Array], share: Share
) -> tuple[Mapping[str, Any], list[jax.Array], list[jax.Array]]:
    summed, same = parts.summed, parts.same
    new_metrics = merged(model.metrics_variables, metrics, summed["metrics"], same["metrics"], share)
    variables = model.non_trainable_variables
    statistics = merged(variables, non_trainable, summed["non_trainable"], same["non_trainable"], share)
    results = _results(model, metrics, new_metrics)
    logs = {**summed["logs"], **{name: results[name] for name in same["logs"]}}
    return logs, statistics, new_metrics


def _results(model: keras.Model, old: list[jax.Array], new: list[jax.Array]) -> dict[str, Any]:
    """Return the results, by name, of the metrics that the step has updated."""
    updated = {id(v) for v, before, after in zip(model.metrics_variables, old, new, strict=True) if after is not before}
    results: dict[str, Any] = {}
    with keras.StatelessScope(state_mapping=list(zip(model.metrics_variables, new, strict=True))):
        for metric in model.metrics:
            if updated.isdisjoint(id(v) for v in metric.variables):
                continue
            result = metric.result()
            results.update(result if isinstance(result, Mapping) else {metric.name: result})
    return results


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
        gradients = reduced(get_replica_context(), call.arguments["grads"], optimizer._trainable_variables)
        call.arguments["grads"] = gradients
        return apply(*call.args, **call.kwargs)

    # On the instance: other models' optimizers are not concerned.
    with overriding(optimizer, stateless_apply=summing_apply):
        yield
