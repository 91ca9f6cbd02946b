"""`ModelParallelStrategy`: training is that of `MirroredStrategy`, with variables and computation divided as rules say."""

import re

import keras
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import tfdist_jax.compat.tensorflow as tf

ModelParallelStrategy = tf.distribute.experimental.ModelParallelStrategy

RULES = {"up/kernel": P(None, "tensor"), "up/bias": P("tensor"), "down/kernel": P("tensor")}

OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "clipped by norm": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.5),
    "accumulating": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2, use_ema=True),
}


def make_layout_map(mesh=True):
    devices = [f"cpu:{i}" for i in (0, 2, 4, 6, 1, 3, 5, 7)]
    layouts = keras.distribution.LayoutMap(
        keras.distribution.DeviceMesh((2, 4), ["batch", "model"], devices) if mesh else None
    )
    layouts[".*up/kernel"] = ("batch", "model")
    layouts[".*up/bias"] = ("model",)
    layouts[".*down/kernel"] = ("model", "batch")
    return layouts


STRATEGIES = {
    "rules": (lambda: ModelParallelStrategy(RULES, 4), (64, 16)),
    "over both axes": (
        lambda: ModelParallelStrategy(
            [("up/kernel", P("data", "other")), ("down/kernel", P("other", "data"))], {"data": 2, "other": 4}
        ),
        (32, 16),
    ),
    "a layout map": (lambda: ModelParallelStrategy(make_layout_map()), (32, 16)),
}


def make_data(rows=65):
    random = np.random.RandomState(0)
    return random.randn(rows, 64).astype("f4"), random.randn(rows, 1).astype("f4")


def make_model(strategy, optimizer=OPTIMIZERS["momentum"], policy=None):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [
            keras.layers.Dense(64, activation="relu", name="up", dtype=policy),
            keras.layers.Dropout(0.5, dtype=policy),
            # A bias before BatchNormalization has no gradient but rounding errors, of which Adam makes steps.
            keras.layers.Dense(32, use_bias=False, name="down", dtype=policy),
            keras.layers.BatchNormalization(dtype=policy),
        ]
        model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(1, dtype="float32")])
        model.compile(optimizer(), "mse")
    return model


def fit(strategy, model):
    x, y = make_data()
    losses = model.fit(x, y, batch_size=32, epochs=2, shuffle=False, verbose=0).history["loss"]
    return [*losses, model.evaluate(x, y, verbose=0)]


def loop(strategy, model):
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(
                tf.reduce_sum((model(x, training=True) - y) ** 2, 1), global_batch_size=32
            )
        weights = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    run = tf.function(lambda x, y: strategy.reduce("SUM", strategy.run(step, args=(x, y)), axis=None))
    batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(make_data()).batch(32))
    return [float(run(*batch)) for batch in batches]


def shapes_of(variables, end):
    return {tuple(v.stored.addressable_shards[0].data.shape) for v in variables if v.path.endswith(end)}


def compare(kind, train, **options):
    make, shape = STRATEGIES[kind]
    mirrored, strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]), make()
    expected, model = make_model(mirrored, **options), make_model(strategy, **options)
    np.testing.assert_allclose(train(strategy, model), train(mirrored, expected), rtol=1e-5)
    for one, other in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert shapes_of(model.variables, "up/kernel") == {shape}
    slots = [v for v in model.optimizer.variables if "up_kernel" in v.path]
    assert slots and shapes_of(slots, "") == {shape}
    return model


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", STRATEGIES)
def test_fit_is_that_of_mirrored_variables(kind, name):
    compare(kind, fit, optimizer=OPTIMIZERS[name])


@pytest.mark.parametrize("kind", STRATEGIES)
def test_loops_are_those_of_mirrored_variables(kind):
    compare(kind, loop, optimizer=OPTIMIZERS["clipped by norm"])


def test_training_in_bfloat16_is_close_to_that_of_mirrored_variables():
    """Sums of products that devices share are rounded in other places."""
    make, _ = STRATEGIES["rules"]
    mirrored, strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]), make()
    expected, losses = (fit(each, make_model(each, policy="mixed_bfloat16")) for each in (mirrored, strategy))
    np.testing.assert_allclose(losses, expected, rtol=1e-2)


