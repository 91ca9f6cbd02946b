"""Change and read variables from eight threads in all ways that there are; prints which counts are right, as JSON.

Argument: how many operations each thread does.
"""

import collections
import json
import sys
import threading
import traceback

import numpy as np
import tensorflow as tf

THREADS = 8
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    total, one, other = (tf.Variable(tf.zeros((100,))) for _ in range(3))
    replicated = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
eager, rows = tf.Variable(0), tf.Variable(tf.zeros((4, 2)))
generator = tf.random.Generator.from_seed(1)


@tf.function
def add():
    total.assign_add(tf.ones((100,)))


@tf.function
def exchange():
    one.assign_add(tf.ones((100,)))
    other.assign_sub(tf.ones((100,)))
    return one[0] + other[0]


@tf.function
def add_on_replicas():
    strategy.run(lambda: replicated.assign_add(1.0))


def add_on_replicas_uncompiled():
    strategy.run(lambda: replicated.assign_add(1.0))


def add_eagerly():
    eager.assign_add(1)


def add_rows():
    rows.scatter_add(tf.IndexedSlices(tf.ones((1, 2)), tf.constant([1])))


def draw():
    generator.uniform([2])


def must_exchange_all():
    assert float(exchange()) == 0.0


def read():
    found = total.numpy()
    assert (found == found[0]).all(), found
    np.asarray(other)
    tf.constant(0.0) + one


operations = [add, must_exchange_all, add_on_replicas, add_on_replicas_uncompiled, add_eagerly, add_rows, draw, read]
done, errors = collections.Counter(), []


def work(number):
    own = np.random.default_rng(number).integers(len(operations), size=int(sys.argv[1]))
    try:
        for i in own:
            operations[i]()
    except BaseException:
        errors.append(traceback.format_exc())
    done.update(operations[i].__name__ for i in own)


for operation in operations:
    operation()
    done[operation.__name__] += 1
threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
right = {
    "add": total.numpy()[0] == done["add"],
    "exchange": one.numpy()[0] == done["must_exchange_all"] == -other.numpy()[0],
    "replicas": float(replicated.numpy())
    == strategy.num_replicas_in_sync * (done["add_on_replicas"] + done["add_on_replicas_uncompiled"]),
    "eager": int(eager) == done["add_eagerly"],
    "rows": rows.numpy()[1, 0] == done["add_rows"],
    # Each takes 256 of the counter for each of its two numbers, as TensorFlow does.
    "draws": int(generator.state[0]) == 1 + 2 * 256 * done["draw"],
}
print(json.dumps({"errors": errors, **{name: bool(is_right) for name, is_right in right.items()}}))
