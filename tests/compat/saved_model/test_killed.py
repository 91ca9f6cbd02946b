"""Whatever stops a process while it writes a SavedModel: what was there before stays, and nothing half-written is loaded."""

import os
import random
import signal
import time

import numpy as np
import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf

PROGRAM = """
import os
import tensorflow as tf


class Counter(tf.Module):
    def __init__(self, step):
        super().__init__()
        self.parts = [tf.Variable(tf.fill([2000], step)) for _ in range(10)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def total(self, x):
        return tf.reduce_sum(x) + sum(tf.reduce_mean(part) for part in self.parts)


def train(folder, said):
    step = 0.0
    if tf.saved_model.contains_saved_model(folder):
        values = {float(value) for part in tf.saved_model.load(folder).parts for value in part.numpy()}
        assert len(values) == 1, values
        step = values.pop()
    counter = Counter(step)
    while True:
        step += 1.0
        for part in counter.parts:
            part.assign(tf.fill([2000], step))
        tf.saved_model.save(counter, folder)
        with open(said, "a") as file:
            file.write(f"{step}\\n")
"""


def _kill(train, folder, said, kills, moments):
    reported = 0.0
    for _ in range(kills):
        before = len(_lines(said))

        def kill(pid, before=before):
            deadline = time.monotonic() + LIMIT_S
            while len(_lines(said)) <= before and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(moments.uniform(0.0, 0.6))
            os.kill(pid, signal.SIGKILL)

        train(folder, said, meanwhile=kill)
        reported = float(_lines(said)[-1])
        loaded = tf.saved_model.load(folder)
        values = {float(value) for part in loaded.parts for value in part.numpy()}
        (step,) = values
        assert reported <= step <= reported + 1, "what `save` had returned was lost"
        # A mean of 2000 equal numbers is rounded.
        np.testing.assert_allclose(loaded.total(tf.ones([3])), 3 + 10 * step, rtol=1e-6)
        served = loaded.signatures["serving_default"](x=tf.ones([2]))
        np.testing.assert_allclose(served["output_0"], 2 + 10 * step, rtol=1e-6)
    return reported


def _lines(said):
    return said.read_text().splitlines() if said.exists() else []


@pytest.mark.slow("kills five processes")
def test_a_killed_process_leaves_the_saved_model_before_or_the_one_after(tmp_path, forking):
    assert _kill(forking(PROGRAM), tmp_path / "model", tmp_path / "said", 5, random.Random(0)) >= 5


@pytest.mark.exhaustive
def test_thirty_killed_processes_leave_whole_saved_models(tmp_path, forking):
    assert _kill(forking(PROGRAM), tmp_path / "model", tmp_path / "said", 30, random.Random(1)) >= 30


def test_what_a_stopped_process_leaves_is_no_saved_model(tmp_path):
    module = tf.Module()
    module.v = tf.Variable(1.0)
    tf.saved_model.save(module, tmp_path / "whole")
    (tmp_path / "half").mkdir()
    (tmp_path / "whole/saved_model").rename(tmp_path / "half/saved_model.new.part")
    assert not tf.saved_model.contains_saved_model(tmp_path / "half")
    with pytest.raises(FileNotFoundError, match="was not saved completely"):
        tf.saved_model.load(tmp_path / "half")
    tf.saved_model.save(module, tmp_path / "half")
    assert os.listdir(tmp_path / "half") == ["saved_model"], "rests are removed"
