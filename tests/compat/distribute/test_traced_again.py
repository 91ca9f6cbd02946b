"""Replicas that are traced again, in another way: the step that they run does not notice."""

import warnings

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


def make(strategy, optimizer):
    with strategy.scope():
        return tf.Variable(tf.ones([64, 64])), optimizer


def test_handlers_in_a_step_do_not_take_what_has_it_traced_again():
    options = tf.distribute.experimental.CommunicationOptions(compression="int8")
    strategy = tf.distribute.MirroredStrategy(communication_options=options)
    variable, optimizer = make(strategy, keras.optimizers.SGD(0.1))
    taken = []

    def step():
        try:
            optimizer.apply_gradients([(tf.ones([64, 64]), variable)])
        except Exception as error:
            taken.append(error)

    strategy.run(step)
    assert not taken
    np.testing.assert_allclose(variable, 1 - 8 * 0.1, rtol=1e-2)


def test_handlers_do_not_take_that_a_step_uses_what_an_update_changes():
    strategy = tf.distribute.experimental.FSDPStrategy()
    variable, optimizer = make(strategy, keras.optimizers.SGD(0.1, momentum=0.9))

    def step():
        optimizer.apply_gradients([(tf.ones([64, 64]), variable)])
        try:
            return optimizer.iterations + 0
        except Exception:
            return tf.constant(-1)

    with pytest.warns(UserWarning, match="state on each device while it runs: it uses '.*iteration' after"):
        (count, *_) = strategy.experimental_local_results(strategy.run(step))
    assert int(count) == 1
    np.testing.assert_allclose(variable, 1 - 8 * 0.1, rtol=1e-6)


def test_a_step_that_needs_all_of_the_state_for_its_uneven_batch_says_so():
    strategy = tf.distribute.experimental.FSDPStrategy()
    variable, optimizer = make(strategy, keras.optimizers.SGD(0.1, momentum=0.9))

    def step(x):
        optimizer.apply_gradients([(tf.ones([64, 64]) * tf.reduce_sum(x), variable)])

    run = tf.function(lambda x: strategy.run(step, args=(x,)))
    uneven, even = (
        next(iter(strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(tf.ones([rows])))))
        for rows in (13, 16)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(even)
    np.testing.assert_allclose(variable, 1 - 0.1 * 16, rtol=1e-6)
    with pytest.warns(UserWarning, match="whose replicas' batches differ in size"):
        run(uneven)
    np.testing.assert_allclose(variable, -0.6 - 0.1 * (0.9 * 16 + 13), rtol=1e-6)
