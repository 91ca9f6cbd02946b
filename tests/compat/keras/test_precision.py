"""Mixed precision and float8 in `fit`: scales that are right for all replicas together."""

import keras
import numpy as np
import pytest


@pytest.fixture
def policy(request):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_dtype_policy(before)


# Keras names the layers without numbers of their own.
ignore_others = pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize`")


def in_policies(*names):
    return pytest.mark.parametrize("policy", names, indirect=True)


def scale_and_steps(model):
    optimizer = model.optimizer
    return float(optimizer.dynamic_scale.numpy()), int(optimizer.step_counter.numpy()), int(optimizer.iterations)


def sgd():
    return keras.optimizers.SGD(0.1)


@in_policies("mixed_float16", "mixed_bfloat16")
def test_mixed_precision_trains_as_on_one_device(policy, strategy, make_model, fit, data, assert_same_training):
    model, alone = make_model(strategy, optimizer=sgd), make_model(optimizer=sgd)
    histories = [fit(each, data) for each in (model, alone)]
    assert {weight.dtype for weight in model.weights} == {"float32"}
    # Rows are added up in another order: 8 bits of a bfloat16 stay.
    assert_same_training(model, histories[0], alone, histories[1], atol=2e-3 if policy == "mixed_bfloat16" else 2e-4)


@pytest.mark.one_in(3)
@in_policies("mixed_float16", "mixed_bfloat16")
@pytest.mark.parametrize("rows", [2, 10, 42])
def test_uneven_batches_differ_from_single_precision_by_rounding(policy, rows, strategy, make_model, fit, data):
    model = make_model(strategy, optimizer=sgd)
    fit(model, data.rows(rows))
    keras.config.set_dtype_policy("float32")
    exact = make_model(strategy, optimizer=sgd)
    fit(exact, data.rows(rows))
    for ours, expected in zip(model.weights, exact.weights, strict=True):
        np.testing.assert_allclose(ours.numpy(), expected.numpy(), atol=3e-3 if policy == "mixed_float16" else 2e-2)


@pytest.mark.one_in(4)
@in_policies("mixed_float16")
@pytest.mark.parametrize(("rows", "broken"), [(16, 13), (10, 9), (3, 1)])
@pytest.mark.parametrize("eager", [False, True])
def test_a_gradient_that_is_not_finite_on_one_replica_skips_the_update_on_all(
    policy, rows, broken, eager, strategy, make_model, data
):
    model = make_model(strategy, optimizer=sgd, run_eagerly=eager)
    x, y = data.rows(rows)
    model.train_on_batch(x, y)
    assert scale_and_steps(model) == (2.0**15, 1, 1)
    before = model.get_weights()
    x = x.copy()
    x[broken] = np.inf
    model.train_on_batch(x, y)
    assert scale_and_steps(model) == (2.0**14, 0, 1)
    for weight, expected in zip(model.weights, before, strict=True):
        for shard in weight.value.addressable_shards:
            np.testing.assert_array_equal(shard.data, expected)
    model.train_on_batch(data.x[:rows], y)
    assert scale_and_steps(model) == (2.0**14, 1, 2)
    assert not np.array_equal(before[0], model.get_weights()[0])


@in_policies("mixed_float16")
def test_scale_grows_after_good_steps(policy, strategy, make_model, fit, data):
    growing = lambda: keras.optimizers.LossScaleOptimizer(sgd(), initial_scale=4.0, dynamic_growth_steps=3)
    model = make_model(strategy, optimizer=growing)
    fit(model, data)  # Eight steps.
    assert scale_and_steps(model) == (16.0, 2, 8)


def accumulating(strategy, make_model, steps):
    optimizer = lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.01, gradient_accumulation_steps=steps), initial_scale=8.0, dynamic_growth_steps=100
    )
    return make_model(strategy, optimizer=optimizer)


def test_scaled_losses_accumulate_as_on_one_device(strategy, make_model, fit, data, assert_same_training):
    model, alone = accumulating(strategy, make_model, 3), accumulating(None, make_model, 3)
    histories = [fit(each, data.rows(40), batch_size=8, epochs=3) for each in (model, alone)]
    assert_same_training(model, histories[0], alone, histories[1])


def test_a_step_that_is_skipped_while_gradients_accumulate_does_not_count(strategy, make_model, data):
    model, alone = accumulating(strategy, make_model, 2), accumulating(None, make_model, 2)
    broken = data.x[:16].copy()
    broken[15] = np.inf  # A row of the last replica's.
    for each in (model, alone):
        for x in (data.x[:16], broken, data.x[16:32], data.x[32:48]):
            each.train_on_batch(x, data.y[:16])
        assert float(each.optimizer.dynamic_scale.numpy()) == 4.0
        assert int(each.optimizer.inner_optimizer._iterations.numpy()) == 3
    for ours, expected in zip(model.weights, alone.weights, strict=True):
        np.testing.assert_allclose(ours.numpy(), expected.numpy(), atol=1e-6)


def quantized(strategy, make_model, **options):
    model = make_model(strategy)
    model.quantize("float8")
    model.compile(keras.optimizers.SGD(0.1, **options), model.loss, metrics=["accuracy"])
    return model


@ignore_others
@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2}], ids=["usual", "accumulating"])
def test_float8_scales_follow_the_largest_number_of_any_replica(options, strategy, make_model, fit, data):
    model, alone = (quantized(where, make_model, **options) for where in (strategy, None))
    histories = [fit(each, data) for each in (model, alone)]
    np.testing.assert_allclose(histories[0]["loss"], histories[1]["loss"], atol=1e-4)
    scales = [weight for weight in model.weights if weight.overwrite_with_gradient]
    assert len(scales) == 12
    for ours, expected in zip(model.weights, alone.weights, strict=True):
        # One row that is rounded the other way moves a bias by 1e-4.
        np.testing.assert_allclose(ours.numpy(), expected.numpy(), atol=2e-4, err_msg=ours.path)


@ignore_others
@pytest.mark.parametrize("rows", [10, 2])
def test_float8_takes_uneven_batches(rows, strategy, make_model, fit, data):
    model, exact = quantized(strategy, make_model), make_model(strategy, optimizer=sgd)
    for each in (model, exact):
        fit(each, data.rows(rows), epochs=3)
    largest = np.abs(data.x[:rows]).max()
    assert model.layers[0].inputs_amax_history.numpy()[0] == pytest.approx(largest, rel=1e-6)
    np.testing.assert_allclose(model.layers[0].kernel.numpy(), exact.layers[0].kernel.numpy(), atol=0.02)


@ignore_others
def test_float8_scales_in_a_step_of_the_users_own(strategy, make_model, fit, data):
    class Custom(keras.Sequential):
        def train_step(self, state, data):
            return super().train_step(state, data)

    models = []
    for where, kind in ((strategy, Custom), (None, keras.Sequential)):
        layers = lambda kind=kind: kind([keras.Input((8,)), keras.layers.Dense(4)])
        model = make_model(where, model=layers)
        model.quantize("float8")
        model.compile(sgd(), model.loss)
        fit(model, data)
        models.append(model)
    for ours, expected in zip(models[0].weights, models[1].weights, strict=True):
        np.testing.assert_allclose(ours.numpy(), expected.numpy(), atol=2e-4, err_msg=ours.path)
