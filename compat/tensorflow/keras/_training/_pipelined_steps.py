"""Steps of functional models over the stages of a pipeline: one program for all replicas and stages, with global arrays."""

import contextlib
import functools
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import keras
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

from tfdist_jax._errors import RelatedRowsWarning
from tfdist_jax._pipeline._listed import ON_DIVISION
from tfdist_jax._sharding._input import PaddedBatch
from tfdist_jax._thread_state import having
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order
from tfdist_jax.compat.tensorflow.distribute._pipeline import PipelineStrategy
from tfdist_jax.compat.tensorflow.keras._pipelining._layer_calls import graph_of
from tfdist_jax.compat.tensorflow.keras._pipelining._model_stages import ModelOutputs, ModelStages
from tfdist_jax.compat.tensorflow.keras._training._loss_ratios import LossRatios
from tfdist_jax.compat.tensorflow.keras._training._loss_scaling import hiding_regularizers, with_layer_losses
from tfdist_jax.compat.tensorflow.keras._training._steps import (
    CustomTrainStep,
    Logs,
    PredictStep,
    Sizes,
    Step,
    TestStep,
    TrainStep,
    read_all,
    recurrent_states,
    write_same,
)
from tfdist_jax.compat.tensorflow.keras._training._text_front import FrontValues
from tfdist_jax.compat.tensorflow.keras._training._train_step_signature import is_overridden, takes_state
from tfdist_jax.compat.tensorflow.keras._variables._reading_scope import reading

Results = tuple[Any, Any]
"""Logs, and results by row."""


def goes_over_stages(step: Step) -> bool:
    """Tell whether a step can be cut into stages; other evaluations and predictions compute all layers on each device.

    Raises:
        NotImplementedError: If it trains and cannot.
    """
    model = step.model
    is_own = not is_overridden(model, step.name) and not takes_state(model, step.name)
    if not isinstance(step, TrainStep | CustomTrainStep):
        return is_own and graph_of(model) is not None
    if not is_own:
        raise NotImplementedError(
            f"{model.name!r} has a `train_step` of its own, which cannot be cut into stages. Under PipelineStrategy override "
            "`compute_loss` instead, or train under another strategy, such as tf.distribute.experimental.FSDPStrategy."
        )
    if graph_of(model) is None:
        raise NotImplementedError(
            f"PipelineStrategy cuts functional and sequential models into stages, but {model.name!r} is a {type(model).__name__} with a "
            "`call` of its own. Make it of layers with keras.Model(inputs, outputs), or train it under another strategy, such as "
            "tf.distribute.experimental.FSDPStrategy."
        )
    return True


def run_over_stages(step: Step, strategy: PipelineStrategy, sizes: Sizes, batch: Any) -> tuple[Any, Any]:
    """Run `step` over the stages of a pipeline, on rows of which each replica has `sizes`, padded to the same number.

    Returns:
        Logs, and results by row, padded as the batch is.

    Raises:
        ValueError: If there are fewer layers than stages, or nothing to train on.
        NotImplementedError: If the model takes strings, or changes variables as it computes.
    """
    x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
    if isinstance(x, FrontValues):
        raise NotImplementedError(
            f"{step.model.name!r} takes strings, which are looked up before a step, and the rest of it is cut into no stages. Let the "
            "dataset map strings to numbers, such as `dataset.map(lambda text, y: (lookup(text), y))`."
        )
    if states := recurrent_states(step.model):
        raise NotImplementedError(
            f"A recurrent layer with `stateful=True` keeps the state of one batch, {states[0].path!r}, but a pipeline computes one "
            "microbatch after another. Train the model on one device, or give the state as `initial_state`."
        )
    data = batch
    if len({*sizes}) > 1:
        data = jax.tree.map(lambda leaf: PaddedBatch(leaf, sizes), batch)
    stages = ModelStages(step.model, strategy.split_before, training=isinstance(step, TrainStep))
    if stages.num_groups < strategy.plan.schedule.num_stages:
        raise ValueError(
            f"{step.model.name!r} calls {stages.num_groups} layers, which cannot be divided into {strategy.plan.schedule.num_stages} "
            "stages. Take fewer `stages`, or fewer `chunks`."
        )
    run = {TrainStep: _train, TestStep: _evaluate, PredictStep: _predict}[type(step)]
    with having(ON_DIVISION, lambda parts: setattr(strategy, "stages", stages.names_of(parts))):
        logs, rows = run(step, strategy, stages, data, sizes)
    stages.move_seeds_on()
    return logs, rows


