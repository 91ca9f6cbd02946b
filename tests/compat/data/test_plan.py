"""Plans of datasets print as the calls that made them, and go to other processes."""

import copy
import pickle
import textwrap
import traceback

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

Dataset = tf.data.Dataset


def scale(row):
    return tf.cast(row["image"], tf.float32) / 255.0, row["label"]


def is_odd(value):
    return value % 2 == 1


def pair(value):
    return Dataset.from_tensors(value).repeat(2)


def spread(key, group):
    return group.batch(2)


def joined(window):
    return window.batch(3)


def images():
    return Dataset.from_tensor_slices({"image": np.full((60, 4, 4), 77, "u1"), "label": np.arange(60)})


def printed(dataset):
    return str(dataset._plan)


def line_of(function):
    return f"<function {function.__qualname__} at test_plan.py:{function.__code__.co_firstlineno}>"


def test_a_plan_prints_as_the_calls_that_made_it():
    dataset = images().shuffle(1000, seed=7).map(scale).batch(32, drop_remainder=True).prefetch(2)
    assert printed(dataset) == textwrap.dedent(
        f"""\
        from_tensor_slices(tensors={{'image': (60, 4, 4) uint8, 'label': (60,) int64}})
          .shuffle(buffer_size=1000, seed=7)
          .map(map_func={line_of(scale)}, rows_at_once=4096)
          .batch(batch_size=32, drop_remainder=True)
          .prefetch(buffer_size=2)"""
    )
    assert repr(dataset).startswith("<Dataset element_spec=(TensorSpec(")


def test_plans_of_several_print_as_a_tree():
    both = Dataset.zip({"a": Dataset.range(5).repeat(2), "b": Dataset.counter(3)})
    assert printed(both.concatenate(both.take(1)).batch(3)) == textwrap.dedent(
        """\
        zip(
            datasets['a']=from_tensor_slices(tensors=(5,) int64)
              .repeat(count=2),
            datasets['b']=counter(start=3, step=1, dtype=tf.int64),
        )
          .concatenate(
              dataset=zip(
                  datasets['a']=from_tensor_slices(tensors=(5,) int64)
                    .repeat(count=2),
                  datasets['b']=counter(start=3, step=1, dtype=tf.int64),
              )
                .take(count=1),
          )
          .batch(batch_size=3)"""
    )


def test_parameters_come_before_the_plans_that_are_sampled_from():
    dataset = Dataset.sample_from_datasets([Dataset.range(3), Dataset.range(4)], [0.25, 0.75], seed=3)
    first, *rest = printed(dataset).splitlines()
    assert (
        first == "sample_from_datasets(weights=(2,) float64, seed=3 (in each iteration), stop_on_empty_dataset=False,"
    )
    assert rest == [
        "    datasets[0]=from_tensor_slices(tensors=(3,) int64),",
        "    datasets[1]=from_tensor_slices(tensors=(4,) int64),",
        ")",
    ]


def test_a_generator_prints_with_its_parameters_alone():
    dataset = Dataset.from_generator(pair, output_signature=tf.TensorSpec([], tf.int64))
    assert printed(dataset) == (
        f"from_generator(generator={line_of(pair)}, args=[], "
        "output_signature=TensorSpec(shape=(), dtype=tf.int64, name=None))"
    )


def test_functions_print_by_name_and_place_and_other_objects_by_class():
    class Doubled:
        def __call__(self, value):
            return value * 2

    text = printed(Dataset.range(4).filter(is_odd).flat_map(pair).map(Doubled()).group_by_window(is_odd, spread, 3))
    for function in (is_odd, pair, spread):
        assert line_of(function) in text
    assert f"<{Doubled.__qualname__}>" in text


def test_no_value_of_an_array_is_printed():
    dataset = images().concatenate(images()).padded_batch(7).scan(np.full(9, 77), lambda state, row: (state, row))
    many = Dataset.from_tensors(np.full(5, 77)).rejection_resample(lambda value: 0, np.full(100, 77.0))
    assert "77" not in printed(dataset) + printed(many)


def test_printing_runs_none_of_the_users_functions():
    def fail(*args):
        raise AssertionError

    dataset = Dataset.from_generator(fail, output_signature=tf.TensorSpec([], tf.int64)).map(fail).filter(fail)
    assert printed(dataset).count("fail at ") == 3


DATASETS = {
    "rows": lambda: images().shuffle(9, seed=3).map(scale).skip(2).shard(2, 1).cache().batch(4).prefetch(2),
    "stream": lambda: Dataset.counter().filter(is_odd).take(9).enumerate().repeat(2).shuffle(4, seed=1),
    "several": lambda: Dataset.choose_from_datasets([Dataset.range(3), Dataset.range(5)], Dataset.range(2).repeat()),
    "made": lambda: Dataset.range(9).interleave(pair, 3).group_by_window(is_odd, spread, 3).unbatch().unique(),
    "windows": lambda: Dataset.range(9).window(3, shift=2).flat_map(joined),
    "buckets": lambda: Dataset.range(9).map(tf.range).bucket_by_sequence_length(np.size, [3, 6], [2, 2, 2]),
}


@pytest.mark.parametrize("kind", DATASETS)
def test_a_plan_without_lambdas_of_the_user_pickles(kind):
    tf.random.set_seed(3)
    dataset = DATASETS[kind]()
    again = Dataset(pickle.loads(pickle.dumps(dataset._plan)))
    assert str(again._plan) == str(dataset._plan)
    assert repr(again) == repr(dataset)
    for _ in range(2):  # With the seeds of the first and the second iteration.
        for wanted, found in zip(dataset.as_numpy_iterator(), again.as_numpy_iterator(), strict=True):
            tf.nest.map_structure(np.testing.assert_array_equal, wanted, found)


def test_an_error_in_an_iteration_shows_methods():
    def fail(value):
        raise ValueError(int(value))

    dataset = Dataset.range(4).shuffle(4).repeat(2).filter(fail).batch(2).prefetch(1)
    with pytest.raises(ValueError) as caught:
        next(dataset.as_numpy_iterator())
    names = [frame.name for frame in traceback.extract_tb(caught.tb) if "/data/_" in frame.filename]
    assert "is_true" in names
    assert "<lambda>" not in names


def test_a_deep_copy_goes_on_in_the_same_seeds_and_cache():
    make = lambda: Dataset.range(50).shuffle(50, seed=1).cache().shuffle(50, seed=2)
    dataset, wanted = make(), make()
    twin = copy.deepcopy(dataset)
    found = [list(one.as_numpy_iterator()) for one in (dataset, twin)]
    assert found == [list(wanted.as_numpy_iterator()) for _ in range(2)]
    assert found[0] != found[1]
