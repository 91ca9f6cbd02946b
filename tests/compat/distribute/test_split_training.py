"""Strategies that keep variables in parts train as `MirroredStrategy` does, and checkpoints go from each to others."""

import re

import keras
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from split_models import OPTIMIZERS, RULES, fit, make_data, make_layout_map, make_model

import tfdist_jax.compat.tensorflow as tf

# The last batch of an epoch has one row.
pytestmark = pytest.mark.filterwarnings("ignore:A step whose replicas' batches differ in size")

FSDPStrategy = tf.distribute.experimental.FSDPStrategy
ModelParallelStrategy = tf.distribute.experimental.ModelParallelStrategy
MirroredStrategy = tf.distribute.MirroredStrategy

RULES_OF_BOTH_AXES = [("up/kernel", P("data", "other")), ("down/kernel", P("other", "data"))]

# With the shapes of the kernels' parts.
STRATEGIES = {
    "FSDP": (FSDPStrategy, {"up": (8, 64), "down": (8, 32)}),
    "FSDP on two": (lambda: FSDPStrategy(["/cpu:0", "/cpu:1"]), {"up": (32, 64), "down": (32, 32)}),
    "rules": (lambda: ModelParallelStrategy(RULES, 4), {"up": (64, 16), "down": (16, 32)}),
    "rules of both axes": (
        lambda: ModelParallelStrategy(RULES_OF_BOTH_AXES, {"data": 2, "other": 4}),
        {"up": (32, 16), "down": (16, 16)},
    ),
    "a layout map": (lambda: ModelParallelStrategy(make_layout_map()), {"up": (32, 16), "down": (16, 16)}),
    "mirrored": (MirroredStrategy, {"up": (64, 64), "down": (64, 32)}),
    "none": (tf.distribute.get_strategy, {"up": (64, 64), "down": (64, 32)}),
}
IN_PARTS = ("FSDP", "rules", "rules of both axes", "a layout map")


def make_loop(strategy, model, needs_values=False):
    optimizer = model.optimizer

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(
                tf.reduce_sum((model(x, training=True) - y) ** 2, 1), global_batch_size=32
            )
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        if needs_values:
            float(loss)
        return loss

    return lambda x, y: strategy.reduce("SUM", strategy.run(step, args=(x, y)), axis=None)


def train_in_loop(strategy, run, rows=65):
    batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(make_data(rows)).batch(32))
    return [float(run(*batch)) for _ in range(2) for batch in batches]


def loop(strategy, model):
    return train_in_loop(strategy, tf.function(make_loop(strategy, model)))


def eager_loop(strategy, model):
    return train_in_loop(strategy, make_loop(strategy, model))


def even_eager_loop(strategy, model):
    return train_in_loop(strategy, make_loop(strategy, model), rows=64)


def loop_of_values(strategy, model):
    return train_in_loop(strategy, make_loop(strategy, model, needs_values=True))


def assert_in_parts(kind, variables):
    """Each device has its part of each kernel, or of what an optimizer keeps of it."""
    for layer, shape in STRATEGIES[kind][1].items():
        found = [variable for variable in variables if re.search(rf"{layer}[/_]kernel", variable.path)]
        assert found
        assert {shard.data.shape for variable in found for shard in variable.stored.addressable_shards} == {shape}


def compare(kind, train, rtol=1e-5, weights_atol=1e-5, **options):
    """Train under a strategy and a mirrored one of as many replicas; return both models."""
    strategy = STRATEGIES[kind][0]()
    mirrored = MirroredStrategy([f"/cpu:{i}" for i in range(strategy.num_replicas_in_sync)])
    expected, model = make_model(mirrored, **options), make_model(strategy, **options)
    np.testing.assert_allclose(train(strategy, model), train(mirrored, expected), rtol=rtol)
    for one, other in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=weights_atol)
    assert_in_parts(kind, model.variables)
    if options.get("optimizer") != "factored":  # What that one keeps of a matrix is smaller than it.
        assert_in_parts(kind, model.optimizer.variables)
    return model, expected


