"""What users of Keras's callbacks rely on, under a strategy of two replicas."""

import csv

import keras
import numpy as np
import pytest


@pytest.fixture
def pair(make_strategy):
    return make_strategy(2)


X, Y = np.ones((6, 2), "f4"), np.zeros((6, 1), "f4")


def make(pair, *, rate=0.0, **options):
    with pair.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(rate, **options), "mse")
    return model


class Script(keras.callbacks.Callback):
    """Puts values of its own into the logs, one for each epoch."""

    def __init__(self, values, name="val_score"):
        super().__init__()
        self.values, self.name, self.ran = values, name, 0

    def on_epoch_end(self, epoch, logs=None):
        logs[self.name] = self.values[epoch]
        self.ran = epoch + 1


def run(pair, values, callback, *, model=None, **options):
    """Train for as many epochs as there are values of `val_score`; return the model and how many were run."""
    script, model = Script(values), model or make(pair)
    model.fit(X, Y, epochs=len(values), verbose=0, callbacks=[script, callback], **options)
    return model, script.ran


@pytest.mark.parametrize(
    ("options", "values", "ran"),
    [
        ({}, [1.0, 0.9, 0.95, 0.8], 3),
        ({"patience": 2}, [1.0, 0.9, 0.95, 0.8, 0.85, 0.9, 0.5], 6),
        ({"mode": "max"}, [0.1, 0.2, 0.15, 0.3], 3),
        ({"min_delta": 0.2}, [1.0, 0.7, 0.6, 0.1], 3),
        ({"baseline": 0.5, "patience": 2}, [1.0, 1.0, 1.0, 1.0], 2),
        ({"start_from_epoch": 2}, [1.0, 2.0, 3.0, 2.0, 2.5, 1.0], 5),
    ],
)
def test_early_stopping_stops_when_nothing_gets_better(pair, options, values, ran):
    stopping = keras.callbacks.EarlyStopping("val_score", **{"mode": "min", **options})
    assert run(pair, values, stopping)[1] == ran


def test_early_stopping_brings_the_best_weights_back_and_begins_anew(pair):
    stopping = keras.callbacks.EarlyStopping("val_score", mode="min", patience=2, restore_best_weights=True)
    after = []
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: after.append(model.get_weights()))
    model = make(pair, rate=0.01)
    script = Script([3.0, 1.0, 2.0, 2.0, 0.0])
    model.fit(X, Y, epochs=5, verbose=0, callbacks=[script, note, stopping])
    assert script.ran == 4 and stopping.stopped_epoch == 3 and stopping.best_epoch == 1
    for weight, best in zip(model.get_weights(), after[1], strict=True):
        np.testing.assert_array_equal(weight, best)
    assert len(model.weights[0].value.sharding.device_set) == 2
    model.fit(X, Y, epochs=5, verbose=0, callbacks=[script, stopping])
    assert script.ran == 4


def rates(model, callbacks, epochs, **options):
    """Return the learning rate at the end of each epoch."""
    seen = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(round(float(model.optimizer.learning_rate.numpy()), 6))
    )
    model.fit(X, Y, epochs=epochs, verbose=0, callbacks=[*callbacks, note], **options)
    return seen


@pytest.mark.parametrize(
    ("options", "values", "expected"),
    [
        ({"patience": 1}, [1, 1, 1, 0.5, 0.5], [1, 0.1, 0.01, 0.01, 0.001]),
        ({"patience": 2}, [1, 1, 1, 1, 1], [1, 1, 0.1, 0.1, 0.01]),
        ({"patience": 1, "min_lr": 0.05}, [1, 1, 1], [1, 0.1, 0.05]),
        ({"patience": 1, "cooldown": 2}, [1, 1, 1, 1, 1], [1, 0.1, 0.1, 0.01, 0.01]),
        ({"patience": 1, "min_delta": 0.5}, [1, 0.8, 0.2], [1, 0.1, 0.1]),
    ],
)
def test_rate_falls_on_a_plateau(pair, options, values, expected):
    plateau = keras.callbacks.ReduceLROnPlateau("val_score", factor=0.1, mode="min", **options)
    model = make(pair, rate=1.0)
    script = Script(values)
    # A rate of 1 would let the weights grow without bound.
    model.trainable = False
    assert rates(model, [script, plateau], len(values)) == pytest.approx(expected)


def test_schedules_by_epoch_get_the_epoch_and_the_rate(pair):
    model = make(pair)
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.5 if epoch == 0 else rate / 2)
    assert rates(model, [schedule], 3) == [0.5, 0.25, 0.125]
    history = model.fit(X, Y, epochs=2, verbose=0, callbacks=[schedule]).history
    assert history["learning_rate"] == [0.5, 0.25]


@pytest.mark.parametrize("kind", ["scheduler", "plateau"])
def test_callbacks_that_set_the_rate_refuse_optimizers_with_a_schedule(pair, kind):
    with pair.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(keras.optimizers.schedules.PolynomialDecay(0.1, 10)), "mse")
    callback = {
        "scheduler": keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
        "plateau": keras.callbacks.ReduceLROnPlateau("loss", patience=0, min_delta=10.0, mode="min"),
    }[kind]
    with pytest.raises(TypeError, match="learning rate is not settable"):
        model.fit(X, Y, epochs=3, verbose=0, callbacks=[callback])


