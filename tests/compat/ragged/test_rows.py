"""Random ragged tensors: they come back as what they were made of, and every row is what NumPy and Python make of it."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tfdist_jax.compat.tensorflow as tf

numbers = st.integers(-9, 9)
matrices = st.lists(st.lists(numbers, max_size=5), min_size=1, max_size=6)
deep = st.lists(st.lists(st.lists(numbers, max_size=3), max_size=3), min_size=1, max_size=4)
keys = st.one_of(st.none(), st.integers(-7, 7))
slices = st.builds(slice, keys, keys, st.sampled_from([None, 1, 2, 3, -1, -2]))
quick = settings(deadline=None, max_examples=60)


def make(rows, ragged_rank=1):
    return tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=ragged_rank)


@quick
@given(matrices)
def test_rows_come_back_from_every_form(rows):
    ragged = make(rows)
    assert ragged.to_list() == rows
    assert [row.numpy().tolist() for row in ragged] == rows
    forms = [
        tf.RaggedTensor.from_row_splits(ragged.values, ragged.row_splits),
        tf.RaggedTensor.from_row_lengths(ragged.values, ragged.row_lengths()),
        tf.RaggedTensor.from_row_starts(ragged.values, ragged.row_starts()),
        tf.RaggedTensor.from_row_limits(ragged.values, ragged.row_limits()),
        tf.RaggedTensor.from_value_rowids(ragged.values, ragged.value_rowids(), ragged.nrows()),
        tf.RaggedTensor.from_tensor(ragged.to_tensor(99), padding=99),
        tf.RaggedTensor.from_tensor(ragged.to_tensor(), lengths=ragged.row_lengths()),
        tf.RaggedTensor.from_sparse(ragged.to_sparse()),
    ]
    assert [form.to_list() for form in forms] == [rows] * len(forms)


@quick
@given(deep)
def test_deep_rows_come_back(rows):
    ragged = make(rows, 2)
    assert ragged.to_list() == rows
    assert tf.RaggedTensor.from_nested_row_splits(ragged.flat_values, ragged.nested_row_splits).to_list() == rows
    assert ragged.merge_dims(1, 2).to_list() == [list(itertools.chain(*row)) for row in rows]
    assert ragged.merge_dims(0, 1).to_list() == list(itertools.chain(*rows))
    whole = ragged.to_tensor(99).numpy()
    assert [[[n for n in row if n != 99] for row in rows_] for rows_ in whole.tolist()] == [
        row + [[]] * (whole.shape[1] - len(row)) for row in rows
    ]
    sparse = ragged.to_sparse()
    assert [rows[i][j][k] for i, j, k in np.asarray(sparse.indices)] == np.asarray(sparse.values).tolist()


@quick
@given(matrices, slices, slices)
def test_slices_are_those_of_lists(rows, outer, inner):
    assert make(rows)[outer, inner].to_list() == [row[inner] for row in rows[outer]]


@quick
@given(deep, slices, slices, slices)
def test_slices_of_deep_rows_are_those_of_lists(rows, outer, middle, inner):
    found = make(rows, 2)[outer, middle, inner].to_list()
    assert found == [[one[inner] for one in row[middle]] for row in rows[outer]]


@quick
@given(matrices, st.sampled_from(["sum", "prod", "max", "min", "mean"]))
def test_reductions_of_rows_are_those_of_numpy(rows, name):
    ragged = tf.cast(make(rows), tf.float64)
    empty = {"sum": 0.0, "prod": 1.0, "max": tf.float64.min, "min": tf.float64.max, "mean": np.nan}[name]
    wanted = [getattr(np, name)(np.float64(row)) if row else empty for row in rows]
    reduce = getattr(tf, f"reduce_{name}")
    np.testing.assert_allclose(reduce(ragged, axis=1), wanted, rtol=1e-12)
    columns = [[row[i] for row in rows if i < len(row)] for i in range(max(map(len, rows)))]
    np.testing.assert_allclose(
        reduce(ragged, axis=0), [getattr(np, name)(np.float64(column)) for column in columns], rtol=1e-12
    )


@quick
@given(deep)
def test_sums_of_deep_rows_are_those_of_each(rows):
    ragged = make(rows, 2)
    assert tf.reduce_sum(ragged, 2).to_list() == [[sum(one) for one in row] for row in rows]
    wanted = [[sum(entries) for entries in map(_present, itertools.zip_longest(*row))] for row in rows]
    assert tf.reduce_sum(ragged, 1).to_list() == wanted
    assert np.asarray(tf.reduce_sum(ragged, [1, 2])).tolist() == [sum(itertools.chain(*row)) for row in rows]


def _present(entries):
    return [entry for entry in entries if entry is not None]


@quick
@given(matrices, st.data())
def test_operators_work_on_each_value(rows, data):
    ragged, column = make(rows), [data.draw(numbers) for _ in rows]
    assert (ragged + np.int32(column)[:, None]).to_list() == [
        [n + c for n in row] for row, c in zip(rows, column, strict=True)
    ]
    assert (ragged * ragged).to_list() == [[n * n for n in row] for row in rows]
    assert (ragged > 0).to_list() == [[n > 0 for n in row] for row in rows]
    assert tf.ragged.boolean_mask(ragged, ragged > 0).to_list() == [[n for n in row if n > 0] for row in rows]


@quick
@given(matrices, st.data())
def test_rows_are_put_together_and_taken(rows, data):
    others = [data.draw(st.lists(numbers, max_size=4)) for _ in rows]
    one, two = make(rows), make(others)
    assert tf.concat([one, two], 0).to_list() == rows + others
    assert tf.concat([one, two, one], 1).to_list() == [a + b + a for a, b in zip(rows, others, strict=True)]
    assert tf.stack([one, two], 0).to_list() == [rows, others]
    assert tf.stack([one, two], 1).to_list() == [[a, b] for a, b in zip(rows, others, strict=True)]
    index = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5))
    assert tf.gather(one, np.int32(index)).to_list() == [rows[i] for i in index]
    assert tf.reverse(one, [0, 1]).to_list() == [row[::-1] for row in rows[::-1]]
    assert tf.tile(one, [2, 3]).to_list() == [row * 3 for row in rows * 2]


@quick
@given(matrices, st.integers(1, 4))
def test_datasets_hand_rows_on(rows, size):
    dataset = tf.data.Dataset.from_tensor_slices(make(rows))
    assert [row.numpy().tolist() for row in dataset] == rows
    batches = [batch.to_list() for batch in dataset.batch(size)]
    assert batches == [rows[i : i + size] for i in range(0, len(rows), size)]
    assert [row.numpy().tolist() for row in dataset.batch(size).unbatch()] == rows


def test_gradients_go_through_rows():
    values = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0])

    def loss(values):
        ragged = tf.RaggedTensor.from_row_lengths(values, [2, 0, 3])
        parts = [
            tf.reduce_sum(ragged[:, ::-1] * [[1.0], [2.0], [3.0]], axis=1),
            tf.reduce_sum(tf.concat([ragged, ragged], 1).to_tensor(7.0) ** 2, axis=1),
            tf.reduce_sum(tf.gather(ragged, [2, 0, 0]).to_tensor(), axis=1),
            tf.reduce_max(ragged, axis=1)[::2][:1] * tf.reduce_sum(tf.nn.softmax(ragged)[2] * values[2:]),
        ]
        return tf.reduce_sum(tf.concat([tf.boolean_mask(part, tf.math.is_finite(part)) for part in parts], 0))

    with tf.GradientTape() as tape:
        tape.watch(values)
        found = loss(values)
    step = 1e-2
    shifts = step * np.eye(5, dtype=np.float32)
    wanted = [(float(loss(values + shift)) - float(loss(values - shift))) / (2 * step) for shift in shifts]
    # Differences of float32 numbers over two hundredths.
    np.testing.assert_allclose(tape.gradient(found, values), wanted, rtol=2e-3, atol=2e-2)


def test_a_function_with_ragged_arguments_runs_as_python_and_says_so_once(caplog):
    @tf.function
    def double(x):
        return x * 2

    assert double(make([[1], []])).to_list() == [[2], []]
    assert double(make([[1, 2]])).to_list() == [[2, 4]]
    assert caplog.text.count("ragged tensor") == 1 and "to_tensor()" in caplog.text


def test_a_function_of_tensors_may_hold_ragged_ones_and_is_compiled(caplog):
    traces = []

    @tf.function
    def sums(values):
        traces.append(values)
        return tf.reduce_sum(tf.RaggedTensor.from_row_lengths(values, [2, 0, 1]) + 1.0, axis=1)

    for _ in range(2):
        assert sums(tf.constant([1.0, 2.0, 3.0])).numpy().tolist() == [5.0, 0.0, 4.0]
    assert len(traces) == 1 and not caplog.text


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: tf.transpose(x), "to_tensor()"),
        (lambda x: tf.linalg.matmul(x, x), "to_tensor()"),
        (lambda x: tf.shape(x), "bounding_shape()"),
        (lambda x: x[:, 0], "x[:, :1]"),
        (lambda x: x + tf.ragged.constant([[1], [2], [3]]), "lengths are [2, 0, 1] and [1, 1, 1]"),
        (lambda x: tf.RaggedTensor.from_row_splits([1, 2], [0, 3]), "wanted as many values as the rows hold, 3, got 2"),
        (lambda x: tf.RaggedTensor.from_row_lengths([1, 2], [3, -1]), "wanted row_lengths >= 0, got [3, -1]"),
        (lambda x: tf.RaggedTensor.from_uniform_row_length([1, 2, 3], 2), "must equal nvals=3"),
        (lambda x: tf.gather(x, [0, 7]), "indices[1] = 7 is not in [0, 3)"),
        (lambda x: tf.gather_nd(x, [[0, 0], [1, 0]]), "indices[1] = 0 is not in [0, 0)"),
        (lambda x: tf.cumsum(x, 0), "to_tensor()"),
    ],
)
def test_errors_say_what_was_wanted_and_what_came(call, said):
    with pytest.raises((ValueError, NotImplementedError, tf.errors.InvalidArgumentError)) as raised:
        call(make([[1, 2], [], [3]]))
    assert said in str(raised.value)


def test_batches_of_sparse_tensors_are_taken_apart():
    rows = tf.sparse.from_dense([[1, 0], [0, 2], [3, 3]])
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(2).unbatch()
    assert dataset.element_spec == tf.SparseTensorSpec([2], tf.int32)
    assert [tf.sparse.to_dense(row).numpy().tolist() for row in dataset] == [[1, 0], [0, 2], [3, 3]]


def test_rows_of_a_feature_must_hold_its_values():
    make = lambda values: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    features = tf.train.Features(feature={"n": make([1, 2, 3]), "lengths": make([1, 1])})
    record = tf.train.Example(features=features).SerializeToString()
    wanted = tf.io.RaggedFeature(tf.int64, partitions=[tf.io.RaggedFeature.RowLengths("lengths")])
    with pytest.raises(tf.errors.InvalidArgumentError, match="rows hold 2 values, but there are 3"):
        tf.io.parse_example([record], {"n": wanted})


def test_programs_of_devices_ask_for_rows_that_are_filled_up():
    dataset = tf.data.Dataset.from_tensor_slices((tf.cast(make([[1, 2], [3]]), tf.float32), [0.0, 1.0])).batch(2)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    strategy = tf.distribute.MirroredStrategy()
    calls = [
        lambda: model.fit(dataset, verbose=0),
        lambda: model(make([[1]])),
        lambda: tf.keras.layers.Embedding(3, 2)(make([[1]])),
        lambda: list(strategy.experimental_distribute_dataset(dataset)),
        lambda: np.asarray(make([[1]])),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"to_tensor\(\)"):
            call()
    filled = dataset.map(lambda x, y: (x.to_tensor(), y))
    assert len(model.fit(filled, verbose=0).history["loss"]) == 1


def test_operators_of_tensors_and_variables_leave_theirs_to_ragged_ones():
    ragged = tf.ragged.constant([[1.0, 2.0], [3.0]])
    for other in (tf.constant(2.0), np.float32(2.0), tf.Variable(2.0), 2.0, np.full((2, 1), 2.0, np.float32)):
        assert (other * ragged).to_list() == (ragged * other).to_list() == [[2.0, 4.0], [6.0]]
        assert (other - ragged).to_list() == [[1.0, 0.0], [-1.0]]
        assert (other >= ragged).to_list() == [[True, True], [False]]
    texts = tf.ragged.constant([["x"], ["y", "z"]])
    assert (tf.constant([["a"], ["b"]]) + texts).to_list() == [[b"ax"], [b"by", b"bz"]]
    assert (texts + "!").to_list() == [[b"x!"], [b"y!", b"z!"]]
