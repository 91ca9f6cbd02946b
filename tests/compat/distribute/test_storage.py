"""A strategy that keeps variables in a way of its own needs a storage, and nothing else: all ways to train work."""

import copy
import functools

import jax
import keras
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

import tfdist_jax
import tfdist_jax.compat.tensorflow as tf
from tfdist_jax import DATA
from tfdist_jax._stateful._storage import CentralStorage, MirroredStorage
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


class HostStorage(MirroredStorage):
    """Keeps NumPy arrays; each step gets copies on the devices."""

    holds_arrays = False

    def load(self, held):
        return jax.device_put(held, NamedSharding(self.mesh, PartitionSpec()))

    def store(self, array, held):
        return np.array(array)


class RowsStorage(MirroredStorage):
    """Keeps a part of each array on each device, where the first dimension allows it."""

    def place(self, cell, value):
        spec = PartitionSpec(DATA) if can_be_split(value) else PartitionSpec()
        self.adopt(cell, jax.device_put(value, NamedSharding(self.mesh, spec)))


def can_be_split(array):
    return array.ndim > 0 and array.shape[0] % 2 == 0 and array.dtype == np.float32


def is_on_host(variable):
    return isinstance(variable.stored, np.ndarray)


def is_sharded(variable):
    return can_be_split(variable.stored) != variable.stored.sharding.is_fully_replicated


def on_one_device(number, memory_kind=None):
    """Return a way to keep variables on one of the devices, and whether a variable is there."""
    home = SingleDeviceSharding(jax.devices()[number], memory_kind=memory_kind)
    return lambda mesh: CentralStorage(mesh, home), lambda variable: variable.stored.sharding == home


KINDS = {
    "host": lambda: (HostStorage, is_on_host),
    "sharded": lambda: (RowsStorage, is_sharded),
    "on one that computes": lambda: on_one_device(1),
    "on another one": lambda: on_one_device(5),
    "page-locked": lambda: on_one_device(0, "pinned_host"),
}


class TwoReplicas(Strategy):
    def __init__(self, storage):
        super().__init__(tfdist_jax.Mirrored(tuple(jax.devices()[:2])))
        self._make_storage = storage

    @functools.cached_property
    def storage(self):
        return self._make_storage(self.native.mesh)


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]()


def make_model(strategy):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [
            keras.layers.Dense(8, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
        ]
        model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
    return model


def make_batches():
    random = np.random.RandomState(0)
    return [[random.randn(n, 4).astype("f4"), random.randn(n, 1).astype("f4")] for n in (6, 6, 5, 1)]


def fit(strategy, model):
    x, y = map(np.concatenate, zip(*make_batches()[:3], strict=True))
    history = model.fit(x, y, batch_size=6, epochs=2, shuffle=False, verbose=0, validation_data=(x[:6], y[:6]))
    return np.array([*history.history.values()]).ravel().tolist()


def fit_step_by_step(strategy, model):
    model.run_eagerly = True
    return [model.train_on_batch(*batch)[0] for batch in make_batches()]


def loop(strategy, model, *, compiled=False, needs_values=False):
    with strategy.scope():
        seen = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM, trainable=False)
        own = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
            trainable=False,
        )

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / 6
        weights = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        seen.assign_add(tf.cast(tf.shape(x)[0], tf.float32))
        own.assign_add(1.0)
        if needs_values:
            float(loss)
        return loss

    run = lambda x, y: strategy.reduce("SUM", strategy.run(step, args=(x, y)), axis=None)
    run = tf.function(run) if compiled else run
    losses = []
    for batch in make_batches():
        (parts,) = strategy.experimental_distribute_dataset(
            tf.data.Dataset.from_tensors(tuple(batch)).unbatch().batch(6)
        )
        losses.append(float(run(*parts)))
    assert float(seen) == 18 and float(own) == 8
    return losses


TRAININGS = {
    "fit": fit,
    "fit eagerly": fit_step_by_step,
    "function": functools.partial(loop, compiled=True),
    "run": loop,
    "with values": functools.partial(loop, needs_values=True),
}


@pytest.mark.one_in(8)
@pytest.mark.parametrize("train", TRAININGS.values(), ids=TRAININGS)
def test_training_is_that_of_mirrored_variables(kind, train):
    make_storage, is_kept = kind
    results = []
    for storage in (make_storage, MirroredStorage):
        strategy = TwoReplicas(storage)
        model = make_model(strategy)
        results.append((train(strategy, model), model.get_weights()))
        assert storage is MirroredStorage or all(map(is_kept, [*model.weights, *model.optimizer.variables]))
    (losses, weights), (expected, expected_weights) = results
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for one, other in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_variables_are_assigned_copied_saved_and_differentiated(kind, tmp_path):
    make_storage, is_kept = kind
    with TwoReplicas(make_storage).scope():
        v = tf.Variable([1.0, 2.0])
    twin = copy.deepcopy(v)
    v.assign([3.0, 4.0])
    v[1:].assign([5.0])
    v.assign_add([1.0, 1.0])
    assert v.numpy().tolist() == [4, 6] and twin.numpy().tolist() == [1, 2] and is_kept(v) and is_kept(twin)
    assert (
        [value.numpy().tolist() for value in v.values] == [[4, 6]] * 2 and "CPU:0" in v.device and "4., 6." in repr(v)
    )
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(v * v) + tf.reduce_sum(v)
    assert tape.gradient(total, v).numpy().tolist() == [9, 13]
    path = tf.train.Checkpoint(v=v).save(str(tmp_path / "ckpt"))
    tf.train.Checkpoint(v=twin).restore(path).assert_consumed()
    assert twin.numpy().tolist() == [4, 6] and is_kept(twin)


def test_code_outside_of_the_strategy_reads_and_changes_variables(kind):
    make_storage, is_kept = kind
    with TwoReplicas(make_storage).scope():
        v = tf.Variable([1.0, 2.0])
    add = tf.function(lambda x: v.assign_add(x).read_value() * 2)
    assert [add([1.0, 0.0]).numpy().tolist() for _ in range(2)] == [[4, 4], [6, 4]]
    dataset = tf.data.Dataset.range(2).map(lambda i: v[0] * tf.cast(i, tf.float32))
    assert [float(x) for x in dataset] == [0, 3]
    v.assign([7.0, 7.0])
    assert [float(x) for x in dataset] == [0, 7] and is_kept(v)


def test_models_are_saved_and_loaded(kind, tmp_path):
    make_storage, is_kept = kind
    strategy = TwoReplicas(make_storage)
    model = make_model(strategy)
    fit(strategy, model)
    model.save(tmp_path / "model.keras")
    with strategy.scope():
        again = keras.models.load_model(tmp_path / "model.keras")
    assert all(map(is_kept, again.weights))
    x = make_batches()[0][0]
    np.testing.assert_allclose(again.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-6)
    assert fit(strategy, again)