def _train(step: Step, strategy: PipelineStrategy, stages: ModelStages, batch: Any, sizes: Sizes) -> Results:
    model, optimizer = step.model, step.model.optimizer
    trainable, slots = model.trainable_variables, optimizer.variables
    _check_trainable(model)

    def finish(outputs: ModelOutputs, batch: Any, values: Any) -> Any:
        with LossRatios(values["ratios"]).applied():
            loss = _compute_loss(model, outputs, batch)
        shown = jax.lax.stop_gradient(ModelStages.pack(outputs.values)) if shows_outputs else None
        return loss * values["scale"], (loss, shown, outputs.losses)

    values = stages.other_values() | {"scale": jnp.asarray(optimizer.scale_loss(1.0), keras.config.floatx())}
    values["ratios"] = _find_ratios(model, stages, _take_rows(sizes, batch), values)
    shows_outputs = stages.counts_in_metrics or _has_metrics(model)
    with _refusing_parts(model):
        compute = strategy.native.value_and_grad(stages.staged(finish))
        (_, (loss, shown, losses)), gradients = compute(stages.params(), batch, values)
    gradients = stages.of_trained(gradients)
    if not _has_own_loss(model):
        regularization, of_weights = _differentiate_regularizers(model, values["scale"])
        loss, gradients = loss + regularization, jax.tree.map(jnp.add, gradients, of_weights)

    def count() -> tuple[Logs, None]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(_take_rows(sizes, batch))
        outputs = ModelStages.unpack(shown)
        if stages.counts_in_metrics:
            with with_layer_losses(model, losses):
                model._compute_loss(x, y, outputs, sample_weight, training=True)
        model._loss_tracker.update_state(loss, sample_weight=jax.tree.leaves(x)[0].shape[0])
        return model.compute_metrics(x, y, outputs, sample_weight), None

    results, _ = step._run_on_values(count)
    logs = step.write_alone(results)
    if getattr(optimizer, "writes_variables", False):
        optimizer.apply(gradients, trainable)
    else:
        weights, new = optimizer.stateless_apply(read_all(slots), gradients, read_all(trainable))
        write_same((*trainable, *slots), (*weights, *new))
    return logs, None


def _has_metrics(model: keras.Model) -> bool:
    """Whether outputs are needed for all rows at once."""
    return model._compile_metrics is not None or type(model).compute_metrics is not keras.Model.compute_metrics


def _has_own_loss(model: keras.Model) -> bool:
    """Whether the model's class says itself what becomes of what regularisers add."""
    return type(model).compute_loss is not keras.Model.compute_loss


def _compute_loss(model: keras.Model, outputs: ModelOutputs, batch: Any) -> Any:
    """Return the loss of rows; without what regularisers of weights add, unless the model's class has a loss of its own.

    So no device needs the weights of other stages.
    """
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    with (
        contextlib.nullcontext() if _has_own_loss(model) else hiding_regularizers(),
        with_layer_losses(model, outputs.losses),
    ):
        return model._compute_loss(x, y, outputs.values, sample_weight, training=True)


