"""Datasets as input of `fit`, `evaluate` and `predict`: ours, distributed ones, TensorFlow's."""

import itertools
import textwrap

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


def dataset(data, batch_size=16):
    return tf.data.Dataset.from_tensor_slices((data.x, data.y)).batch(batch_size)


@pytest.mark.parametrize("place", ["alone", "strategy"])
def test_datasets_train_as_arrays_do(place, strategy, make_model, fit, data, assert_same_training):
    where = strategy if place == "strategy" else None
    model, other = make_model(where), make_model(where)
    expected = fit(other, data.rows(42), validation_data=(data.x[:10], data.y[:10]))
    history = model.fit(dataset(data.rows(42)), epochs=2, verbose=0, validation_data=dataset(data.rows(10))).history
    assert_same_training(model, history, other, expected, atol=1e-6)
    rows = tf.data.Dataset.from_tensor_slices(data.x[:42]).batch(10)
    np.testing.assert_allclose(model.predict(rows, verbose=0), other.predict(data.x[:42], verbose=0), atol=1e-6)
    evaluated = model.evaluate(dataset(data, 10), verbose=0)
    np.testing.assert_allclose(evaluated, other.evaluate(data.x, data.y, batch_size=10, verbose=0), atol=1e-6)


def test_distributed_datasets_train_as_their_batches_do(strategy, make_model, fit, data, assert_same_training):
    model, other = make_model(strategy), make_model(strategy)
    expected = fit(other, data.rows(42))
    distributed = strategy.experimental_distribute_dataset(dataset(data.rows(42)))
    history = model.fit(distributed, epochs=2, verbose=0).history
    assert_same_training(model, history, other, expected, atol=1e-6)


@pytest.mark.parametrize("rows", [16, 10, 3])
def test_batches_of_a_distributed_dataset_are_predicted(rows, strategy, make_model, data):
    model = make_model(strategy)
    batch = next(iter(strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(data.x[:rows]))))
    np.testing.assert_allclose(model.predict_on_batch(batch), model.predict_on_batch(data.x[:rows]), atol=1e-6)


def test_datasets_made_for_each_worker_train(strategy, make_model, fit, data, assert_same_training):
    """The function gives batches for one replica; four of them make a step."""
    model, other = make_model(strategy), make_model(strategy)
    made = []

    def make_dataset(context):
        made.append(context.get_per_replica_batch_size(16))
        return tf.data.Dataset.from_tensor_slices((data.x, data.y)).batch(made[-1]).repeat()

    distributed = strategy.distribute_datasets_from_function(make_dataset)
    history = model.fit(distributed, epochs=2, steps_per_epoch=4, verbose=0).history
    assert made == [4]
    assert_same_training(model, history, other, fit(other, data), atol=1e-6)


def test_progress_bar_knows_the_number_of_batches(strategy, make_model, data, capsys):
    make_model(strategy).fit(dataset(data.rows(42)), verbose=1)
    assert "/3" in capsys.readouterr().out
    make_model(strategy).evaluate(dataset(data.rows(42)), verbose=1)
    assert "/3" in capsys.readouterr().out  # Which steps are shown depends on how long they take.


def test_infinite_datasets_go_on_over_epochs(strategy, make_model, data):
    steps = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            steps.append(batch)

    drawn = []

    class Endless:
        def as_numpy_iterator(self):
            for i in itertools.cycle(range(4)):
                drawn.append(i)
                yield data.x[16 * i : 16 * i + 16], data.y[16 * i : 16 * i + 16]

        def cardinality(self):
            return -1

    make_model(strategy).fit(Endless(), epochs=2, steps_per_epoch=3, verbose=0, callbacks=[Count()])
    assert steps == [0, 1, 2] * 2
    assert drawn[-6:] == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("cardinality", [4, -2])
