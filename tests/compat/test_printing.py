"""`tf.print`: texts as TensorFlow writes them, also from compiled functions and replicas."""

import io
import sys

import jax
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

c = tf.constant


def printed(*inputs, **options):
    stream = io.StringIO()
    tf.print(*inputs, output_stream=stream, **options)
    return stream.getvalue()


# Recorded from TensorFlow 2.21.
@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([c(1.0), c([1.5, 0.1, 1e-7, 1e10, 123456789.0, 1 / 3])], "1 [1.5 0.1 1e-07 1e+10 123456792 0.333333343]"),
        ([c(3), c(True), c([True, False]), "a", 1.5], "3 1 [1 0] a 1.5"),
        ([[1, c(2), "x"], (c(1.0),), {"a": c(1), "b": [c(2)]}, None], "[1, 2, 'x'] (1,) {'a': 1, 'b': [2]} None"),
        ([c("txt"), c(["a", "b"])], '"txt" ["a" "b"]'),
        ([tf.range(20)], "[0 1 2 ... 17 18 19]"),
        ([c(np.array([0.1, 1 / 3, 1e300])), c(np.float64(0.1))], "[0.1 0.33333333333333331 1e+300] 0.1"),
        ([c(float("nan")), c(float("inf")), c([-0.0]), c(16777216.0)], "nan inf [-0] 16777216"),
        ([[], c([]), c([[1.0, 2.0]])], "[] [] [[1 2]]"),
        ([c([1.5], tf.bfloat16), c([0.1], tf.float16)], "[1.5] [0.0999755859]"),
        ([tf.reshape(tf.range(12), [2, 2, 3])], "[[[0 1 2]\n  [3 4 5]]\n\n [[6 7 8]\n  [9 10 11]]]"),
    ],
)
def test_values_are_written_as_by_tensorflow(inputs, text):
    assert printed(*inputs) == text + "\n"


def test_ends_of_long_axes_are_shown():
    grid = tf.reshape(tf.range(48), [8, 6])
    assert printed(grid, summarize=1) == "[[0 ... 5]\n ...\n [42 ... 47]]\n"
    assert printed(tf.range(9), summarize=-1) == "[0 1 2 3 4 5 6 7 8]\n"


def test_separator_and_end_can_be_chosen():
    assert printed("a", c(1), sep=",", end="!") == "a,1!"
    with pytest.raises(ValueError, match="Unrecognized keyword"):
        tf.print("a", colour="red")


def test_goes_to_stderr_a_function_or_a_file(capsys, tmp_path):
    tf.print("one")
    tf.print("two", output_stream=sys.stdout)
    lines = []
    tf.print("three", output_stream=lines.append)
    tf.print("four", output_stream=f"file://{tmp_path}/log")
    assert capsys.readouterr() == ("two\n", "one\n")
    assert lines == ["three\n"] and (tmp_path / "log").read_text() == "four\n"
    with pytest.raises(ValueError, match="file://PATH"):
        tf.print("five", output_stream="nowhere")


def test_compiled_function_prints_in_every_run():
    lines = []

    @tf.function
    def program(x):
        tf.print("x:", x, [x * 2], output_stream=lines.append)
        tf.print("running", output_stream=lines.append)

    for value in (1.0, 2.0):
        program(c(value))
    jax.effects_barrier()
    assert sorted(lines) == ["running\n", "running\n", "x: 1 [2]\n", "x: 2 [4]\n"]


def test_every_replica_prints():
    lines = []
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])

    def step():
        tf.print("replica", tf.distribute.get_replica_context().replica_id_in_sync_group, output_stream=lines.append)
        return c(0)

    jax.block_until_ready(strategy.run(step).values)
    jax.effects_barrier()
    assert sorted(lines) == ["replica 0\n", "replica 1\n"]


def test_variables_are_printed_by_their_value():
    assert printed(tf.Variable([1.0, 2.0])) == "[1 2]\n"
