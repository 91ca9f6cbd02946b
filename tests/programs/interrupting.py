"""A custom loop that shows whether a step was interrupted in its middle."""

from collections.abc import Callable

import tensorflow as tf


def make_loop(strategy: tf.distribute.Strategy) -> tuple[Callable[[], None], Callable[[], str]]:
    """Return a step, and what tells whether all variables are of one step."""
    with strategy.scope():
        values, count = tf.Variable(tf.zeros((1000,))), tf.Variable(0)

    @tf.function
    def step():
        strategy.run(lambda: values.assign_add(tf.ones((1000,))))
        count.assign_add(1)

    step()
    return step, lambda: "whole" if set(values.numpy().tolist()) == {float(count.numpy())} else "torn"
