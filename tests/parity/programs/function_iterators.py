"""Functions that take elements of iterators."""

import os
import tempfile

import tensorflow as tf
from _facts import error, show

runs = []


@tf.function
def total(iterator):
    runs.append(1)
    return tf.reduce_sum(next(iterator))


data = tf.data.Dataset.range(8).batch(2)
first, second = iter(data), iter(data)
show("two iterators", [total(first), total(second), total(first), total(second)])
show("traced", len(runs))
show("until the end", [total(first), total(first)])
error("at the end", lambda: total(first))
error("once more", lambda: total(first))
show("the other one goes on", next(second))

ragged = tf.data.Dataset.range(7).batch(3)
runs.clear()
iterator = iter(ragged)
show("small last batch", [total(iterator), total(iterator), total(iterator)])
error("behind it", lambda: total(iterator))


@tf.function
def several(one, other):
    return next(one), other.get_next(), next(one)


one, other = iter(tf.data.Dataset.range(10)), iter(tf.data.Dataset.range(10, 20))
show("in order", [several(one, other), several(one, other)])
show("after that", [next(one), next(other)])


@tf.function(autograph=False)
def plain(iterator):
    return {"sum": next(iterator) + next(iterator)}


odd = iter(tf.data.Dataset.range(5))
show("without AutoGraph", [plain(odd), plain(odd)])
error("no second one", lambda: plain(odd))
error("the first was taken", lambda: next(odd))

counted, depends = tf.Variable(0), tf.Variable(0, dtype=tf.int64)


@tf.function
def change(iterator):
    counted.assign_add(1)
    depends.assign_add(next(iterator))


short = iter(tf.data.Dataset.range(3))
for _ in range(3):
    change(short)
error("change at the end", lambda: change(short))
show("what needs no element has changed", counted)
show("what needs one has not", depends)

fresh = iter(tf.data.Dataset.range(5))


@tf.function
def fails_in_trace(iterator):
    next(iterator)
    raise KeyError("mine")


@tf.function
def fails_in_run(iterator):
    tf.debugging.assert_less(next(iterator), tf.constant(0, tf.int64))


error("in the trace", lambda: fails_in_trace(fresh))
show("took none", next(fresh))
error("in the run", lambda: fails_in_run(fresh))
show("took one", next(fresh))
take = tf.function(lambda iterator: next(iterator))
take.get_concrete_function(fresh)
show("a trace takes none", next(fresh))

bad = iter(tf.data.Dataset.range(4).map(lambda x: tf.debugging.check_numerics(1 / tf.cast(x - 1, tf.float32), "zero")))
show("before an error in the data", take(bad))
error("the error", lambda: take(bad))
show("behind it", [take(bad), take(bad)])
error("and its end", lambda: take(bad))

captured = iter(tf.data.Dataset.range(4))


@tf.function
def outer():
    return next(captured) * 10


show("captured", [outer(), outer(), next(captured)])
former, captured = captured, iter(tf.data.Dataset.range(100, 104))
show("that of the trace", [outer(), next(captured)])


@tf.function
def looped(iterator, n):
    result = tf.constant(0, tf.int64)
    for _ in tf.range(n):
        result += next(iterator)
    if result > 3:
        result += next(iterator)
    return result


show("loop and branch", [looped(iter(tf.data.Dataset.range(9)), tf.constant(n)) for n in (2, 3, 4)])


@tf.function
def caught(iterator):
    try:
        return next(iterator)
    except tf.errors.OutOfRangeError:
        return tf.constant(-1, tf.int64)


show("an element", caught(iter(tf.data.Dataset.range(1))))

texts = iter(tf.data.Dataset.from_tensor_slices({"text": ["1 2", "3"], "n": [1, 2]}))


@tf.function
def read(iterator):
    element = next(iterator)
    return tf.reduce_sum(tf.strings.to_number(tf.strings.split(element["text"]))) + tf.cast(element["n"], tf.float32)


show("strings", [read(texts), read(texts)])
error("no more strings", lambda: read(texts))

place = iter(tf.data.Dataset.range(10))
plain(place)
path = tf.train.Checkpoint(iterator=place).save(os.path.join(tempfile.mkdtemp(), "at"))
show("further on", plain(place))
tf.train.Checkpoint(iterator=place).restore(path)
show("from the saved place", plain(place))

with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
    weight = tf.Variable(2.0)


@tf.function
def train(iterator):
    x, y = next(iterator)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x * weight - y))
    weight.assign_sub(0.125 * tape.gradient(loss, weight))
    return loss


pairs = iter(tf.data.Dataset.from_tensor_slices((tf.range(6.0), 3.0 * tf.range(6.0))).batch(2))
show("training", [train(pairs), train(pairs), train(pairs)])
show("weight", weight)
