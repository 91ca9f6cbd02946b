"""Functions that take elements of iterators: one program, whose inputs the elements are."""

import gc

import jax
import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow._tensors._host_part import HostPart, NoElementError


def counting(fn, **options):
    """Return a `tf.function`, and the list that grows with each run of its Python."""
    runs = []

    def counted(*args):
        runs.append(1)
        return fn(*args)

    return tf.function(counted, **options), runs


def numbers(count=6):
    return iter(tf.data.Dataset.range(count))


@pytest.mark.parametrize("autograph", [True, False])
@pytest.mark.parametrize("take", [next, lambda iterator: iterator.get_next()], ids=["next", "get_next"])
def test_function_is_traced_once_for_all_elements(take, autograph):
    step, runs = counting(lambda iterator: take(iterator) * 2, autograph=autograph)
    iterator = numbers()
    assert [int(step(iterator)) for _ in range(6)] == [0, 2, 4, 6, 8, 10] and len(runs) == 1
    with pytest.raises(tf.errors.OutOfRangeError):
        step(iterator)


def test_training_by_elements_gives_the_numbers_of_training_by_tensors():
    rng = np.random.default_rng(0)
    data = tf.data.Dataset.from_tensor_slices(
        {"x": rng.normal(size=(22, 3)).astype("f4"), "y": rng.normal(size=22).astype("f4")}
    ).batch(4)

    def train(batches, is_by_element):
        w, optimizer = tf.Variable(tf.ones([3, 1])), keras.optimizers.Adam(0.1)

        def step(batch):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.squeeze(batch["x"] @ w, 1) - batch["y"]))
            optimizer.apply_gradients([(tape.gradient(loss, w), w)])
            return loss

        taking, runs = counting(lambda iterator: step(next(iterator)))
        losses = [taking(batches) if is_by_element else tf.function(step)(next(batches)) for _ in range(6)]
        return np.array(losses), w.numpy(), len(runs)

    losses, w, runs = train(iter(data), True)
    expected_losses, expected_w, _ = train(iter(data), False)
    np.testing.assert_array_equal(losses, expected_losses)
    np.testing.assert_array_equal(w, expected_w)
    assert runs == 2  # The last batch has two rows.


def test_what_is_traced_for_a_small_last_batch_serves_the_next_epoch():
    step, runs = counting(lambda iterator: tf.reduce_sum(next(iterator)))
    data = tf.data.Dataset.range(10).batch(4)
    for _ in range(3):
        iterator = iter(data)
        assert [int(step(iterator)) for _ in range(3)] == [6, 22, 17]
    assert len(runs) == 2


def test_elements_of_many_sizes_have_a_program_each():
    step, runs = counting(lambda iterator: tf.reduce_sum(next(iterator)))
    sizes = [*range(1, 20), *range(1, 20)]
    iterator = iter(
        tf.data.Dataset.from_generator(lambda: map(np.ones, sizes), output_signature=tf.TensorSpec([None], tf.float64))
    )
    assert [int(step(iterator)) for _ in sizes] == sizes and len(runs) == 19


def test_several_elements_of_two_iterators_come_in_the_order_of_the_function():
    step, runs = counting(lambda a, b: [next(a), next(b), next(a), a.get_next()])
    first, second = numbers(9), numbers(3)
    values = lambda: [int(value) for value in step(first, second)]
    assert values() == [0, 0, 1, 2] and values() == [3, 1, 4, 5] and len(runs) == 1
    values = lambda: [
        int(value) for value in step(second, second)
    ]  # One program, whose two iterators are now the same.
    with pytest.raises(tf.errors.OutOfRangeError):
        values()
    assert len(runs) == 2  # It ran as Python up to the missing element.
    assert int(next(first)) == 6


def test_same_iterator_may_be_given_twice_and_be_reached_otherwise():
    outside = numbers(9)
    step, runs = counting(lambda a, b: [next(a), next(outside), next(b)])
    assert [int(value) for value in step(outside, outside)] == [0, 1, 2]
    assert [int(value) for value in step(numbers(), numbers())] == [0, 3, 0] and len(runs) == 1


def test_iterator_that_is_no_argument_is_the_one_of_the_trace():
    iterator = numbers()
    step, runs = counting(lambda: next(iterator))
    assert [int(step()) for _ in range(3)] == [0, 1, 2] and len(runs) == 1


def test_iterator_that_the_function_makes_begins_in_each_call():
    data = tf.data.Dataset.range(5)

    @tf.function
    def step(other):
        iterator = iter(data)
        return [next(iterator), next(other), next(iterator)]

    other = numbers()
    assert [[int(value) for value in step(other)] for _ in range(3)] == [[0, n, 1] for n in range(3)]