@contextlib.contextmanager
def _refusing_parts(model: keras.Model) -> Iterator[None]:
    """Say in Keras's terms what cannot be put together of microbatches, and refuse where only a warning tells of it.

    Raises:
        NotImplementedError: If a row's results depend on other rows.
        ValueError: If the loss of a batch does not follow from those of its parts.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RelatedRowsWarning)
            yield
    except RelatedRowsWarning as warning:
        raise NotImplementedError(
            f"What {model.name!r} computes for a row depends on other rows of the batch, of which a pipeline's microbatches see their "
            "own alone. Take layers that compute each row by itself, or another strategy, such as "
            f"tf.distribute.experimental.FSDPStrategy. In detail: {warning}"
        ) from None
    except ValueError as error:
        if not str(error).startswith("`loss`"):
            raise
        raise ValueError(
            f"The loss of {model.name!r} for a batch does not follow from those of a pipeline's microbatches. Let a loss give one value "
            "for each row, which Keras averages, and give what is not to count as `sample_weight`, or as a mask of the outputs. Sums have "
            "to be sums alone, without means or what `add_loss` gets beside them."
        ) from error


def _find_ratios(model: keras.Model, stages: ModelStages, batch: Any, values: Any) -> list[jax.Array]:
    """Return by how much the losses of a whole batch are more than means over its entries, if masks or weights say so.

    The whole model is traced for them, but what they do not follow from is not computed.

    Raises:
        NotImplementedError: If they follow from the model's weights, or from random numbers.
    """

    def finish(outputs: ModelOutputs, batch: Any, values: Any) -> Any:
        ratios = LossRatios()
        with ratios.applied():
            _compute_loss(model, outputs, batch)
        return ratios.found

    arguments = stages.params(), batch, values
    program, found = jax.make_jaxpr(stages.staged(finish), return_shape=True)(*arguments)
    needed, used = dce_jaxpr(program.jaxpr, [True] * len(found))
    of_params, _, of_values = jax.tree.unflatten(jax.tree.structure(arguments), used)
    if any(jax.tree.leaves([of_params, of_values["seeds"], of_values["draws"]])):
        raise NotImplementedError(
            f"What {model.name!r} masks follows from its weights or from random numbers, so that a pipeline's microbatches, which come one "
            "after another, cannot know how much the whole batch leaves to be averaged over. Compute masks from the inputs, or give the "
            "loss weights."
        )
    leaves = [leaf for leaf, is_used in zip(jax.tree.leaves(arguments), used, strict=True) if is_used]
    return jaxpr_as_fun(ClosedJaxpr(needed, program.consts))(*leaves) if found else []


def _evaluate(step: Step, strategy: PipelineStrategy, stages: ModelStages, batch: Any, sizes: Sizes) -> Results:
    model = step.model

    def count() -> tuple[Logs, None]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(_take_rows(sizes, batch))
        outputs = ModelStages.unpack(packed)
        with with_layer_losses(model, losses):
            loss = model._compute_loss(x, y, outputs, sample_weight, training=False)
        model._loss_tracker.update_state(loss, sample_weight=jax.tree.leaves(x)[0].shape[0])
        return model.compute_metrics(x, y, outputs, sample_weight), None

    packed, losses = _compute_outputs(strategy, stages, batch)
    results, _ = step._run_on_values(count)
    return step.write_alone(results), None


def _predict(step: Step, strategy: PipelineStrategy, stages: ModelStages, batch: Any, sizes: Sizes) -> Results:
    del step
    packed, _ = _compute_outputs(strategy, stages, batch)
    return {}, in_order(ModelStages.unpack(jax.tree.map(functools.partial(_pad, sizes), packed)))


def _compute_outputs(strategy: PipelineStrategy, stages: ModelStages, batch: Any) -> tuple[Any, Any]:
    """Return what the model gives for rows, packed, and what its layers have added as losses."""
    finish = lambda outputs, batch, values: (ModelStages.pack(outputs.values), outputs.losses)
    with _refusing_parts(stages.model):
        return strategy.native.evaluate(stages.staged(finish))(stages.params(), batch, stages.other_values())


def _differentiate_regularizers(model: keras.Model, scale: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
    """Return what weights' regularisers add to the loss, and its gradients, scaled as the loss is."""
    trainable = model.trainable_variables

    def regularize(weights: list[Any]) -> tuple[Any, Any]:
        with reading(), keras.StatelessScope(state_mapping=[*zip(trainable, weights, strict=True)]):
            losses = [model._aggregate_additional_loss(loss) for loss in model._get_regularization_losses()]
        total = sum(losses, jnp.zeros((), keras.config.floatx()))
        return total * scale, total

    (_, total), gradients = jax.value_and_grad(regularize, has_aux=True)(read_all(trainable))
    return total, gradients


def _check_trainable(model: keras.Model) -> None:
    """Refuse what microbatches cannot give.

    Raises:
        ValueError: If there is nothing to train.
        NotImplementedError: If what comes as the gradient of a variable is its new value.
    """
    if not model.trainable_variables:
        raise ValueError(f"{model.name!r} has no weights to train: all of its layers are frozen.")
    for variable in model.trainable_variables:
        if getattr(variable, "overwrite_with_gradient", False):
            raise NotImplementedError(
                f"{variable.path} gets a new value in place of a gradient (`overwrite_with_gradient`, of layers in float8), of which a "
                "pipeline's microbatches would give many. Train the model under another strategy."
            )


def _take_rows(sizes: Sizes, batch: Any) -> Any:
    """Return the real rows of a batch, of which each replica has so many."""
    is_padded = lambda node: isinstance(node, PaddedBatch)

    def take(leaf: Any) -> Any:
        if not is_padded(leaf):
            return leaf
        blocks = jnp.split(leaf.data, len(sizes))
        return jnp.concatenate([block[:size] for block, size in zip(blocks, sizes, strict=True)])

    return jax.tree.map(take, batch, is_leaf=is_padded)


def _pad(sizes: Sizes, rows: jax.Array) -> jax.Array:
    """Return results of rows with each replica's filled up to as many, as the batch was."""
    if len({*sizes}) == 1:
        return rows
    if not rows.ndim or rows.shape[0] % sum(sizes):
        raise ValueError(
            f"Predictions of shape {rows.shape} for {sum(sizes)} rows cannot be divided among rows. Return the same number of results for "
            "each row."
        )
    results = rows.shape[0] // sum(sizes)
    ends = [results * end for end in itertools.accumulate(sizes)]
    blocks = jnp.split(rows, ends[:-1])
    missing = lambda block: [(0, results * max(sizes) - len(block)), *[(0, 0)] * (rows.ndim - 1)]
    return jnp.concatenate([jnp.pad(block, missing(block)) for block in blocks])
