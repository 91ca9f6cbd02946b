"""`tf.data.Dataset`: what the elements are, in which order, how many."""

import threading

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

Dataset = tf.data.Dataset


def elements(dataset):
    return [np.asarray(element).tolist() for element in dataset.as_numpy_iterator()]


def test_slices_are_rows_and_lists_are_tensors():
    x, y = next(iter(Dataset.from_tensor_slices(([[1.0], [2.0]], np.arange(2)))))
    assert (x.numpy().tolist(), int(y)) == ([1.0], 0)
    assert x.dtype == tf.float32
    assert y.dtype == tf.int64


def test_dicts_and_tuples_keep_their_structure():
    dataset = Dataset.from_tensors({"a": [1], "b": (2, 3.0)}).map(lambda d: {"sum": d["a"] + d["b"][0], "rest": d["b"]})
    (element,) = dataset
    assert element["sum"].numpy().tolist() == [3]
    assert isinstance(element["rest"], tuple)


def test_arrays_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"same first dimension, got the shapes \[\(2,\), \(3,\)\]"):
        Dataset.from_tensor_slices((np.ones(2), np.ones(3)))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Dataset.range(7).batch(3), [[0, 1, 2], [3, 4, 5], [6]]),
        (lambda: Dataset.range(7).batch(3, drop_remainder=True), [[0, 1, 2], [3, 4, 5]]),
        (lambda: Dataset.range(3).repeat(2), [0, 1, 2, 0, 1, 2]),
        (lambda: Dataset.range(10).skip(2).take(3), [2, 3, 4]),
        (lambda: Dataset.range(10).shard(3, 1), [1, 4, 7]),
        (lambda: Dataset.range(2, 9, 3), [2, 5, 8]),
        (lambda: Dataset.range(6).filter(lambda x: x % 2 == 0), [0, 2, 4]),
        (lambda: Dataset.range(4).batch(2).unbatch(), [0, 1, 2, 3]),
        (lambda: Dataset.range(2).concatenate(Dataset.range(3)), [0, 1, 0, 1, 2]),
        (lambda: Dataset.range(5).map(lambda x: x * 2).cache().repeat(2).batch(6), [[0, 2, 4, 6, 8, 0], [2, 4, 6, 8]]),
        (lambda: Dataset.range(3).repeat().take(4), [0, 1, 2, 0]),
        (lambda: Dataset.range(0), []),
        (lambda: Dataset.range(3).take(0).repeat(), []),
        (lambda: Dataset.range(4).batch(2).map(lambda b: b.sum()).prefetch(tf.data.AUTOTUNE), [1, 5]),
        (lambda: Dataset.range(3).prefetch(None), [0, 1, 2]),
    ],
)
def test_transformations_give_these_elements(make, expected):
    assert elements(make()) == expected


def test_a_mapped_function_is_traced_once():
    traces = []
    dataset = Dataset.range(100).map(lambda x: traces.append(1) or x + 1)
    assert elements(dataset.batch(100)) == [list(range(1, 101))]
    assert elements(dataset) == list(range(1, 101))
    assert len(traces) == 1


def test_a_mapped_function_that_needs_values_runs_in_python():
    assert elements(Dataset.range(4).map(lambda x: x if int(x) % 2 else -x).batch(4)) == [[0, 1, -2, 3]]


def test_what_a_mapped_function_hands_on_is_not_copied(capsys):
    source = np.arange(6.0).reshape(3, 2)
    dataset = Dataset.from_tensors({"x": source, "y": np.arange(3)})
    (given,) = dataset.as_numpy_iterator()
    swap = lambda row: (row["y"], row["x"], row["y"] + 1, row["x"])
    for rows in (dataset.map(swap), dataset.map(swap).batch(1).unbatch()):
        ((y, x, more, again),) = rows.as_numpy_iterator()
        np.testing.assert_array_equal(x, source)
        np.testing.assert_array_equal(again, source)
        np.testing.assert_array_equal(y, [0, 1, 2])
        np.testing.assert_array_equal(more, [1, 2, 3])
    ((y, x, _, _),) = dataset.map(swap).as_numpy_iterator()
    assert np.shares_memory(x, given["x"])
    assert np.shares_memory(y, given["y"])

    def tell(row):
        tf.print("seen")
        return row

    assert len(list(dataset.repeat(2).map(tell))) == 2
    assert capsys.readouterr().err == "seen\nseen\n"