def test_element_may_be_taken_under_tapes():
    v = tf.Variable(3.0)

    def step(iterator):
        with tf.GradientTape() as outer, tf.GradientTape() as tape:
            y = v * v * v * tf.cast(next(iterator), tf.float32)
            gradient = tape.gradient(y, v)
        return gradient, outer.gradient(gradient, v)

    step, runs = counting(step)
    iterator = numbers()
    results = [[float(value) for value in step(iterator)] for _ in range(3)]
    assert results == [[27.0 * n, 18.0 * n] for n in range(3)] and len(runs) == 1


def test_python_loop_takes_an_element_each_time():
    step, runs = counting(lambda iterator, n: sum(next(iterator) for _ in range(n)))
    iterator = numbers(9)
    assert [int(step(iterator, 3)) for _ in range(3)] == [3, 12, 21] and len(runs) == 1


def test_nested_function_takes_elements_of_the_outer_one():
    inner = tf.function(lambda iterator: next(iterator) + 1)
    step, runs = counting(lambda iterator: inner(iterator) * inner(iterator))
    iterator = numbers()
    assert [int(step(iterator)) for _ in range(3)] == [2, 12, 30] and len(runs) == 1


def test_elements_of_strings_are_computed_with_on_the_host():
    data = tf.data.Dataset.from_tensor_slices((["1", "2", "3"], [10, 20, 30]))
    step, runs = counting(lambda iterator: (lambda text, x: tf.strings.to_number(text, tf.int32) + x)(*next(iterator)))
    iterator = iter(data)
    assert [int(step(iterator)) for _ in range(3)] == [11, 22, 33] and len(runs) == 1


def test_at_the_end_what_comes_before_the_missing_element_has_happened():
    before, between = tf.Variable(0), tf.Variable(0)

    @tf.function
    def step(iterator):
        before.assign_add(1)
        x = next(iterator)
        between.assign_add(1)
        return x + next(iterator)

    iterator = numbers(3)
    step(iterator)
    for _ in range(2):
        with pytest.raises(tf.errors.OutOfRangeError):
            step(iterator)
    assert (int(before), int(between)) == (3, 2)  # The third element was taken by the call that found no fourth.
    assert int(step(numbers())) == 1


def test_end_of_data_at_the_first_call_leaves_the_function_to_be_compiled():
    step, runs = counting(lambda iterator: next(iterator))
    with pytest.raises(tf.errors.OutOfRangeError):
        step(numbers(0))
    iterator = numbers()
    before = len(runs)
    assert [int(step(iterator)) for _ in range(3)] == [0, 1, 2] and len(runs) == before + 1


def test_error_in_the_data_is_met_once_and_behind_it_it_goes_on():
    data = tf.data.Dataset.range(5).map(lambda x: tf.debugging.check_numerics(1 / tf.cast(x - 2, tf.float32), "zero"))
    step, _ = counting(lambda iterator: next(iterator))
    iterator = iter(data)
    values = [float(step(iterator)), float(step(iterator))]
    with pytest.raises(tf.errors.InvalidArgumentError):
        step(iterator)
    assert [*values, float(step(iterator)), float(step(iterator))] == [-0.5, -1.0, 1.0, 0.5]


def test_error_in_the_trace_takes_no_element_and_one_in_the_run_does():
    iterator = numbers()

    @tf.function
    def fail(iterator):
        next(iterator)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail(iterator)
    check = tf.function(lambda iterator: tf.debugging.assert_less(next(iterator), tf.constant(0, tf.int64)))
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError):
            check(iterator)
    assert int(next(iterator)) == 2


def test_string_that_is_no_number_is_met_once():
    step = tf.function(lambda iterator: tf.strings.to_number(next(iterator)))
    iterator = iter(tf.data.Dataset.from_tensor_slices(["?", "1", "?", "2"]))
    for expected in (1.0, 2.0):
        with pytest.raises(tf.errors.InvalidArgumentError):
            step(iterator)
        assert float(step(iterator)) == expected


def test_position_counts_the_elements_of_runs_alone(tmp_path):
    step = tf.function(lambda iterator: next(iterator) + next(iterator))
    counted = iter(tf.data.Dataset.range(20))
    assert step.get_concrete_function(counted).structured_outputs == tf.TensorSpec([], tf.int64)
    assert int(step(counted)) == 1
    data = tf.data.Dataset.range(20).shuffle(20, seed=1)
    iterator = iter(data)
    step(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "at"))
    expected = [int(step(iterator)) for _ in range(3)]
    other = iter(data)
    tf.train.Checkpoint(iterator=other).restore(path)
    assert [int(step(other)) for _ in range(3)] == expected