def test_what_rules_divide_is_neither_gathered_nor_added_up_whole():
    strategy = ModelParallelStrategy(RULES, 4)
    with strategy.scope():
        layers = [
            keras.layers.Dense(512, activation="relu", name="up"),
            keras.layers.Dense(64, name="down"),
        ]
        model = keras.Sequential([keras.Input((64,)), *layers])
        model.compile(keras.optimizers.Adam(global_clipnorm=1.0), "mse")
    batch = np.ones((8, 64), "f4"), np.ones((8, 64), "f4")
    model.fit(*batch, batch_size=8, verbose=0)
    text = model.train_function.lower(batch).compile().as_text()
    found = re.findall(
        r"= (\(.*?\)|\S+) (?:all-gather|reduce-scatter|all-reduce|all-to-all|collective-permute)\(", text
    )
    sizes = [
        np.prod([int(n) for n in dims.split(",") if n]) for each in found for dims in re.findall(r"\[([\d,]*)\]", each)
    ]
    # Quarters of the kernels' gradients, between groups; nothing larger.
    assert sorted(sizes)[-2:] == [64 * 512 / 4] * 2


def test_checkpoints_go_to_and_from_other_strategies(tmp_path):
    make, shape = STRATEGIES["over both axes"]
    first = make()
    model = make_model(first)
    fit(first, model)
    model.save(tmp_path / "model.keras")
    for other in (tf.distribute.experimental.FSDPStrategy(), make()):
        with other.scope():
            again = keras.models.load_model(tmp_path / "model.keras")
        for one, two in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
            np.testing.assert_array_equal(one.numpy(), two.numpy())
        again.fit(*make_data(16), verbose=0)
    assert shapes_of(again.optimizer.variables, "up_kernel_momentum") == {shape}


def test_rules_that_match_nothing_are_told():
    strategy = ModelParallelStrategy({**RULES, "attention/kernel": P("tensor")}, 4)
    with pytest.warns(UserWarning, match=r"\['attention/kernel'\] match the end of no variable's path.*'sequential"):
        fit(strategy, make_model(strategy))
    layouts = make_layout_map()
    layouts[".*attention.*"] = ("model",)
    strategy = ModelParallelStrategy(layouts)
    with pytest.warns(UserWarning, match=r"\['\.\*attention\.\*'\] match the end of no"):
        fit(strategy, make_model(strategy))


def test_what_does_not_divide_or_is_not_there_is_refused():
    with (
        ModelParallelStrategy({"kernel": P("tensor")}, 4).scope(),
        pytest.raises(ValueError, match=r"layer/kernel of shape \(6, 8\).*dimension 0 does not divide into 4 parts"),
    ):
        keras.layers.Dense(8, name="layer").build((None, 6))
    with (
        ModelParallelStrategy({"v": P("model")}, 4).scope(),
        pytest.raises(ValueError, match="the mesh has no axis 'model'"),
    ):
        tf.Variable(tf.zeros(8), name="v")
    layouts = make_layout_map(mesh=False)
    with pytest.raises(ValueError, match=r"'\.\*up/kernel' in the LayoutMap.*names the axis 'batch', but the mesh has"):
        ModelParallelStrategy(layouts, 4)
    assert ModelParallelStrategy(layouts, {"batch": 4, "model": 2}).num_replicas_in_sync == 4


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (TypeError, "`rules` must be a mapping", ("kernel", 4)),
        (TypeError, "needs a jax.sharding.PartitionSpec", ({"kernel": ("tensor",)}, 4)),
        (ValueError, "is no regular expression", ({"(": P()}, 4)),
        (ValueError, "`axes` is needed", ({},)),
        (ValueError, "8 devices do not divide", ({}, 3)),
        (ValueError, "needs an axis 'data'", ({}, {"tensor": 8})),
        (ValueError, "have 'fsdp', which means something else", ({}, {"data": 2, "fsdp": 4})),
    ],
)
def test_wrong_arguments_are_refused(error, message, arguments):
    with pytest.raises(error, match=message):
        ModelParallelStrategy(*arguments)


def test_a_layout_map_says_which_mesh_there_is():
    strategy = ModelParallelStrategy(make_layout_map())
    assert dict(strategy.native.mesh.shape) == {"data": 2, "model": 4}
    assert [device.id for device in strategy.native.mesh.devices.flat] == [0, 2, 4, 6, 1, 3, 5, 7]
    with pytest.raises(ValueError, match="has a device mesh of its own"):
        ModelParallelStrategy(make_layout_map(), 4)


def test_a_step_that_needs_values_is_refused():
    with pytest.raises(NotImplementedError, match=r"one device for each replica.*'tensor': 4"):
        ModelParallelStrategy({}, 4).run(lambda: float(tf.constant(1.0) + 1))
