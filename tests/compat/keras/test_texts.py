"""Models that take strings: what they compute of them runs on the host, and the rest trains as any other model."""

import gc
import weakref

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

TEXTS = ["the cat sat", "a dog", "the dog sat", "cat", "mat", "a cat on the mat", "dog dog", "on"] * 2
LABELS = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0] * 2


def make_model():
    keras.utils.set_random_seed(1)
    vectorize = tf.keras.layers.TextVectorization(max_tokens=12, output_sequence_length=4)
    vectorize.adapt(TEXTS)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((), dtype=tf.string),
            vectorize,
            layers.Embedding(12, 3),
            layers.GlobalAveragePooling1D(),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(tf.keras.optimizers.Adam(0.1), "binary_crossentropy", metrics=["accuracy"])
    return model


@pytest.mark.parametrize("batch_size", [8, 16])
def test_replicas_train_as_one_device_does(batch_size):
    histories = []
    for strategy in (tf.distribute.get_strategy(), tf.distribute.MirroredStrategy()):
        with strategy.scope():
            model = make_model()
        dataset = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(batch_size)
        history = model.fit(dataset, epochs=3, verbose=0).history
        histories.append(
            [*history["loss"], *model.evaluate(dataset, verbose=0), *model.predict(dataset, verbose=0)[:, 0]]
        )
    np.testing.assert_allclose(*histories, rtol=2e-5)


def test_steps_of_one_program(monkeypatch):
    model = make_model()
    model.compile("sgd", "binary_crossentropy", steps_per_execution=2)
    first = model.fit(
        np.array(TEXTS, object), np.array(LABELS), batch_size=2, epochs=2, shuffle=False, verbose=0
    ).history["loss"]
    other = make_model()
    other.compile("sgd", "binary_crossentropy")
    second = other.fit(tf.constant(TEXTS), np.array(LABELS), batch_size=2, epochs=2, shuffle=False, verbose=0).history[
        "loss"
    ]
    np.testing.assert_allclose(first, second, rtol=1e-5)


def test_strings_reach_the_model_in_every_form():
    model = make_model()
    expected = model.predict(tf.constant(TEXTS), verbose=0)
    for given in (np.array(TEXTS, object), np.array([text.encode() for text in TEXTS], object)):
        np.testing.assert_array_equal(model.predict(given, verbose=0), expected)
    np.testing.assert_allclose(model(tf.constant(TEXTS)), expected, rtol=1e-6)
    np.testing.assert_allclose(tf.function(model)(tf.constant(TEXTS)), expected, rtol=1e-6)
    np.testing.assert_allclose(model.predict_on_batch(tf.constant(TEXTS[:1])), expected[:1], rtol=1e-6)


def test_trained_weights_must_not_be_beneath_strings():
    inner = make_model()
    outer = tf.keras.Sequential([tf.keras.Input((), dtype=tf.string), inner])
    outer.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"has weights that are trained .*Sequential\(\[vectorize, model\]\)"):
        outer.fit(tf.constant(TEXTS), np.array(LABELS), verbose=0)


class Own(tf.keras.Model):
    """A model with a `call` of its own."""

    def __init__(self):
        super().__init__()
        self.lookup = tf.keras.layers.StringLookup(vocabulary=["a", "b"])
        self.embed = tf.keras.layers.Embedding(3, 2)

    def call(self, text):
        return self.embed(self.lookup(text))


@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.filterwarnings("ignore:Layer", "ignore:.build")
def test_a_call_of_ones_own_takes_strings_but_its_steps_do_not(is_built):
    model, text = Own(), tf.constant(["a", "q"])
    if is_built:
        assert model(text).shape == (2, 2)
    model.compile("sgd", "mse")
    for train in (lambda: model.fit(text, np.zeros((2, 2)), verbose=0), lambda: model.predict(text, verbose=0)):
        with pytest.raises(ValueError, match=r"batches hold strings.*dataset.map\(lambda text, y"):
            train()
    dataset = tf.data.Dataset.from_tensor_slices((["a", "q"], np.zeros((2, 2)))).batch(2)
    numbers = dataset.map(lambda text, y: (model.lookup(text), y))
    model.call = model.embed.call
    assert len(model.fit(numbers, verbose=0).history["loss"]) == 1


def test_a_saved_model_takes_strings(tmp_path):
    model = make_model()
    model.fit(tf.constant(TEXTS), np.array(LABELS), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        loaded.predict(tf.constant(TEXTS), verbose=0), model.predict(tf.constant(TEXTS), verbose=0)
    )
    history = [
        m.fit(tf.constant(TEXTS), np.array(LABELS), shuffle=False, verbose=0).history["loss"] for m in (model, loaded)
    ]
    np.testing.assert_allclose(*history, rtol=1e-6)


