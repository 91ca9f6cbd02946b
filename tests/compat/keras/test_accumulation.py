"""Gradient accumulation: the numbers of one device, one reduction for each update."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.05, gradient_accumulation_steps=3),
    "weight decay and average": lambda: keras.optimizers.AdamW(
        0.05, weight_decay=0.01, use_ema=True, ema_momentum=0.9, gradient_accumulation_steps=3
    ),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_accumulated_gradients_train_as_on_one_device(
    optimizer, any_strategy, make_model, fit, data, assert_same_training
):
    models = [make_model(where, optimizer=OPTIMIZERS[optimizer]) for where in (any_strategy, None)]
    histories = [fit(model, data.rows(40), batch_size=8, epochs=3) for model in models]
    assert_same_training(models[0], histories[0], models[1], histories[1])


def accumulators(model):
    return [v.value for v in model.optimizer.variables if "accumulator" in v.name]


def test_gradients_that_wait_for_an_update_are_saved_whole(strategy, make_model, fit, data, assert_same_training):
    """After an epoch of four steps one step's gradients wait: every replica holds all replicas' mean."""
    model, alone = (make_model(where, optimizer=OPTIMIZERS["adam"]) for where in (strategy, None))
    histories = [fit(each, data, epochs=1) for each in (model, alone)]
    for ours, expected in zip(accumulators(model), accumulators(alone), strict=True):
        assert np.abs(expected).max() > 1e-4
        for shard in ours.addressable_shards:
            np.testing.assert_allclose(shard.data, expected, atol=1e-6)
    assert_same_training(model, histories[0], alone, histories[1])


def test_training_goes_on_from_waiting_gradients(strategy, make_model, fit, data, assert_same_training):
    model, alone = (make_model(where, optimizer=OPTIMIZERS["adam"]) for where in (strategy, None))
    histories = [{**fit(each, data, epochs=1), **fit(each, data, epochs=2)} for each in (model, alone)]
    assert_same_training(model, histories[0], alone, histories[1])


def test_uneven_batches_accumulate(strategy, make_model, fit, data):
    model = make_model(strategy, optimizer=OPTIMIZERS["adam"])
    before = model.get_weights()
    fit(model, data.rows(10), batch_size=4, epochs=1)  # Three steps of 4, 4 and 2 rows: one update.
    assert not np.allclose(before[0], model.get_weights()[0])
    assert all(not np.any(value) for value in accumulators(model))


def test_custom_training_steps_accumulate(any_strategy, make_model, fit, data, assert_same_training):
    class Custom(keras.Sequential):
        def train_step(self, state, data):
            return super().train_step(state, data)

    def layers():
        return Custom([keras.Input((8,)), keras.layers.Dense(4)])

    models = [make_model(where, model=layers, optimizer=OPTIMIZERS["adam"]) for where in (any_strategy, None)]
    histories = [fit(model, data.rows(40), batch_size=8) for model in models]
    assert_same_training(models[0], histories[0], models[1], histories[1])


CHANGED_GRADIENTS = {
    "loss scale": {"loss_scale_factor": 64.0},
    "clipped": {"global_clipnorm": 0.05},
    "both": {"loss_scale_factor": 64.0, "clipnorm": 0.05},
    "schedule": {"learning_rate": keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)},
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("options", CHANGED_GRADIENTS.values(), ids=CHANGED_GRADIENTS)
def test_what_changes_gradients_or_rates_goes_with_accumulation(
    options, any_strategy, make_model, fit, data, assert_same_training
):
    optimizer = lambda: keras.optimizers.SGD(**{"learning_rate": 0.1, "gradient_accumulation_steps": 2, **options})
    models = [make_model(where, optimizer=optimizer) for where in (any_strategy, None)]
    histories = [fit(model, data.rows(40), batch_size=8) for model in models]
    assert_same_training(models[0], histories[0], models[1], histories[1])


@pytest.mark.parametrize("eager", [False, True])
def test_uneven_batches_accumulate_the_replicas_means(eager, strategy, make_model, fit, data):
    """Steps of 4, 4 and 2 rows: each row is a replica's mean, and counts as one of four."""
    optimizer = lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    model = make_model(strategy, optimizer=optimizer, run_eagerly=eager)
    before = [weight.numpy() for weight in model.trainable_variables]

    def loss(weights, x, y):
        logits = model.stateless_call(weights, [], x)[0]
        return jnp.sum(keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)) / 4

    total = jax.grad(loss)(before, *data.rows(10))
    fit(model, data.rows(10), batch_size=4, epochs=1)
    for weight, old, gradient in zip(model.trainable_variables, before, total, strict=True):
        np.testing.assert_allclose(weight.numpy(), old - 0.1 * gradient / 3, atol=1e-6)