def test_finite_datasets_start_again_for_each_epoch(cardinality, strategy, make_model, data):
    starts = []

    class Finite:
        def as_numpy_iterator(self):
            starts.append(None)
            return iter([(data.x[i : i + 16], data.y[i : i + 16]) for i in range(0, 64, 16)])

        def cardinality(self):
            return cardinality

    model = make_model(strategy)
    model.fit(data.x[:4], data.y[:4], verbose=0)  # So that no iterator is spent on building.
    if cardinality == 4:
        model.fit(Finite(), epochs=3, verbose=0)
    else:
        with pytest.warns(UserWarning, match="ran out of data"):  # Keras says so whenever it did not know the end.
            model.fit(Finite(), epochs=3, verbose=0)
    assert len(starts) == 3


def test_sample_weights_and_class_weights(strategy, make_model, fit, data, assert_same_training):
    weights = np.linspace(0, 2, 64, dtype="f4")
    class_weight = {0: 2.0, 3: 0.5}
    weighted = tf.data.Dataset.from_tensor_slices((data.x, data.y, weights)).batch(16)
    for batches, options in ((weighted, {"sample_weight": weights}), (dataset(data), {"class_weight": class_weight})):
        model, other = make_model(strategy), make_model(strategy)
        expected = fit(other, data, **options)
        options.pop("sample_weight", None)
        history = model.fit(batches, epochs=2, verbose=0, **options).history
        assert_same_training(model, history, other, expected, atol=1e-6)


def test_batches_of_named_inputs(strategy, data):
    with strategy.scope():
        inputs = {"a": keras.Input((8,), name="a"), "b": keras.Input((8,), name="b")}
        model = keras.Model(inputs, keras.layers.Dense(4)(inputs["a"] + inputs["b"]))
        model.compile("sgd", "mse")
    x = {"a": data.x, "b": 2 * data.x}
    batches = tf.data.Dataset.from_tensor_slices((x, np.zeros((64, 4), "f4"))).batch(10)
    model.fit(batches, verbose=0)
    only_inputs = tf.data.Dataset.from_tensor_slices(x).batch(10)
    np.testing.assert_allclose(model.predict(only_inputs, verbose=0), model.predict(x, verbose=0), atol=1e-6)


def test_64_bit_batches_are_computed_in_32_bits(strategy, make_model, fit, data, assert_same_training):
    model, other = make_model(strategy), make_model(strategy)
    wide = tf.data.Dataset.from_tensor_slices((data.x.astype("f8"), data.y.astype("i8"))).batch(16)
    history = model.fit(wide, epochs=2, verbose=0).history
    assert_same_training(model, history, other, fit(other, data), atol=1e-6)


def test_generators_and_py_datasets(strategy, make_model, fit, data, assert_same_training):
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return keras.ops.array(data.x[16 * i : 16 * i + 16]), data.y[16 * i : 16 * i + 16]

    def generate():
        for i in itertools.cycle(range(4)):
            yield data.x[16 * i : 16 * i + 16], data.y[16 * i : 16 * i + 16]

    other = make_model(strategy)
    expected = fit(other, data)
    for batches, steps in ((Batches(), None), (generate(), 4)):
        model = make_model(strategy)
        history = model.fit(batches, epochs=2, steps_per_epoch=steps, shuffle=False, verbose=0).history
        assert_same_training(model, history, other, expected, atol=1e-6)


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_of_a_py_dataset_keep_its_order(workers, strategy, make_model, fit, data, assert_same_training):
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, i):
            return data.x[16 * i : min(16 * i + 16, 42)], data.y[16 * i : min(16 * i + 16, 42)]

    model, other = make_model(strategy), make_model(strategy)
    expected = fit(other, data.rows(42), validation_data=(data.x[:42], data.y[:42]), validation_batch_size=16)
    batches = Batches(workers=workers)
    history = model.fit(batches, epochs=2, shuffle=False, verbose=0, validation_data=Batches(workers=workers)).history
    assert_same_training(model, history, other, expected, atol=1e-6)
    half = make_model(strategy).fit(batches, epochs=3, steps_per_epoch=1, shuffle=False, verbose=0).history["loss"]
    steps = make_model(strategy)
    assert half == [pytest.approx(steps.train_on_batch(*batches[i])[0], abs=1e-6) for i in range(3)]