def test_texts_are_bytes():
    assert list(Dataset.from_tensor_slices(["a", "b"]).map(lambda t: t).as_numpy_iterator()) == [b"a", b"b"]


def test_shuffling_keeps_every_element_and_follows_the_buffer():
    order = elements(Dataset.range(100).shuffle(10, seed=1))
    assert sorted(order) == list(range(100))
    assert order != list(range(100))
    assert all(value < position + 10 for position, value in enumerate(order))


def test_a_seed_repeats_the_orders_and_each_pass_has_its_own():
    first, second = (Dataset.range(50).shuffle(50, seed=3) for _ in range(2))
    passes = [elements(first), elements(first)]
    assert passes[0] != passes[1]
    assert passes == [elements(second), elements(second)]
    fixed = Dataset.range(50).shuffle(50, seed=3, reshuffle_each_iteration=False)
    assert elements(fixed) == elements(fixed)


def test_a_buffer_of_unknown_size_shuffles_all():
    dataset = Dataset.range(2000).filter(lambda x: x >= 0)
    order = elements(dataset.shuffle(dataset.cardinality(), seed=1))
    assert sorted(order) == list(range(2000))
    assert max(value - position for position, value in enumerate(order)) > 1000
    assert sorted(elements(Dataset.range(9).shuffle(tf.data.UNKNOWN_CARDINALITY))) == list(range(9))


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(("rerandomize", "are_same"), [(None, True), (False, True), (True, False)])
def test_samples_are_the_same_in_each_iteration_unless_rerandomized(rerandomize, are_same, seed):
    parts = [Dataset.range(100), Dataset.range(100, 200)]
    dataset = Dataset.sample_from_datasets(parts, seed=seed, rerandomize_each_iteration=rerandomize)
    assert (elements(dataset) == elements(dataset)) is are_same
    twice = elements(dataset.repeat(2))
    assert (twice[:200] == twice[200:]) is are_same


def with_policy(policy):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return Dataset.range(3).with_options(options)


@pytest.mark.parametrize(
    ("make", "policy"),
    [
        (lambda off, data: Dataset.zip((off, data)), "DATA"),
        (lambda off, data: Dataset.zip(data, off), "OFF"),
        (lambda off, data: Dataset.zip(off, Dataset.range(3)), "OFF"),
        (lambda off, data: Dataset.zip((off, (data, Dataset.range(2)))), "DATA"),
        (lambda off, data: Dataset.zip({"b": off, "a": data}), "OFF"),
        (lambda off, data: off.enumerate(), "OFF"),
        (lambda off, data: Dataset.sample_from_datasets([Dataset.range(3), off]), "OFF"),
        (lambda off, data: Dataset.sample_from_datasets([data, off]), "OFF"),
        (lambda off, data: Dataset.choose_from_datasets([off, data], Dataset.range(2)), "DATA"),
        (lambda off, data: Dataset.choose_from_datasets([data], off), "DATA"),
        (lambda off, data: Dataset.choose_from_datasets([Dataset.range(3)] * 2, off), "OFF"),
        (lambda off, data: off.concatenate(data), "DATA"),
        (lambda off, data: Dataset.range(3).concatenate(off), "OFF"),
        (lambda off, data: off.concatenate(Dataset.range(3)), "OFF"),
    ],
)
def test_options_of_several_datasets_are_merged(make, policy):
    policies = tf.data.experimental.AutoShardPolicy
    dataset = make(with_policy(policies.OFF), with_policy(policies.DATA))
    assert dataset.options().experimental_distribute.auto_shard_policy == policies[policy]


def test_a_cached_shuffle_keeps_its_order():
    dataset = Dataset.range(50).shuffle(50).cache()
    assert elements(dataset.batch(7)) == elements(dataset.batch(7))


