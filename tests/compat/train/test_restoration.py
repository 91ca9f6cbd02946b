"""Values that wait for their variables: Keras models built later, memory, warnings, files of others."""

import gc
import itertools
import logging
import types
import weakref

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow._variables import _tracking


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dense(4)
        self.blocks = [keras.layers.Dense(3), keras.layers.BatchNormalization()]
        self.named = {"last": keras.layers.Dense(1)}
        self.noise = keras.layers.Dropout(0.5)

    def call(self, x):
        x = self.noise(self.first(x))
        for block in self.blocks:
            x = block(x)
        return self.named["last"](x)


def _equal(one, other):
    return len(one.variables) == len(other.variables) > 0 and all(
        np.array_equal(a, b) for a, b in zip(one.variables, other.variables, strict=True)
    )


@pytest.fixture
def trained(tmp_path):
    """A model and its optimizer after two steps, and the path of their checkpoint."""
    net = Net()
    net.compile("adam", "mse")
    net.fit(np.ones((8, 2), "f4"), np.ones((8, 1), "f4"), batch_size=4, verbose=0)
    return net, tf.train.Checkpoint(net=net).write(tmp_path / "ckpt")


def test_keys_are_the_attributes_names(trained):
    keys = {key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for key, _ in tf.train.list_variables(trained[1])}
    assert {"net/first/kernel", "net/blocks/1/moving_mean", "net/named/last/bias", "net/optimizer/iterations"} <= keys


@pytest.mark.parametrize("replicas", [None, 2])
def test_layers_and_slots_that_are_built_later_start_with_the_saved_values(trained, replicas):
    strategy = (
        tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)])
        if replicas
        else tf.distribute.get_strategy()
    )
    with strategy.scope():
        net = Net()
        net.compile("adam", "mse")
        status = tf.train.Checkpoint(net=net).read(trained[1])
        net(np.ones((1, 2), "f4"))
        net.optimizer.build(net.trainable_variables)
    status.assert_consumed()
    assert _equal(net, trained[0]) and _equal(net.optimizer, trained[0].optimizer)


