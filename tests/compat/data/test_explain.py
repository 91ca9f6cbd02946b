"""`Dataset.explain()` says how each step runs."""

import re

import pytest

import tfdist_jax.compat.tensorflow as tf

Dataset = tf.data.Dataset


def ways(dataset):
    """The method of each step, and what is said of it."""
    lines = dataset.explain().splitlines()
    names = [match[1] for line in lines if (match := re.match(r"(?:  \.)?(\w+)\(", line))]
    told = [match[1] for line in lines if (match := re.match(r" +# (.*)", line))]
    return list(zip(names, told, strict=True))


def double(x):
    return 2 * x


def test_rows_in_memory_are_computed_at_once():
    told = dict(ways(Dataset.range(10).map(double).shuffle(5).repeat(2).batch(3)))
    assert told["map"] == "compiled, for 4096 rows at once"
    assert told["shuffle"] == told["repeat"] == "rows by their positions: nothing is got before it is needed"
    assert told["batch"] == "rows of a batch at once"


@pytest.mark.parametrize(
    ("elements", "function", "way"),
    [
        ([1, 2], double, "compiled, for each element"),
        (["a", "b"], tf.strings.length, "for each element: length on the host"),
        (
            ["a", "b"],
            lambda s: (tf.strings.upper(s), tf.strings.length(s) + 1),
            "for each element: upper, length on the host, the rest compiled",
        ),
        (["a"], lambda s: (s, s), "nothing is computed"),
        ([3, 4], lambda x: tf.range(x), "in Python for each element: ConcreteValueRequiredError: tf.range"),
    ],
)
def test_functions_of_elements(elements, function, way):
    # Elements of a generator come one after the other.
    spec = tf.TensorSpec((), tf.string if isinstance(elements[0], str) else tf.int32)
    dataset = Dataset.from_generator(lambda: iter(elements), output_signature=spec).map(function)
    name, told = ways(dataset)[-1]
    assert name == "map" and told.startswith(way)


def test_parallel_calls_take_several_strings_at_once():
    texts = Dataset.from_tensor_slices(["a", "b"])
    assert ways(texts.map(tf.strings.upper, 2))[-1][1] == "several elements at once: upper on the host"
    assert ways(texts.map(tf.strings.upper))[-1][1] == "for each element: upper on the host"


def test_strings_of_many_sizes_run_in_python():
    lines = Dataset.from_tensor_slices(["a " * (i + 1) for i in range(9)])
    dataset = lines.map(lambda text: tf.strings.length(tf.strings.split(text)))
    assert ways(dataset)[-1][1] == "for each element: split, length on the host"
    assert len(list(dataset)) == 9


def test_each_step_is_explained_and_an_error_is_no_end():
    dataset = (
        Dataset.zip((Dataset.range(4), Dataset.from_tensor_slices(["1", "x", "3", "4"])))
        .filter(lambda number, text: number > 0)
        .flat_map(lambda number, text: Dataset.from_tensors(text).repeat(2))
        .map(tf.strings.to_number)
        .prefetch(1)
    )
    told = dict(ways(dataset))
    assert told["flat_map"] == "in Python, a dataset for each element"
    assert "could not correctly convert string: x" in told["map"]
    missing = tf.data.TextLineDataset("/there/is/no/such/file").map(tf.strings.length)
    assert ways(missing)[-1][1].startswith("not known: the first element is an error, NotFoundError")