def test_cardinalities_are_tensorflows():
    assert int(Dataset.range(3).repeat().cardinality()) == tf.data.INFINITE_CARDINALITY
    assert int(Dataset.range(3).filter(lambda x: x > 1).cardinality()) == tf.data.UNKNOWN_CARDINALITY
    assert len(Dataset.range(10).batch(4)) == 3
    with pytest.raises(TypeError, match="infinite"):
        len(Dataset.range(3).repeat())
    with pytest.raises(TypeError, match="unknown"):
        len(Dataset.range(3).filter(lambda x: x > 1))


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: Dataset.range(10).batch(3, drop_remainder=True), 9),
        (lambda: Dataset.range(10).batch(3), tf.data.UNKNOWN_CARDINALITY),
        (lambda: Dataset.range(10).shuffle(10).batch(3, drop_remainder=True).skip(1).repeat(2).prefetch(1), 12),
        (lambda: Dataset.range(10).batch(3, drop_remainder=True).repeat(), tf.data.INFINITE_CARDINALITY),
        (
            lambda: Dataset.range(10).batch(3, drop_remainder=True).filter(lambda x: x[0] > 0),
            tf.data.UNKNOWN_CARDINALITY,
        ),
        (lambda: Dataset.from_tensor_slices((np.ones((3, 4)), np.ones((3, 4, 2)))), 12),
    ],
)
def test_batches_of_a_known_size_say_how_many_rows_they_have_together(make, count):
    dataset = make().unbatch()
    assert int(dataset.cardinality()) == count
    assert count < 0 or len(list(dataset)) == len(list(dataset.enumerate())) == count


def test_specs_say_what_batches_look_like():
    dataset = Dataset.from_tensor_slices((np.ones((5, 2), "f4"), np.arange(5)))
    assert dataset.batch(2).element_spec == (tf.TensorSpec((None, 2), tf.float32), tf.TensorSpec((None,), tf.int64))
    assert dataset.batch(2, drop_remainder=True).element_spec[1] == tf.TensorSpec((2,), tf.int64)


def test_generators_are_called_for_each_pass():
    calls = []

    def generate():
        calls.append(1)
        yield from ((i, [float(i)]) for i in range(3))

    spec = (tf.TensorSpec((), tf.int32), tf.TensorSpec((1,), tf.float32))
    dataset = Dataset.from_generator(generate, output_signature=spec)
    assert [int(i) for i, _ in dataset] == [0, 1, 2]
    assert [float(x[0]) for _, x in dataset] == [0, 1, 2]
    assert len(calls) == 2


def test_arguments_of_generators_are_numpy_values_of_when_the_dataset_was_made():
    seen, array, variable = [], np.array([1, 2]), tf.Variable(2.0)
    given = ("text", 3, 2.5, True, [1, 2], (1.0,), ["a", "b"], tf.constant([1.0]), np.float64(2), array, variable)

    def generate(*args):
        seen.extend((type(arg).__name__, str(getattr(arg, "dtype", "")), np.asarray(arg).tolist()) for arg in args)
        yield 1

    dataset = Dataset.from_generator(generate, args=given, output_signature=tf.TensorSpec((), tf.int32))
    array[0] = 9
    variable.assign(9.0)
    assert elements(dataset) == [1]
    assert seen == [
        ("bytes", "", b"text"),
        ("int32", "int32", 3),
        ("float32", "float32", 2.5),
        ("bool", "bool", True),
        ("ndarray", "int32", [1, 2]),
        ("ndarray", "float32", [1.0]),
        ("ndarray", "object", [b"a", b"b"]),
        ("ndarray", "float32", [1.0]),
        ("float64", "float64", 2.0),
        ("ndarray", "int64", [1, 2]),
        ("float32", "float32", 2.0),
    ]


def yielded(value, spec):
    (element,) = Dataset.from_generator(lambda: iter([value]), output_signature=spec)
    return tf.nest.map_structure(lambda tensor: np.asarray(tensor).tolist(), element)


INTEGER = tf.TensorSpec((), tf.int32)
PAIR = tf.TensorSpec((2,), tf.int32)
NUMBER = tf.TensorSpec((), tf.float32)