@pytest.mark.one_in(10)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("FSDP", name) for name in OPTIMIZERS),
        *((kind, name) for kind in IN_PARTS[1:] for name in ("momentum", "clipped by norm", "accumulating")),
    ],
)
def test_fit_is_that_of_mirrored_variables(kind, name):
    model, expected = compare(kind, fit, optimizer=name)
    x, _ = make_data(13)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected.predict(x, verbose=0), rtol=1e-4, atol=1e-5)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("FSDP", name) for name in ("momentum", "averaged", "accumulating", "scaled")),
        *((kind, "clipped by norm") for kind in IN_PARTS),
    ],
)
def test_loops_are_those_of_mirrored_variables(kind, name):
    compare(kind, loop, optimizer=name)


@pytest.mark.parametrize(
    "train",
    [
        eager_loop,
        pytest.param(
            loop_of_values,
            marks=[pytest.mark.exhaustive, pytest.mark.slow("eight replicas one by one, without a program")],
        ),
    ],
)
def test_eager_loops_are_those_of_mirrored_variables(train):
    compare("FSDP", train)


# Rounded to bfloat16 in other places are the step of one row, which is another program, and products that devices share.
@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("kind", "train", "rtol", "weights_atol"),
    [
        ("FSDP", fit, 1e-5, 1e-5),
        ("FSDP", even_eager_loop, 1e-5, 1e-5),
        ("FSDP", eager_loop, 1e-5, 1e-4),
        ("rules", fit, 1e-2, 2e-2),
    ],
)
def test_training_in_bfloat16_is_that_of_mirrored_variables(kind, train, rtol, weights_atol):
    compare(kind, train, rtol, weights_atol, policy="mixed_bfloat16")


def save_model(model, path):
    model.save(path / "model.keras")

    def load(strategy):
        with strategy.scope():
            return keras.models.load_model(path / "model.keras")

    return load


def save_checkpoint(model, path):
    saved = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(path / "ckpt"))

    def restore(strategy):
        again = make_model(strategy, "clipped by norm")
        again.optimizer.build(again.trainable_variables)
        tf.train.Checkpoint(model=again, optimizer=again.optimizer).restore(saved).assert_consumed()
        return again

    return restore


def save_weights(model, path):
    model.save_weights(path / "model.weights.h5")

    def restore(strategy):
        again = make_model(strategy, "clipped by norm")
        again.optimizer.build(again.trainable_variables)
        again.load_weights(path / "model.weights.h5")
        return again

    return restore


@pytest.mark.one_in(8)
@pytest.mark.parametrize("save", [save_model, save_checkpoint, save_weights])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("FSDP", "FSDP on two"),
        ("FSDP", "none"),
        ("mirrored", "FSDP"),
        ("FSDP", "rules of both axes"),
        ("rules of both axes", "FSDP"),
        ("rules of both axes", "rules of both axes"),
    ],
)
def test_training_goes_on_under_another_strategy(save, first, second, tmp_path):
    strategy, other = (STRATEGIES[kind][0]() for kind in (first, second))
    model = make_model(strategy, "clipped by norm")
    fit(strategy, model)
    again = save(model, tmp_path)(other)
    pairs = zip(
        [*model.variables, *model.optimizer.variables], [*again.variables, *again.optimizer.variables], strict=True
    )
    for one, two in pairs:
        np.testing.assert_array_equal(np.asarray(one), np.asarray(two), err_msg=one.path)
    x, y = make_data(32)
    # Dropout draws for each replica: what follows is compared without it.
    np.testing.assert_allclose(again.evaluate(x, y, verbose=0), model.evaluate(x, y, verbose=0), rtol=1e-5)
    again.fit(x, y, verbose=0)
    for variables in (again.variables, again.optimizer.variables):
        assert_in_parts(second, variables)


@pytest.mark.parametrize("kind", ["FSDP", "rules of both axes"])
def test_an_interrupted_training_goes_on_with_variables_in_parts(kind, tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def train(*callbacks, epochs=4, folder=None):
        model = make_model(STRATEGIES[kind][0](), "clipped by norm")
        backup = [] if folder is None else [keras.callbacks.BackupAndRestore(folder)]
        x, y = make_data()
        history = model.fit(
            x, y, batch_size=32, epochs=epochs, shuffle=False, verbose=0, callbacks=[*backup, *callbacks]
        ).history
        return history["loss"], model

    expected, _ = train()
    with pytest.raises(KeyboardInterrupt):
        train(Stop(), folder=tmp_path)
    losses, model = train(folder=tmp_path)
    np.testing.assert_allclose(losses, expected[2:], rtol=1e-6)
    assert_in_parts(kind, model.optimizer.variables)
