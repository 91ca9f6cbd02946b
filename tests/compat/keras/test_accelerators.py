"""What differs on GPU and TPU, run here on virtual devices that are treated as such."""

import jax
import keras
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.keras._training import _programs, _step_function
from tfdist_jax.compat.tensorflow.keras._training._batch_feeder import SPLIT_STEPS, BatchFeeder


@pytest.fixture
def accelerators(monkeypatch):
    """Treat the CPU's virtual devices as accelerators, here and in Keras."""
    monkeypatch.setattr(_step_function, "runs_on_cpu", lambda strategy: False)
    monkeypatch.setattr(_programs, "runs_on_cpu", lambda strategy: False)
    with monkeypatch.context() as context:
        context.setattr(jax, "default_backend", lambda: "gpu")
        yield


def test_steps_of_one_execution_loop_on_the_device(
    accelerators, any_strategy, make_model, fit, data, assert_same_training
):
    together, single = make_model(any_strategy, steps_per_execution=3), make_model(any_strategy)
    histories = [fit(model, data.rows(42), batch_size=4) for model in (together, single)]
    assert_same_training(together, histories[0], single, histories[1])


def test_looped_steps_draw_random_numbers_of_their_own(accelerators, any_strategy, make_model, data):
    class Remember(keras.layers.Layer):
        def build(self, shape):
            self.seen = self.add_weight(shape=(4,), trainable=False, initializer="zeros")

        def call(self, x, training=False):
            if training:
                self.seen.assign(keras.ops.concatenate([self.seen[1:], tf.random.uniform((1,))]))
            return x

    model = make_model(any_strategy, hidden=[Remember], steps_per_execution=4)
    model.fit(data.x[:16], data.y[:16], batch_size=4, verbose=0)
    assert len(set(model.layers[1].seen.numpy())) == 4


def test_no_whole_batch_visits_the_first_device(accelerators, strategy, make_model, data, monkeypatch):
    model = make_model(strategy)
    placed = []
    original = jax.device_put

    def device_put(x, device=None, **options):
        placed.extend((np.shape(leaf), device) for leaf in jax.tree.leaves(x))
        return original(x, device, **options)

    monkeypatch.setattr(jax, "device_put", device_put)
    model.fit(data.x, data.y, batch_size=16, verbose=0)
    model.evaluate(data.x, data.y, batch_size=16, verbose=0)
    model.predict(data.x, batch_size=16, verbose=0)
    model.train_on_batch(data.x[:16], data.y[:16])
    batches = [device for shape, device in placed if shape == (1, 16, 8) and not _is_weight(device)]
    assert len(batches) == 13
    assert all(device is not None and device.spec == SPLIT_STEPS for device in batches)


def _is_weight(device):
    return device is not None and device.spec == PartitionSpec()


def test_batches_travel_ahead_of_their_steps(strategy):
    drawn = []

    def source():
        for i in range(5):
            drawn.append(i)
            yield np.full((6, 2), i, "f4")

    feed, batches = BatchFeeder(strategy.native.mesh, steps_per_execution=1, most=1, ahead=2), source()
    ((sizes, data),) = next(feed(batches))
    assert drawn == [0, 1, 2]
    assert sizes == (2, 2, 2, 0)
    assert data.shape == (1, 8, 2)
    assert data.sharding.spec == SPLIT_STEPS
    rest = [float(data[0, 0, 0]) for ((_, data),) in feed(batches)]
    assert rest == [1, 2, 3, 4]


def test_batches_of_another_source_start_anew(strategy):
    feed = BatchFeeder(strategy.native.mesh, steps_per_execution=1, most=1, ahead=2)
    for value in (1, 2):
        (((_, data),),) = feed(iter([np.full((4, 2), value, "f4")]))
        assert float(data[0, 0, 0]) == value


def test_batches_of_one_execution_travel_together_in_few_lengths(strategy):
    lengths = lambda count: [
        [len(data) for _, data in runs]
        for runs in BatchFeeder(strategy.native.mesh, steps_per_execution=20, most=8, ahead=0)(
            [np.zeros((4, 2))] * count
        )
    ]
    assert lengths(40) == [[6, 7, 7], [6, 7, 7]]
    assert lengths(29) == [[6, 7, 7], [7, 1, 1]]


def test_batches_of_unequal_shapes_travel_apart(strategy):
    feed = BatchFeeder(strategy.native.mesh, steps_per_execution=4, most=8, ahead=0)
    (runs,) = feed([np.zeros((rows, 2)) for rows in (8, 8, 8, 3)])
    assert [(sizes, len(data)) for sizes, data in runs] == [((2, 2, 2, 2), 1)] * 3 + [((1, 1, 1, 0), 1)]