@pytest.mark.parametrize(
    ("value", "spec", "expected"),
    [
        (3.7, INTEGER, 3),
        ("7", INTEGER, 7),
        (2**40, INTEGER, 0),
        (300, tf.TensorSpec((), tf.uint8), 44),
        ("1.5", NUMBER, 1.5),
        (b"1.5", NUMBER, 1.5),
        (2, tf.TensorSpec((), tf.bool), True),
        (tf.constant(2.5, tf.float64), NUMBER, 2.5),
        (tf.constant([1.5, 2.5]), PAIR, [1, 2]),
        ([tf.constant(1), tf.constant(2)], PAIR, [1, 2]),
        (tf.Variable(1.5), INTEGER, 1),
        ({"a": 1, "b": 2.5}, {"a": INTEGER, "b": INTEGER}, {"a": 1, "b": 2}),
        ("é", tf.TensorSpec((), tf.string), "é".encode()),
    ],
)
def test_what_generators_yield_is_converted(value, spec, expected):
    assert yielded(value, spec) == expected


@pytest.mark.parametrize(
    ("value", "spec", "message"),
    [
        ([1, 2, 3], PAIR, r"yielded an element of shape \(3,\) where an element of shape \(2,\) was expected"),
        ([[1]], tf.TensorSpec((None,), tf.int32), r"of shape \(1, 1\) where an element of shape \(None,\)"),
        (1, tf.TensorSpec((1,), tf.int32), r"of shape \(\) where"),
        ("x", NUMBER, "could not be converted to the expected type. The expected type was float32, .* element was x"),
        (None, INTEGER, "could not be converted"),
        ([[1], [2, 3]], tf.TensorSpec(None, tf.int32), "could not be converted"),
        ((1, 2, 3), (INTEGER, INTEGER), "did not match the expected structure"),
        ((1,), (INTEGER, INTEGER), "did not match the expected structure"),
        ({"a": 1}, {"a": INTEGER, "b": INTEGER}, "did not match the expected structure"),
        (1, (INTEGER, INTEGER), "did not match the expected structure"),
    ],
)
def test_what_generators_yield_must_fit(value, spec, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        yielded(value, spec)


def test_an_iteration_goes_on_after_an_element_that_does_not_fit():
    iterator = iter(Dataset.from_generator(lambda: iter([[1, 2], [1], [3, 4]]), output_signature=PAIR))
    assert next(iterator).numpy().tolist() == [1, 2]
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(iterator)
    assert next(iterator).numpy().tolist() == [3, 4]


def test_generators_may_go_on_changing_what_they_have_yielded():
    def generate():
        array = np.zeros(2, "f4")
        for i in range(3):
            array[:] = i
            yield array

    dataset = Dataset.from_generator(generate, output_signature=tf.TensorSpec((2,), tf.float32))
    assert elements(dataset.batch(3)) == [[[0, 0], [1, 1], [2, 2]]]


def test_an_error_while_prefetching_reaches_the_consumer_and_no_thread_is_left():
    def generate():
        yield 1
        raise KeyError("mine")

    dataset = Dataset.from_generator(generate, output_signature=tf.TensorSpec((), tf.int32)).prefetch(4)
    iterator = iter(dataset)
    assert int(next(iterator)) == 1
    with pytest.raises(KeyError, match="mine"):
        next(iterator)
    abandoned = iter(Dataset.range(1000).prefetch(2))
    next(abandoned)
    del abandoned, iterator
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]


def test_get_next_ends_with_tensorflows_error():
    iterator = iter(Dataset.range(1))
    assert int(iterator.get_next()) == 0
    with pytest.raises(tf.errors.OutOfRangeError):
        iterator.get_next()


def test_elements_of_different_shapes_cannot_be_batched():
    ragged = Dataset.from_generator(lambda: iter([[1], [1, 2]]), output_signature=tf.TensorSpec(None, tf.int32))
    with pytest.raises(tf.errors.InvalidArgumentError, match="different shapes"):
        elements(ragged.batch(2))


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_size_below_one_is_refused(size):
    with pytest.raises(tf.errors.InvalidArgumentError, match="`batch_size` must be 1 or more"):
        Dataset.range(3).batch(size)


