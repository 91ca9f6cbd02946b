"""`tf.keras.layers.DenseFeatures`: its vectors beside hand-computed ones; models that begin with it train on dictionaries with texts."""

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

fc = tf.feature_column
THAL = ["fixed", "normal", "reversible"]
ROWS = 44
draw = np.random.default_rng(0)
DATA = {
    "age": draw.integers(20, 70, ROWS),
    "chol": draw.normal(size=ROWS).astype("float32"),
    "thal": draw.choice(THAL, ROWS).astype(object),
}
LABELS = ((DATA["thal"] == "normal") & (DATA["age"] > 40)).astype("float32")
age = fc.numeric_column("age")
ages = fc.bucketized_column(age, [30, 40, 50])
thal = fc.categorical_column_with_vocabulary_list("thal", THAL)
chol = fc.numeric_column("chol", normalizer_fn=lambda x: (x - 1) / 2)
COLUMNS = [
    chol,
    ages,
    fc.embedding_column(thal, 4),
    fc.indicator_column(thal),
    fc.indicator_column(fc.crossed_column([ages, "thal"], 20)),
]
LOSS = tf.keras.losses.BinaryCrossentropy(from_logits=True)


def dataset(batch=12):
    return tf.data.Dataset.from_tensor_slices((DATA, LABELS)).batch(batch)


def sequential(columns=COLUMNS):
    return tf.keras.Sequential([tf.keras.layers.DenseFeatures(columns), tf.keras.layers.Dense(1)])


def functional():
    inputs = {
        "age": tf.keras.Input((1,), name="age", dtype="int64"),
        "chol": tf.keras.Input((1,), name="chol"),
        "thal": tf.keras.Input((1,), name="thal", dtype="string"),
    }
    vectors = tf.keras.layers.DenseFeatures(COLUMNS)(inputs)
    return tf.keras.Model(list(inputs.values()), tf.keras.layers.Dense(1)(vectors))