def test_csv_files_grow_by_a_line_for_each_epoch(pair, tmp_path):
    path, model = tmp_path / "log.csv", make(pair)
    for append in (False, True):
        log = keras.callbacks.CSVLogger(str(path), append=append, separator=";")
        model.fit(X, Y, epochs=2, validation_data=(X, Y), verbose=0, callbacks=[log])
    rows = list(csv.DictReader(path.read_text().splitlines(), delimiter=";"))
    assert [row["epoch"] for row in rows] == ["0", "1", "0", "1"]
    assert {float(row[name]) for row in rows for name in ("loss", "val_loss")} == {4.0}


@pytest.mark.parametrize(
    ("options", "values", "saved"),
    [
        ({}, [3, 2, 1], [1, 2, 3]),
        ({"save_best_only": True}, [3, 1, 2, 0.5], [1, 2, 4]),
        ({"save_best_only": True, "mode": "max"}, [3, 1, 4], [1, 3]),
        ({"save_best_only": True, "initial_value_threshold": 1.5}, [3, 1, 2], [2]),
    ],
)
@pytest.mark.parametrize("weights_only", [False, True])
def test_checkpoints_are_written_when_they_are_asked_for(pair, tmp_path, options, values, saved, weights_only):
    name = "{epoch}.weights.h5" if weights_only else "{epoch}.keras"
    saver = keras.callbacks.ModelCheckpoint(
        tmp_path / name, "val_score", save_weights_only=weights_only, **{"mode": "min", **options}
    )
    model, _ = run(pair, values, saver)
    assert sorted(int(path.name.partition(".")[0]) for path in tmp_path.iterdir()) == saved
    if not weights_only:
        loaded = keras.models.load_model(tmp_path / f"{saved[-1]}.keras")
        np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_checkpoints_by_batches_count_over_epochs(pair, tmp_path, steps_per_execution):
    with pair.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    saver = keras.callbacks.ModelCheckpoint(
        tmp_path / "{epoch}-{batch}.weights.h5", save_weights_only=True, save_freq=4
    )
    model.fit(X, Y, batch_size=1, epochs=2, verbose=0, callbacks=[saver])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1-4.weights.h5", "2-2.weights.h5", "2-6.weights.h5"]


def test_averages_are_swapped_in_for_evaluation_and_back(pair):
    model = make(pair, rate=0.1, use_ema=True, ema_momentum=0.5)
    seen = []

    class Note(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            seen.append(("test", self.model.get_weights()[0][0, 0]))

        def on_train_batch_end(self, batch, logs=None):
            seen.append(("train", self.model.get_weights()[0][0, 0]))

    swap = keras.callbacks.SwapEMAWeights()
    model.fit(X, Y, epochs=2, validation_data=(X, Y), verbose=0, callbacks=[swap, Note()])
    names, values = zip(*seen, strict=True)
    assert names == ("train", "test", "train", "test")
    # A step from 1 against a gradient of 4; averages begin with the first step's weights.
    np.testing.assert_allclose(values[:2], 0.6, rtol=1e-6)
    np.testing.assert_allclose(values[3], (0.6 + values[2]) / 2, rtol=1e-6)
    assert model.get_weights()[0][0, 0] == values[3]  # What training ends with.
    with pytest.raises(ValueError, match="`use_ema=True` is set"):
        make(pair).evaluate(X, Y, verbose=0, callbacks=[keras.callbacks.SwapEMAWeights()])


def test_training_ends_where_the_loss_is_not_a_number(pair):
    y = Y.copy()
    y[4] = np.nan
    counted = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: counted.append(batch))
    model = make(pair, rate=0.1)
    history = model.fit(
        X, y, batch_size=2, epochs=3, shuffle=False, verbose=0, callbacks=[keras.callbacks.TerminateOnNaN(), count]
    ).history
    assert counted == [0, 1, 2] and len(history["loss"]) == 1 and np.isnan(history["loss"][0])


def test_functions_are_called_at_each_event(pair):
    events = [f"on_{what}_{when}" for what in ("epoch", "train_batch", "train") for when in ("begin", "end")]
    counts = dict.fromkeys(events, 0)

    def counting(event):
        def called(*args, **kwargs):
            counts[event] += 1

        return called

    make(pair).fit(
        X,
        Y,
        batch_size=2,
        epochs=2,
        verbose=0,
        callbacks=[keras.callbacks.LambdaCallback(**{event: counting(event) for event in events})],
    )
    assert list(counts.values()) == [2, 2, 6, 6, 1, 1]


@pytest.mark.parametrize("monitor", ["loss", "val_loss"])
def test_weights_are_those_after_the_epoch_when_it_ends(pair, monitor):
    seen = []

    class Note(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append((int(self.model.optimizer.iterations.numpy()), monitor in logs))

    make(pair).fit(X, Y, batch_size=2, epochs=2, validation_data=(X, Y), verbose=0, callbacks=[Note()])
    assert seen == [(3, True), (6, True)]