def test_fit_goes_on_from_a_checkpoint_that_was_restored_before_anything_was_built(trained):
    net, path = trained
    again = Net()
    again.compile("adam", "mse")
    status = tf.train.Checkpoint(net=again).read(path)
    x, y = np.full((4, 2), 2.0, "f4"), np.ones((4, 1), "f4")
    net.noise.seed_generator.state.assign(trained[0].noise.seed_generator.state)
    for model in (net, again):
        model.fit(x, y, verbose=0)
    status.assert_consumed()
    assert int(again.optimizer.iterations.numpy()) == 3
    for a, b in zip(net.trainable_variables, again.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_a_layer_finds_its_values_by_attribute_not_by_number(tmp_path):
    class Two(keras.Model):
        def __init__(self, names):
            super().__init__()
            for name in names:
                layer = keras.layers.Dense(1, name=name)
                layer.build((None, len(name)))
                setattr(self, name, layer)

    both, one = Two(["aa", "bbb"]), Two(["bbb"])
    path = tf.train.Checkpoint(both).write(tmp_path / "ckpt")
    tf.train.Checkpoint(one).read(path).expect_partial().assert_existing_objects_matched()
    assert np.array_equal(one.bbb.kernel, both.bbb.kernel)


def test_parts_of_a_model_are_restored_by_hand(trained):
    bias = tf.Variable(tf.zeros([4]))
    layer = tf.train.Checkpoint(bias=bias)
    root = tf.train.Checkpoint(net=tf.train.Checkpoint(first=layer))
    root.restore(trained[1]).expect_partial().assert_nontrivial_match()
    layer.kernel = tf.Variable(tf.zeros([2, 4]))
    assert np.array_equal(bias, trained[0].first.bias)
    assert np.array_equal(layer.kernel, trained[0].first.kernel)


def test_a_name_stands_for_one_object_only():
    module = tf.Module()
    module.v = tf.Variable(1.0)
    tf.train.Checkpoint(module, v=module.v)
    with pytest.raises(ValueError, match=r"argument v .*root\.v already exists"):
        tf.train.Checkpoint(module, v=tf.Variable(2.0))


def test_a_variable_can_be_the_root(tmp_path):
    variable, other = tf.Variable(3.0), tf.Variable(4.0)
    path = tf.train.Checkpoint(variable, other=other).write(tmp_path / "ckpt")
    for each in (variable, other):
        each.assign(0.0)
    tf.train.Checkpoint(variable, other=other).read(path).assert_consumed()
    assert [float(variable), float(other)] == [3.0, 4.0]


def test_weak_references_are_followed(tmp_path):
    module = tf.Module()
    module.v = tf.Variable(1.0)
    checkpoint = tf.train.Checkpoint(module=weakref.ref(module))
    path = checkpoint.write(tmp_path / "ckpt")
    module.v.assign(2.0)
    checkpoint.read(path).assert_consumed()
    assert float(module.v) == 1.0
    del module
    gc.collect()
    assert tf.train.list_variables(checkpoint.write(tmp_path / "gone")) == []


def test_reading_in_a_function_happens_at_each_call(tmp_path):
    variable = tf.Variable(1.0)
    checkpoint = tf.train.Checkpoint(v=variable)
    path = checkpoint.write(tmp_path / "ckpt")

    @tf.function
    def back():
        checkpoint.read(path)
        return variable + 1.0

    for _ in range(2):
        variable.assign(7.0)
        assert float(back()) == 2.0


def test_values_wait_without_their_checkpoint_object_but_not_without_their_model(trained):
    kept, gone = Net(), Net()
    tf.train.Checkpoint(net=kept).read(trained[1]).expect_partial()
    tf.train.Checkpoint(net=gone).read(trained[1]).expect_partial()
    gc.collect()
    waiting = len(_tracking._waiting)
    del gone
    gc.collect()
    assert len(_tracking._waiting) == waiting - 1
    kept(np.ones((1, 2), "f4"))
    assert np.array_equal(kept.first.kernel, trained[0].first.kernel)


def test_a_restoration_that_is_complete_waits_no_longer(tmp_path):
    before = len(_tracking._waiting)
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    status = checkpoint.read(checkpoint.write(tmp_path / "ckpt"))
    assert len(_tracking._waiting) == before
    status.assert_consumed()


@pytest.mark.parametrize("is_expected", [False, True])
def test_values_that_are_never_used_are_told_of_unless_that_is_expected(tmp_path, caplog, is_expected):
    path = tf.train.Checkpoint(v=tf.Variable(1.0), w=tf.Variable(2.0)).write(tmp_path / "ckpt")
    with caplog.at_level(logging.WARNING):
        status = tf.train.Checkpoint(v=tf.Variable(0.0)).read(path)
        if is_expected:
            status.expect_partial()
        del status
        gc.collect()
    assert ("w/.ATTRIBUTES/VARIABLE_VALUE" in caplog.text and "expect_partial" in caplog.text) != is_expected


def test_a_value_that_is_asked_for_when_its_checkpoint_is_gone_says_so(tmp_path):
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    manager = tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=1)
    late = tf.train.Checkpoint()
    late.restore(manager.save()).expect_partial()
    manager.save()
    with pytest.raises(tf.errors.NotFoundError, match=r"ckpt-1 is gone.*v/\.ATTRIBUTES"):
        late.v = tf.Variable(0.0)


def test_saving_inside_a_function_is_refused_and_counts_nothing():
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    with pytest.raises(NotImplementedError, match="when the function has returned"):
        tf.function(lambda: checkpoint.save("ckpt"))()
    assert int(checkpoint.save_counter.numpy()) == 0


def test_a_bucket_is_refused_with_the_way_around():
    with pytest.raises(NotImplementedError, match="gs://bucket/ckpt: save there"):
        tf.train.Checkpoint(v=tf.Variable(1.0)).write("gs://bucket/ckpt")


def test_an_iterator_goes_on_where_it_was_saved(tmp_path):
    dataset = tf.data.Dataset.range(20).shuffle(20, seed=3).batch(3)
    iterator = iter(dataset)
    taken = [next(iterator).tolist() for _ in range(2)]
    path = tf.train.Checkpoint(iterator=iterator).write(tmp_path / "ckpt")
    rest = [batch.tolist() for batch in iterator]
    tf.train.Checkpoint(iterator=iter(dataset)).read(path).assert_consumed()
    again = iter(tf.data.Dataset.range(20).shuffle(20, seed=3).batch(3))
    tf.train.Checkpoint(iterator=again).read(path).assert_consumed()
    assert [batch.tolist() for batch in again] == rest and sorted(itertools.chain(*taken, *rest)) == list(range(20))


def test_one_checkpoint_is_kept_for_good_each_time_that_hours_have_passed(tmp_path, monkeypatch):
    hours = iter(range(100))
    clock = types.SimpleNamespace(time=lambda: 3600.0 * next(hours))
    monkeypatch.setattr("tfdist_jax.compat.tensorflow.train._manager.time", clock)
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    manager = tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=1, keep_checkpoint_every_n_hours=3)
    paths = [manager.save() for _ in range(7)]
    assert [path for path in paths if tf.io.gfile.exists(path)] == [paths[2], paths[5], paths[6]]
    assert manager.checkpoints == paths[-1:]