def test_predictions_for_a_py_dataset_with_workers_come_in_its_order(strategy, data):
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return (data.x[16 * i : 16 * i + 16],)

    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(4)])  # Keras builds it with the first batch.
    predicted = model.predict(Batches(workers=2), verbose=0)
    np.testing.assert_allclose(predicted, model.predict(data.x, verbose=0), atol=1e-6)


def test_what_a_dataset_holds_itself_is_refused(strategy, make_model, data):
    model = make_model(strategy)
    with pytest.raises(ValueError, match="`y` was passed beside the dataset"):
        model.fit(dataset(data), data.y, verbose=0)
    weighted = tf.data.Dataset.from_tensor_slices((data.x, data.y, np.ones(64, "f4"))).batch(16)
    with pytest.raises(ValueError, match="hold sample weights already"):
        model.fit(weighted, class_weight={0: 1.0}, verbose=0)


def test_rows_that_differ_in_number_are_named(strategy, make_model, data):
    class Crooked:
        def as_numpy_iterator(self):
            yield data.x[:16], data.y[:15]

    model = make_model(strategy)
    model.train_on_batch(data.x, data.y)
    with pytest.raises(ValueError, match=r"same number of rows.*\(16, 8\), \(15,\)"):
        model.fit(Crooked(), verbose=0)


@pytest.mark.peers
def test_datasets_of_real_tensorflow(run_script):
    ran = run_script(
        textwrap.dedent("""
        import tfdist_jax.compat.tensorflow as tf
        import numpy as np
        import tensorflow as real

        x, y = np.random.default_rng(0).normal(size=(42, 8)).astype("f4"), np.arange(42) % 4
        strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
        histories = []
        for make in (tf.data.Dataset, real.data.Dataset):
            tf.keras.utils.set_random_seed(0)
            with strategy.scope():
                model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(4)])
                model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
            batches = make.from_tensor_slices((x, y)).batch(16)
            history = model.fit(batches, epochs=2, validation_data=batches).history
            histories.append([*history["loss"], *history["val_loss"], model.evaluate(batches, verbose=0)])
            assert model.predict(batches.map(lambda x, y: x), verbose=0).shape == (42, 4)
        np.testing.assert_allclose(*histories, atol=1e-6)
        """),
        runner=("-W", "error::UserWarning:__main__"),
        env={"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("3/3") >= 4


class Batches:
    def __init__(self, data, count):
        self.data, self.count = data, count

    def __iter__(self):
        for i in range(self.count):
            yield self.data.x[16 * i : 16 * i + 16], self.data.y[16 * i : 16 * i + 16]


class SizedBatches(Batches):
    def __len__(self):
        return self.count


# Keras warns where it finds the end of a first epoch whose length it did not know.
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("kind", [Batches, SizedBatches])
def test_iterables_of_the_users_own_give_an_epoch_at_each_iteration(
    kind, strategy, make_model, fit, data, assert_same_training
):
    model, other = make_model(strategy), make_model(strategy)
    weight = {0: 0.5, 1: 2.0, 2: 1.0, 3: 0.1}
    expected = fit(other, data, class_weight=weight)
    history = model.fit(kind(data, 4), epochs=2, class_weight=weight, verbose=0).history
    assert_same_training(model, history, other, expected, atol=1e-6)
    np.testing.assert_allclose(
        model.evaluate(kind(data, 4), verbose=0), other.evaluate(data.x, data.y, batch_size=16, verbose=0), atol=1e-6
    )


def test_iterators_of_the_users_own_are_used_up(strategy, make_model, fit, data, assert_same_training):
    model, other = make_model(strategy), make_model(strategy)
    expected = fit(other, data)
    batches = itertools.chain(Batches(data, 4), Batches(data, 4))
    history = model.fit(batches, epochs=2, steps_per_epoch=4, shuffle=False, verbose=0).history
    assert_same_training(model, history, other, expected, atol=1e-6)
