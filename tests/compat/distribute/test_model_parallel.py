"""`ModelParallelStrategy`: rules say how variables and computation are divided, and what they cannot say is refused."""

import collections

import keras
import numpy as np
import pytest
from communication import collectives_of, compile_step
from jax.sharding import PartitionSpec as P
from split_models import RULES, make_data, make_layout_map, make_model

import tfdist_jax.compat.tensorflow as tf

ModelParallelStrategy = tf.distribute.experimental.ModelParallelStrategy


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
    collectives = collectives_of(compile_step(model, batch), strategy)
    assert {one.kind for one in collectives} == {"all-reduce"}
    sums = collections.Counter()
    for one in collectives:
        sums[one.axes] += one.bytes * one.times
    kernels, others = 2 * 64 * 512 * 4, (512 + 64) * 4
    # Quarters of the kernels' gradients, between groups; in a group, a replica's 4 rows of what the second layer gives.
    assert sums.keys() == {("data",), ("tensor",)}
    assert kernels / 4 < sums["data",] < kernels / 4 + others
    assert 4 * 64 * 4 <= sums["tensor",] < 4 * 64 * 4 + 100


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gradients_of_16_bits_are_added_up(dtype):
    """XLA:CPU would end the process if they were as they are."""
    weights = []
    for strategy in (
        ModelParallelStrategy({"up/kernel": P(None, "tensor")}, 4),
        tf.distribute.OneDeviceStrategy("cpu:0"),
    ):
        with strategy.scope():
            layer = keras.layers.Dense(16, name="up", dtype=dtype, kernel_initializer="ones")
            model = keras.Sequential([keras.Input((4,), dtype=dtype), layer])
            model.compile(keras.optimizers.SGD(1.0), "mse")
        model.fit(np.ones((8, 4), dtype), np.full((8, 16), 2, dtype), batch_size=8, verbose=0)
        assert layer.kernel.dtype == dtype
        weights.append([np.asarray(weight, np.float32) for weight in model.get_weights()])
    assert not np.array_equal(weights[0][0], np.ones((4, 16)))
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_rules_that_match_nothing_are_told():
    strategy = ModelParallelStrategy({**RULES, "attention/kernel": P("tensor")}, 4)
    with pytest.warns(UserWarning, match=r"\['attention/kernel'\] match the end of no variable's path.*'sequential"):
        make_model(strategy).fit(*make_data(16), verbose=0)
    layouts = make_layout_map()
    layouts[".*attention.*"] = ("model",)
    strategy = ModelParallelStrategy(layouts)
    with pytest.warns(UserWarning, match=r"\['\.\*attention\.\*'\] match the end of no"):
        make_model(strategy).fit(*make_data(16), verbose=0)


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


def test_axes_of_a_layout_map_that_mean_something_else_are_refused():
    mesh = keras.distribution.DeviceMesh((2, 4), ["batch", "fsdp"], [f"cpu:{i}" for i in range(8)])
    with pytest.raises(ValueError, match="have 'fsdp', which means something else"):
        ModelParallelStrategy(keras.distribution.LayoutMap(mesh))


def test_a_layout_map_says_which_mesh_there_is():
    strategy = ModelParallelStrategy(make_layout_map())
    assert dict(strategy.native.mesh.shape) == {"data": 2, "model": 4}
    assert [device.id for device in strategy.native.mesh.devices.flat] == [0, 2, 4, 6, 1, 3, 5, 7]
    with pytest.raises(ValueError, match="has a device mesh of its own"):
        ModelParallelStrategy(make_layout_map(), 4)


def test_a_step_that_needs_values_is_refused():
    with pytest.raises(NotImplementedError, match=r"one device for each replica.*'tensor': 4"):
        ModelParallelStrategy({}, 4).run(lambda: float(tf.constant(1.0) + 1))
