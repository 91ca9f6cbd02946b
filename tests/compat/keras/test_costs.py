"""What a compiled step of `fit` costs: operations, memory and communication."""

import re
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import contenders
import models


def compiled_step(model, batch):
    model.train_on_batch(*batch)
    return model.train_function.lower(batch).compile()


def all_reduces(compiled):
    return re.findall(r"= (.+?) all-reduce(?:-start)?\(", compiled.as_text())


# Compile for up to half a minute.
LARGE = [pytest.param(name, marks=pytest.mark.exhaustive) for name in ("resnet", "transformer", "resnet50")]


@pytest.mark.parametrize("name", ["mlp", "cnn", *LARGE])
def test_a_step_of_fit_costs_what_the_hand_written_step_costs(name):
    _, compile_hand = contenders.hand_written(name)
    hand = compile_hand()
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        model = models.make_model(keras, name)
        model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ours = compiled_step(model, models.MODELS[name].batch())
    # Means of moving statistics may be divided before or after the reduction.
    assert ours.cost_analysis()["flops"] == pytest.approx(hand.cost_analysis()["flops"], rel=1e-4)
    assert len(all_reduces(ours)) == len(all_reduces(hand))
    temp_bytes = [program.memory_analysis().temp_size_in_bytes for program in (ours, hand)]
    assert temp_bytes[0] <= temp_bytes[1] * 1.001


NORMALIZED = [keras.layers.BatchNormalization, lambda: keras.layers.Dropout(0.5)]


def test_gradients_statistics_and_metrics_share_one_reduction(strategy, make_model, data):
    model = make_model(strategy, hidden=NORMALIZED, optimizer=keras.optimizers.Adam)
    (reduced,) = all_reduces(compiled_step(model, (data.x, data.y)))
    gradients = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    statistics, metrics = 2 * 16, 4
    assert reduced.startswith(f"f32[{gradients + statistics + metrics}]")


@pytest.mark.parametrize("rows", [10, 2])
def test_uneven_batches_reduce_once_too(rows, strategy, make_model, data):
    model = make_model(strategy, hidden=[keras.layers.BatchNormalization])
    assert len(all_reduces(compiled_step(model, (data.x[:rows], data.y[:rows])))) == 1


def test_large_gradients_are_reduced_on_their_own(strategy, make_model, data):
    width = 65536 // 4  # 16 rows of it make 1 MiB.
    model = make_model(strategy, hidden=[lambda: keras.layers.Dense(width)])
    reduced = " ".join(all_reduces(compiled_step(model, data)))
    assert f"f32[16,{width}]" in reduced
    assert f"f32[{8 * 16 + 16 + width + 4 * width + 4 + 4}]" in reduced  # The others, and the metrics.


def accumulating():
    return keras.optimizers.Adam(0.1, gradient_accumulation_steps=4)


@pytest.mark.parametrize("rows", [64, 10])
def test_accumulated_gradients_are_reduced_only_where_the_weights_are_updated(rows, strategy, make_model, data):
    model = make_model(strategy, optimizer=accumulating)
    text = compiled_step(model, data.rows(rows)).as_text()
    entry = text[text.index("\nENTRY ") :]
    (in_every_step,) = re.findall(r"= f32\[(\d+)\]\S* all-reduce\(", entry)
    assert int(in_every_step) == 4  # The metrics' sums.
    gradients = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    (in_a_branch,) = re.findall(r"= f32\[(\d+)\]\S* all-reduce\(", text.replace(entry, ""))
    assert int(in_a_branch) == gradients


def test_accumulated_gradients_of_scaled_losses_are_reduced_only_where_they_are_used(strategy, make_model, data):
    model = make_model(strategy, optimizer=lambda: keras.optimizers.LossScaleOptimizer(accumulating()))
    text = compiled_step(model, data).as_text()
    entry = text[text.index("\nENTRY ") :]
    in_every_step = re.findall(r"= (\S+?)\[(\d*)\]\S* all-reduce\(", entry)
    assert sorted(in_every_step) == [("f32", "4"), ("s32", "")]  # And whether all replicas' are finite.
    assert len(re.findall(r" all-reduce\(", text)) == 3