def test_variables_made_in_the_first_call_take_no_element():
    made = []

    @tf.function
    def step(iterator):
        x = next(iterator)
        if not made:
            made.append(tf.Variable(10, dtype=tf.int64))
        return made[0].assign_add(x)

    iterator = numbers()
    assert [int(step(iterator)) for _ in range(4)] == [10, 11, 13, 16]


def _in_tensor_loop(iterator):
    total = tf.constant(0, tf.int64)
    for _ in tf.range(2):
        total += next(iterator)
    return total


def _in_branch(iterator):
    x = next(iterator)
    if x > 2:
        x += next(iterator)
    return x


def _of_its_value(iterator):
    return float(next(iterator))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_in_tensor_loop, [1, 5, 9]),
        (_in_branch, [0, 1, 2, 7]),
        (lambda iterator: tf.cond(tf.constant(True), lambda: next(iterator), lambda: tf.constant(7, tf.int64)), [0, 1]),
        (lambda iterator: tf.map_fn(lambda x: x + next(iterator), tf.constant([10, 20], tf.int64))[1], [21, 23]),
        (
            lambda iterator: tf.vectorized_map(lambda x: x + next(iterator), tf.constant([10, 20], tf.int64))[1],
            [20, 21],
        ),
        (lambda iterator: iterator.get_next_as_optional().get_value(), [0, 1, 2]),
        (_of_its_value, [0, 1, 2]),
    ],
    ids=["loop", "branch", "cond", "map_fn", "vectorized_map", "optional", "value"],
)
def test_what_cannot_be_an_input_runs_as_python(function, expected):
    step, iterator = tf.function(function), numbers()
    assert [int(step(iterator)) for _ in expected] == expected


def test_loop_over_an_iterator_goes_to_its_end():
    @tf.function
    def total(iterator):
        result = next(iterator)
        for x in iterator:
            result += x
        return result

    assert int(total(numbers())) == 15


def test_elements_are_not_taken_by_a_tape_that_cannot_follow_the_program():
    w = tf.Variable(2.0)

    @tf.function
    def grow(iterator):
        x = tf.cast(next(iterator), tf.float32)
        return w * jax.lax.while_loop(lambda y: y < 10.0, lambda y: y * 2.0, x + 1.0)

    iterator = numbers()
    assert float(grow(iterator)) == 32
    for expected in (32.0, 24.0):
        with tf.GradientTape() as tape:
            y = grow(iterator)
        assert float(y) == expected and tape.gradient(y, w) is not None
    assert int(next(iterator)) == 3


def test_iterator_is_an_iterator_in_the_function():
    @tf.function
    def step(iterator):
        assert isinstance(iterator, tf.data.Iterator) and iterator.element_spec == tf.TensorSpec([], tf.int64)
        return next(iterator)

    assert int(step(numbers())) == 0


def test_what_stood_for_an_iterator_is_of_no_use_outside_of_the_trace():
    kept = []

    @tf.function
    def step(iterator):
        kept.append(iterator)
        return next(iterator)

    step(numbers())
    with pytest.raises(TypeError, match="out of scope"):
        next(kept[0])


def test_specs_that_a_function_asks_for_are_those_of_its_iterator():
    step, runs = counting(lambda iterator: next(iterator) * (iterator.element_spec.shape[0] or 100))
    data = tf.data.Dataset.range(4)
    both = [data.batch(2, drop_remainder=True), data.batch(2)]
    for _ in range(2):
        assert [step(iter(batches)).numpy().tolist() for batches in both] == [[0, 2], [0, 100]]
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (lambda n: tf.ragged.constant([[1.0] * (n + 1), [2.0]]), [3.0, 4.0, 5.0]),
        (lambda n: tf.SparseTensor([[n, 0]], [2.0 + n], [3, 3]), [2.0, 3.0, 4.0]),
    ],
    ids=["ragged", "sparse"],
)
def test_elements_of_changing_sizes_run_as_python(make, rows):
    total = tf.reduce_sum if rows[0] == 3.0 else tf.sparse.reduce_sum

    @tf.function
    def step(iterator):
        return total(next(iterator))

    first, *others = [tf.data.Dataset.from_tensors(make(n)) for n in range(3)]
    for other in others:
        first = first.concatenate(other)
    iterator = iter(first)
    assert [float(step(iterator)) for _ in range(3)] == rows and step.experimental_get_tracing_count() == 1


def test_data_made_in_python_is_made_once_for_each_element():
    made = []

    def make():
        for n in range(4):
            made.append(n)
            yield n

    data = tf.data.Dataset.from_generator(make, output_signature=tf.TensorSpec([], tf.int64))
    step, _ = counting(lambda iterator: next(iterator) + next(iterator))
    iterator = iter(data)
    assert [int(step(iterator)), int(step(iterator))] == [1, 5] and made == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["one", "mirrored"])