def test_a_model_that_takes_strings_is_freed():
    model = make_model()
    model.predict(tf.constant(TEXTS), verbose=0)
    freed = weakref.ref(model)
    del model
    gc.collect()
    assert freed() is None


def test_a_model_that_gives_strings_is_refused_in_steps():
    name = tf.keras.Input((), dtype=tf.string)
    number = tf.keras.layers.StringLookup(vocabulary=["a"])(name)
    model = tf.keras.Model(name, tf.keras.layers.StringLookup(vocabulary=["x"], invert=True)(number))
    assert model(tf.constant(["a", "q"])).numpy().tolist() == [b"x", b"[UNK]"]
    with pytest.raises(RuntimeError, match="looked up on the host"):
        model.predict(tf.constant(["a"]), verbose=0)


def test_a_vocabulary_may_change_after_training_has_begun():
    lookup = tf.keras.layers.StringLookup(vocabulary=["a"])
    model = tf.keras.Sequential([tf.keras.Input((), dtype=tf.string), lookup])
    assert model.predict(tf.constant(["a", "b"]), verbose=0).tolist() == [1, 0]
    lookup.set_vocabulary(["b"])
    assert model.predict(tf.constant(["a", "b"]), verbose=0).tolist() == [0, 1]


def test_the_rows_of_a_first_prediction_bind_no_other():
    lookup = keras.layers.StringLookup(vocabulary=["a", "b"])
    model = keras.Sequential([lookup, keras.layers.Embedding(3, 2), keras.layers.Dense(1)])
    one = model.predict(tf.constant(["a"]), verbose=0)
    np.testing.assert_allclose(model.predict(tf.constant(["a", "b", "z"]), verbose=0)[:1], one, atol=1e-6)


@pytest.mark.parametrize("kind", ["U", "S", "O"])
def test_arrays_of_strings_of_numpy_are_inputs(kind):
    text, number = keras.Input((1,), dtype="string"), keras.Input((1,))
    lookup = keras.layers.StringLookup(vocabulary=["a", "bbb"], output_mode="one_hot")
    model = keras.Model([text, number], keras.layers.Dense(1)(keras.layers.Concatenate()([lookup(text), number])))
    model.compile("sgd", "mse")
    x = [np.array([["a"], ["bbb"]]).astype(kind), np.ones((2, 1))]
    assert np.isfinite(model.fit(x, np.ones(2), verbose=0).history["loss"]).all()
    assert model.predict(x, verbose=0).shape == (2, 1) and np.isfinite(model.evaluate(x, np.ones(2), verbose=0))


def test_steps_take_hashes_of_numbers():
    first, second = keras.Input((1,), dtype="int64"), keras.Input((1,), dtype="int64")
    crossed = keras.layers.HashedCrossing(7, output_mode="one_hot")((first, second))
    hashed = keras.layers.Flatten()(keras.layers.Embedding(5, 2)(keras.layers.Hashing(5)(first)))
    model = keras.Model([first, second], keras.layers.Dense(1)(keras.layers.Concatenate()([crossed, hashed])))
    model.compile("sgd", "mse")
    x = [np.array([[3], [4]]), np.array([[5], [6]])]
    wanted = model([tf.constant(part) for part in x])
    np.testing.assert_allclose(model.predict(x, verbose=0), wanted, atol=1e-6)
    model.fit(x, np.ones(2), verbose=0)


def test_a_model_takes_sparse_tensors():
    dense = keras.layers.Dense(3)
    inputs = keras.Input((4,), sparse=True)
    model = keras.Model(inputs, dense(inputs))
    x = tf.sparse.from_dense([[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    np.testing.assert_allclose(model(x), dense(tf.sparse.to_dense(x)), atol=1e-6)


def test_a_model_of_texts_takes_one_example_as_map_has_it_before_batch():
    words = keras.Input((3,), dtype="string", name="words")
    stage = keras.Model({"words": words}, keras.layers.StringLookup(vocabulary=["a", "b", "c"])(words))
    rows = [["c", "a", "?"], ["b", "b", "a"]]
    data = tf.data.Dataset.from_tensor_slices(rows)
    ids = data.map(lambda words: stage({"words": words})).batch(2)
    assert next(iter(ids)).numpy().tolist() == [[3, 1, 0], [2, 2, 1]]
    assert stage({"words": tf.constant(rows)}).numpy().tolist() == [[3, 1, 0], [2, 2, 1]]
    for wrong in (["a", "b"], [[["a", "b", "c"]]]):
        with pytest.raises(ValueError, match="ncompatible"):
            stage({"words": tf.constant(wrong)})