class Subclass(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.features = tf.keras.layers.DenseFeatures(COLUMNS)
        self.dense = tf.keras.layers.Dense(1)

    def call(self, features):
        return self.dense(self.features(features)) + 0 * tf.reshape(features["chol"], (-1, 1))


def expected(layer, data):
    """Return what the layer has to give, by NumPy; but for crosses, which come first behind the intervals."""
    (table,) = layer.get_weights()
    ids = np.array([THAL.index(text) for text in data["thal"]])
    intervals = np.eye(4)[np.searchsorted([30, 40, 50], data["age"], side="right")]
    return {
        "age_bucketized": intervals,
        "chol": (data["chol"][:, None] - 1) / 2,
        "thal_embedding": table[ids],
        "thal_indicator": np.eye(3)[ids],
    }


def test_vectors_are_those_of_the_columns_in_the_order_of_their_names():
    layer, by_column = tf.keras.layers.DenseFeatures(COLUMNS), {}
    result = layer(DATA, cols_to_output_tensors=by_column)
    parts = {column.name: np.asarray(part) for column, part in by_column.items()}
    assert list(parts) == [
        "age_bucketized",
        "age_bucketized_X_thal_indicator",
        "chol",
        "thal_embedding",
        "thal_indicator",
    ]
    np.testing.assert_allclose(result, np.concatenate(list(parts.values()), axis=1))
    for name, wanted in expected(layer, DATA).items():
        np.testing.assert_allclose(parts[name], wanted, rtol=1e-6)
    crosses = parts["age_bucketized_X_thal_indicator"]
    assert crosses.shape == (ROWS, 20) and (crosses.sum(axis=1) == 1).all()


def test_variables_have_the_names_of_their_columns():
    layer = tf.keras.layers.DenseFeatures(fc.embedding_column(thal, 4), name="features")
    layer(DATA)
    assert [weight.path for weight in layer.weights] == ["features/thal_embedding/embedding_weights"]
    frozen = tf.keras.layers.DenseFeatures([fc.embedding_column(thal, 4, trainable=False)])
    frozen(DATA)
    assert (len(frozen.trainable_weights), len(frozen.non_trainable_weights)) == (0, 1)


def test_first_values_are_of_the_checkpoint_that_a_column_names(tmp_path):
    table = np.arange(12.0, dtype="float32").reshape(3, 4)
    path = tf.train.Checkpoint(table=tf.Variable(table)).save(str(tmp_path / "checkpoint"))
    name = next(name for name, _ in tf.train.list_variables(path) if "table" in name)
    named = {"ckpt_to_load_from": path, "tensor_name_in_ckpt": name}
    layer = tf.keras.layers.DenseFeatures(fc.embedding_column(thal, 4, **named))
    np.testing.assert_array_equal(layer({"thal": ["normal", "unheard of"]}), [table[1], np.zeros(4)])
    other = tf.keras.layers.DenseFeatures(fc.embedding_column(thal, 5, **named))
    with pytest.raises(ValueError, match="has shape"):
        other({"thal": ["normal"]})


@pytest.mark.parametrize("make", [sequential, functional, Subclass])
def test_a_model_trains_evaluates_and_predicts_on_dictionaries_with_texts(make):
    tf.keras.utils.set_random_seed(0)
    model = make()
    model.compile(tf.keras.optimizers.Adam(0.05), LOSS)
    losses = model.fit(dataset(), epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 1.5
    layer = next(layer for layer in model._flatten_layers() if isinstance(layer, tf.keras.layers.DenseFeatures))
    before = layer.get_weights()[0]
    model.fit(dataset(), verbose=0)
    assert np.abs(layer.get_weights()[0] - before).min() > 0
    logits = model.predict(dataset(), verbose=0)
    given = {key: value[:, None] for key, value in DATA.items()} if make is functional else DATA
    np.testing.assert_allclose(logits, model(given), rtol=1e-4, atol=1e-5)
    wanted = float(LOSS(LABELS[:, None], logits))
    assert model.evaluate(dataset(ROWS), verbose=0) == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_allclose(model.predict_on_batch(given), logits, rtol=1e-4, atol=1e-5)
    model.train_on_batch(given, LABELS)


def test_training_is_what_it_is_on_vectors():
    tf.keras.utils.set_random_seed(0)
    model = sequential([chol, ages, fc.indicator_column(thal)])
    model.compile("sgd", LOSS)
    model.predict(dataset(), verbose=0)
    plain = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
    plain.compile("sgd", LOSS)
    plain.set_weights(model.get_weights())
    vectors = np.asarray(model.layers[0](DATA))
    histories = [
        model.fit(dataset(), epochs=3, verbose=0).history,
        plain.fit(vectors, LABELS, batch_size=12, epochs=3, shuffle=False, verbose=0).history,
    ]
    np.testing.assert_allclose(histories[0]["loss"], histories[1]["loss"], rtol=1e-5)


def test_arrays_of_texts_may_be_given_to_fit():
    model = sequential()
    model.compile("sgd", LOSS, metrics=["accuracy"])
    history = model.fit(DATA, LABELS, validation_split=0.25, verbose=0).history
    assert {"loss", "val_loss", "accuracy"} <= set(history)


def test_several_replicas_train_as_one():
    results = []
    for strategy in (tf.distribute.get_strategy(), tf.distribute.MirroredStrategy([f"cpu:{i}" for i in range(4)])):
        tf.keras.utils.set_random_seed(1)
        with strategy.scope():
            model = sequential()
            model.compile("adam", LOSS)
        losses = model.fit(dataset(), epochs=2, verbose=0).history["loss"]
        results.append([losses, model.predict(dataset(10), verbose=0), model.layers[0].get_weights()[0]])
    for one, several in zip(*results, strict=True):
        np.testing.assert_allclose(one, several, rtol=1e-4, atol=1e-6)


def step_of(model, optimizer):
    def step(features, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels[:, None], model(features)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


def test_own_loops_train_alike_compiled_and_not():
    losses = []
    for compiled in (tf.function, lambda step: step):
        tf.keras.utils.set_random_seed(2)
        model = sequential()
        model(DATA)
        step = compiled(step_of(model, tf.keras.optimizers.Adam(0.05)))
        losses.append([float(step(features, labels)) for _ in range(3) for features, labels in dataset()])
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.parametrize("compiled", [tf.function, lambda run: run], ids=["compiled", "eager"])
def test_own_loops_train_under_a_strategy(compiled):
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    tf.keras.utils.set_random_seed(2)
    with strategy.scope():
        model = sequential()
        model(DATA)
        step = step_of(model, tf.keras.optimizers.Adam(0.05))
    run = compiled(lambda batch: strategy.reduce("MEAN", strategy.run(step, args=batch), axis=None))
    batches = strategy.experimental_distribute_dataset(dataset(22))
    losses = [float(run(batch)) for _ in range(6) for batch in batches]
    assert losses[-1] < losses[0]


def test_gradient_of_the_table_by_hand():
    layer = tf.keras.layers.DenseFeatures(fc.embedding_column(thal, 2, combiner="mean"))
    features = {"thal": [["normal", "normal"], ["fixed", ""], ["", ""]]}
    layer(features)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(features) * [[1.0], [10.0], [100.0]])
    wanted = [[10, 10], [1, 1], [0, 0]]
    np.testing.assert_allclose(tf.convert_to_tensor(tape.gradient(total, layer.trainable_weights[0])), wanted)


def test_sparse_features_of_serialized_examples_train():
    words = fc.categorical_column_with_hash_bucket("words", 20)
    columns = [fc.embedding_column(words, 3), fc.indicator_column(fc.weighted_categorical_column(words, "weights"))]
    spec = {**fc.make_parse_example_spec(columns), "label": tf.io.FixedLenFeature([], tf.float32)}

    def example(i):
        feature = {
            "words": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"w%d" % j for j in range(i % 4)])),
            "weights": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0] * (i % 4))),
            "label": tf.train.Feature(float_list=tf.train.FloatList(value=[float(i % 2)])),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    parsed = tf.data.Dataset.from_tensor_slices([example(i) for i in range(20)]).batch(5)
    parsed = parsed.map(lambda texts: tf.io.parse_example(texts, spec)).map(lambda f: (f, f.pop("label")))
    model = sequential(columns)
    model.compile("sgd", "mse")
    losses = model.fit(parsed, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    first, _ = next(iter(parsed))
    np.testing.assert_allclose(model(first), model.predict(parsed, verbose=0)[:5], rtol=1e-4, atol=1e-6)


def test_models_are_saved_and_loaded(tmp_path):
    columns = COLUMNS[1:]  # Without the function that has no name.
    for number, name in enumerate(["model.keras", "model.h5"]):
        model = sequential(columns)
        model.compile("adam", LOSS)
        model.fit(dataset(), verbose=0)
        model.save(tmp_path / name)
        again = tf.keras.models.load_model(tmp_path / name)
        np.testing.assert_allclose(model.predict(dataset(), verbose=0), again.predict(dataset(), verbose=0), rtol=1e-6)
        if not number:
            assert int(again.optimizer.iterations) == 4
        again.fit(dataset(), verbose=0)
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    other = sequential(columns)
    tf.train.Checkpoint(model=other).restore(path).expect_partial()
    np.testing.assert_allclose(model.predict(dataset(), verbose=0), other.predict(dataset(), verbose=0), rtol=1e-6)


def test_a_function_that_a_column_uses_is_found_among_custom_objects(tmp_path):
    def halve(x):
        return x / 2

    model = sequential([fc.numeric_column("chol", normalizer_fn=halve)])
    model(DATA)
    model.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras", custom_objects={"halve": halve})
    np.testing.assert_allclose(model(DATA), again(DATA))
    with pytest.raises((ValueError, TypeError), match="halve"):
        tf.keras.models.load_model(tmp_path / "model.keras")


def test_a_dataset_may_apply_the_layer():
    layer = tf.keras.layers.DenseFeatures(COLUMNS)
    wanted = np.asarray(layer(DATA))
    mapped = dataset().map(lambda features, label: (layer(features), label))
    np.testing.assert_allclose(np.concatenate([x for x, _ in mapped.as_numpy_iterator()]), wanted, rtol=1e-6)


def test_integers_are_read_by_compiled_functions():
    columns = [
        fc.embedding_column(fc.categorical_column_with_hash_bucket("a", 10, tf.int64), 2),
        fc.indicator_column(fc.categorical_column_with_identity("b", 3, default_value=0)),
        fc.indicator_column(fc.crossed_column(["a", "b"], 10)),
        fc.bucketized_column(fc.numeric_column("a"), [3.0]),
    ]
    features = {"a": tf.range(6, dtype=tf.int64), "b": tf.constant([0, 1, 2, 3, -1, 1], tf.int64)}
    layer = tf.keras.layers.DenseFeatures(columns)
    wanted = np.asarray(layer(features))
    np.testing.assert_allclose(tf.function(lambda x: layer(x))(features), wanted, rtol=1e-6)
    traceable = tf.keras.layers.DenseFeatures([columns[1], columns[3]])
    shifted = tf.function(lambda x: traceable({"a": x["a"] + 1, "b": x["b"] + 1}), jit_compile=True)(features)
    np.testing.assert_allclose(shifted, traceable({key: value + 1 for key, value in features.items()}))


def test_columns_that_do_not_go_together_are_refused():
    layer = tf.keras.layers.DenseFeatures
    with pytest.raises(ValueError, match="wrap a categorical column with an embedding_column or indicator_column"):
        layer([thal])
    with pytest.raises(ValueError, match="wrap a categorical column"):
        layer([fc.sequence_numeric_column("x")])
    with pytest.raises(ValueError, match="must be a FeatureColumn"):
        layer(["age"])
    with pytest.raises(ValueError, match="found dict"):
        layer({"age": age})
    with pytest.raises(ValueError, match="must not be empty"):
        layer([])
    with pytest.raises(ValueError, match="Duplicate feature column name"):
        layer([age, fc.numeric_column("age", shape=2)])
    with pytest.raises(ValueError, match="expected a dictionary"):
        layer(age)(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="Feature age is not in features dictionary"):
        layer(age)({"chol": [1.0]})
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Category 5 of n_embedding is not in \[0, 3\)"):
        layer(fc.embedding_column(fc.categorical_column_with_identity("n", 3), 2))({"n": [5]})


def test_a_step_has_no_texts_but_for_the_layers():
    class Peeking(Subclass):
        def call(self, features):
            return super().call(features) + tf.cast(tf.strings.length(features["thal"]), tf.float32)

    model = Peeking()
    model.compile("sgd", LOSS)
    with pytest.raises(RuntimeError, match="layers of feature columns, which read them before it"):
        model.fit(dataset(), verbose=0)


def test_a_feature_that_a_dataset_lacks_is_named():
    model = sequential()
    model.compile("sgd", LOSS)
    with pytest.raises(ValueError, match="Feature age is not in features dictionary"):
        model.fit(dataset().map(lambda features, label: ({"thal": features["thal"]}, label)), verbose=0)


def test_features_beside_those_of_the_columns_are_left_alone():
    model = sequential()
    model.compile("sgd", LOSS)
    more = dataset().map(lambda features, label: ({**features, "name": features["thal"]}, label))
    assert model.evaluate(more, verbose=0) == pytest.approx(model.evaluate(dataset(), verbose=0))


def test_sequences_and_their_lengths():
    ids = fc.sequence_categorical_column_with_vocabulary_list("words", ["a", "b"])
    layer = tf.keras.experimental.SequenceFeatures([fc.indicator_column(ids), fc.sequence_numeric_column("values")])
    sparse = lambda values: tf.SparseTensor([[0, 0], [0, 1], [2, 0]], values, [3, 2])
    vectors, lengths = layer({"words": sparse(["a", "z", "b"]), "values": sparse([1.0, 2.0, 3.0])})
    wanted = [[[1, 1, 0], [2, 0, 0]], [[0, 0, 0], [0, 0, 0]], [[3, 0, 1], [0, 0, 0]]]
    np.testing.assert_array_equal(vectors, wanted)
    assert lengths.dtype == tf.int64 and lengths.numpy().tolist() == [2, 0, 1]
    with pytest.raises(ValueError, match="SequenceFeatures"):
        tf.keras.layers.DenseFeatures(fc.indicator_column(ids))({"words": sparse(["a", "z", "b"])})
    with pytest.raises(ValueError, match="must be made of sequences"):
        tf.keras.experimental.SequenceFeatures(fc.indicator_column(thal))(DATA)


def test_sequences_train_a_recurrent_model():
    ids = fc.sequence_categorical_column_with_identity("ids", 5)

    class Recurrent(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.features = tf.keras.experimental.SequenceFeatures(fc.embedding_column(ids, 3))
            self.lstm = tf.keras.layers.LSTM(4)
            self.dense = tf.keras.layers.Dense(1)

        def call(self, features):
            vectors, lengths = self.features(features)
            return self.dense(self.lstm(vectors, mask=tf.sequence_mask(lengths, vectors.shape[1])))

    model = Recurrent()
    model.compile("adam", "mse")
    data = {"ids": np.array([[1, 2, -1], [3, -1, -1], [4, 0, 1], [2, 2, 2]])}
    losses = model.fit(data, np.ones(4), epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