def test_elements_are_inputs_under_a_strategy(kind):
    devices = ["cpu:0", "cpu:1"]
    strategy = tf.distribute.OneDeviceStrategy("cpu:1") if kind == "one" else tf.distribute.MirroredStrategy(devices)
    with strategy.scope():
        v = tf.Variable(1.0)

    def step(iterator):
        v.assign_add(next(iterator))
        return strategy.reduce("SUM", strategy.run(lambda: v * 1.0), axis=None)

    step, runs = counting(step)
    iterator = iter(tf.data.Dataset.from_tensor_slices([1.0, 2.0, 3.0]))
    count = strategy.num_replicas_in_sync
    assert [float(step(iterator)) for _ in range(3)] == [2.0 * count, 4.0 * count, 7.0 * count] and len(runs) == 1


def test_programs_keep_no_element():
    def generate():
        for rows in range(1, 5):
            yield np.zeros((rows, 25000), "f4")

    iterator = iter(tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec([None, 25000], tf.float32)))
    step, runs = counting(lambda iterator: tf.reduce_sum(next(iterator)))
    for _ in range(4):
        step(iterator)
    gc.collect()
    assert len(runs) == 4
    assert not [array.shape for array in jax.live_arrays() if array.shape[-1:] == (25000,)]


def test_function_that_catches_an_error_of_the_host_loses_no_element(caplog):
    iterator = numbers()

    @tf.function
    def step(text):
        element = tf.cast(next(iterator), tf.float32)
        try:
            return element, tf.strings.to_number(text)
        except tf.errors.InvalidArgumentError:
            return element, -1.0

    results = [tuple(map(float, step(tf.constant(text)))) for text in ["abc", "abc", "5"]]
    assert results == [(0, -1), (1, -1), (2, 5)]
    assert "It catches an error of what runs on the host" in caplog.text


def test_end_of_data_is_one_error_of_functions_that_run_as_python():
    iterator = iter(tf.data.Dataset.from_tensors(tf.ragged.constant([[1], [2, 3]])).repeat(3))
    in_python, _ = counting(lambda iterator: tf.reduce_sum(next(iterator).values), autograph=False)
    assert [int(in_python(iterator)) for _ in range(3)] == [6, 6, 6]
    with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
        in_python(iterator)

    def other(iterator):
        return next(iterator).values, next(iter([]))

    with pytest.raises(StopIteration):
        tf.function(other, autograph=False)(iter(tf.data.Dataset.from_tensors(tf.ragged.constant([[1]]))))


def test_elements_of_one_iterator_leave_the_function_to_be_compiled_for_others():
    step, runs = counting(lambda iterator: tf.reduce_sum(getattr(element := next(iterator), "values", element)))
    rows = tf.ragged.constant([[1.0], [2.0, 3.0]])
    ragged, plain = iter(tf.data.Dataset.from_tensors(rows).repeat()), numbers()
    assert [float(step(ragged)), *(int(step(plain)) for _ in range(5))] == [6, 0, 1, 2, 3, 4]
    assert len(runs) == 3
    assert [float(step(ragged)) for _ in range(3)] == [6, 6, 6] and len(runs) == 6


def test_element_that_another_thread_takes_after_the_trace_makes_one_call_python(monkeypatch):
    sizes = [1, 2, 3, 2, 3, 1]
    data = tf.data.Dataset.from_generator(
        lambda: (np.ones(size, "i4") for size in sizes), output_signature=tf.TensorSpec([None], tf.int32)
    )
    iterator, taken = iter(data), []
    step, runs = counting(lambda iterator: tf.reduce_sum(next(iterator)))
    compute = HostPart.compute

    def compute_behind_another(self, inputs):
        if not taken:
            taken.append(int(tf.reduce_sum(next(iterator))))
        return compute(self, inputs)

    monkeypatch.setattr(HostPart, "compute", compute_behind_another)
    assert [int(step(iterator)) for _ in range(5)] == sizes[1:] and taken == sizes[:1]
    assert len(runs) == 4  # Traced for three sizes, and once run as Python.


def test_element_that_could_not_be_made_is_no_element_of_what_is_left():
    data = tf.data.Dataset.from_tensor_slices(["1", "x", "3"]).map(tf.strings.to_number)
    iterator = iter(data)
    next(iterator)
    with pytest.raises(NoElementError):
        iterator.take()
    left = iterator.as_numpy()
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(left)
    assert list(map(float, left)) == [3]
