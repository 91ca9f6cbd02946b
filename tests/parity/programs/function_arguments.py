"""Arguments that functions change, dictionaries with keys of any kind, datasets as results, copies of functions."""

import copy
import pickle

import tensorflow as tf
from _facts import error, show

c = tf.constant


@tf.function
def adds_key(d):
    d["b"] = d["a"]
    return d["a"]


@tf.function
def appends(x, parts):
    parts.append(x)
    return x


@tf.function
def replaces(d):
    d["a"] = d["a"] + 1.0
    return d["a"]


@tf.function
def changes_copy(d):
    d = dict(d)
    d["b"] = d["a"] + 1.0
    return d["b"]


@tf.function
def calls_another(x):
    return replaces({"a": x})


given = {"a": c(1.0)}
error("adds a key", lambda: adds_key(given))
error("appends", lambda: appends(c(1.0), [c(2.0)]))
error("replaces", lambda: replaces(given))
error("in another function", lambda: calls_another(c(1.0)))
show("changes a copy", changes_copy(given))
show("keys", sorted(given))

v, w = tf.Variable(1.0), tf.Variable([2.0, 3.0])


@tf.function
def plus_one(d):
    return {key: value + 1.0 for key, value in d.items()}


for first, second in ((v, w), (w, v)):
    results = plus_one({first.ref(): first, second.ref(): second})
    show("keys that cannot be sorted", [results[v.ref()], results[w.ref()]])


@tf.function
def keyed(x):
    return {v.ref(): v * x, w.ref(): [w, x]}


results = keyed(c(2.0))
show("results", [results[v.ref()], *results[w.ref()]])


@tf.function
def numbers(n):
    return tf.data.Dataset.range(3).map(lambda x: x + n)


@tf.function
def numbers_and_more(n):
    return {"data": tf.data.Dataset.range(3).batch(2), "n": n + 1}


@tf.function
def total(n):
    sum_ = tf.constant(0, tf.int64)
    for x in numbers(n):
        sum_ += x
    return sum_


show("dataset", [[int(x) for x in numbers(c(n, tf.int64))] for n in (5, 6)])
mixed = numbers_and_more(c(1))
show("dataset and a tensor", [[x.numpy().tolist() for x in mixed["data"]], mixed["n"]])
show("dataset in a function", total(c(1, tf.int64)))
captured = iter(tf.data.Dataset.range(5))
show(
    "iterator in a dataset's function",
    [int(x) for x in tf.data.Dataset.range(2).map(lambda x: x + captured.get_next())],
)


def times_three(x):
    return x * 3.0


tripled = tf.function(times_three, input_signature=[tf.TensorSpec([])])


class Scaled(tf.Module):
    def __init__(self):
        self.scale = tf.Variable(2.0)

    @tf.function
    def __call__(self, x):
        return x * self.scale


scaled = Scaled()
scaled(c(1.0))
twin = copy.deepcopy(scaled)
twin.scale.assign(5.0)
show("pickled", pickle.loads(pickle.dumps(tripled))(c(2.0)))
show("copied", [copy.deepcopy(tripled)(c(2.0)), copy.copy(tripled)(c(2.0))])
error("keeps its signature", lambda: copy.deepcopy(tripled)(c([2.0])))
show("copied with its object", [twin(c(1.0)), scaled(c(1.0))])
show("initializer", [v.initializer, tf.Variable(1.0, aggregation=None, synchronization=None).aggregation.name])


@tf.function
def devices(x):
    with tf.device("/cpu:0"):
        print("device", repr((x + 1.0).device), repr(x.device) in ("''", "'/device:CPU:0'"))
    print("device", repr((x + 1.0).device))
    return v.initializer


show("in a function", devices(c(1.0)))