def test_whole_batches_and_single_elements_are_mapped_alike():
    random = np.random.RandomState(0)
    dataset = Dataset.from_tensor_slices((random.rand(10, 3).astype("f4"), random.randint(0, 9, 10)))
    mapped = dataset.map(lambda x, y: (tf.reduce_sum(x) / 3, tf.one_hot(y, 9)))
    whole = next(mapped.batch(10).as_numpy_iterator())
    single = list(mapped.as_numpy_iterator())
    np.testing.assert_allclose(whole[0], [x for x, _ in single], rtol=1e-6)
    np.testing.assert_array_equal(whole[1], [y for _, y in single])


def test_a_cache_keeps_what_has_been_made_and_makes_only_what_is_missing():
    made = []
    plan, rows = Dataset.range(40)._plan, Dataset.range(40)._plan
    vars(rows).update(get=lambda p: made.extend(p.tolist()) or plan.get(p), at_once=lambda: 8)
    cached = Dataset(rows).cache()
    assert elements(cached.batch(7)) == elements(cached.batch(7))
    assert sorted(made) == list(range(40))
    made.clear()
    cached = Dataset(rows).cache()
    assert elements(cached.shard(4, 1)) == elements(cached.shard(4, 1)) == list(range(1, 40, 4))
    assert elements(cached) == list(range(40))
    assert sorted(made) == list(range(40))


def test_a_pass_that_is_left_early_is_not_kept():
    cached = Dataset.range(10).shuffle(10, seed=1).cache()
    next(cached.as_numpy_iterator())
    assert sorted(elements(cached)) == list(range(10))
    assert elements(cached) == elements(cached)


def test_ignored_errors_are_told_if_it_is_wanted_or_if_nothing_is_left(caplog):
    uneven = Dataset.range(4).map(lambda x: tf.debugging.assert_equal(x % 2, tf.constant(1, tf.int64)) or x)
    assert elements(uneven.ignore_errors()) == [1, 3]
    assert not caplog.records
    assert elements(uneven.ignore_errors(log_warning=True)) == [1, 3]
    assert len(caplog.records) == 2
    caplog.clear()
    # TensorFlow refuses this function when `map` is called.
    assert elements(Dataset.range(3).map(lambda x: x + 1.5).ignore_errors()) == []
    assert "no element at all could be made: cannot compute add" in caplog.text


def test_what_is_not_there_names_what_to_use():
    with pytest.raises(NotImplementedError, match="Compare the elements"):
        Dataset.range(3).fingerprint()


@pytest.mark.parametrize(
    ("make", "numbers"),
    [
        (lambda n: tf.data.Dataset.range(n), [0, 1, 2]),
        (lambda n: tf.data.Dataset.from_tensor_slices(n * tf.constant([1, 2], tf.int64)), [3, 6]),
        (lambda n: tf.data.Dataset.range(5).skip(n), [3, 4]),
        (lambda n: tf.data.Dataset.range(4).batch(n).map(tf.reduce_sum), [3, 3]),
        (lambda n: tf.data.Dataset.range(1).shuffle(n).repeat(n), [0, 0, 0]),
    ],
    ids=["range", "slices", "skip", "batch", "shuffle"],
)
def test_a_function_may_make_a_dataset_of_its_tensors(make, numbers):
    number = tf.constant(3, tf.int64)
    assert [int(element) for element in tf.function(make)(number)] == numbers
    total = tf.function(lambda n: make(n).reduce(tf.constant(0, tf.int64), lambda before, element: before + element))
    assert int(total(number)) == sum(numbers)


def test_parts_of_a_batch_with_other_numbers_of_rows_cannot_be_taken_apart():
    with pytest.raises(ValueError, match=r"matching leading dimension. Encountered both 3 and 4"):
        list(Dataset.from_tensors((np.ones(3), np.ones(4))).unbatch())


def test_a_function_that_gives_no_dataset_is_an_error_that_says_what_it_gave():
    with pytest.raises(TypeError, match=r"must return a `Dataset` object. Got a tensor"):
        list(Dataset.range(2).interleave(lambda x: x))


def test_an_optional_has_the_type_of_its_value():
    optional = tf.experimental.Optional.from_value({"a": 1, "b": [2.0]})
    assert optional.element_spec == {"a": tf.TensorSpec([], tf.int32), "b": [tf.TensorSpec([], tf.float32)]}
