"""`reduce`, `gather` and `all_reduce` of every type and axis; values that are no tensors: text, Python's numbers."""

import copy
import pickle

import numpy as np
import tensorflow as tf
from _facts import error, show

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])


def local(value):
    return list(strategy.experimental_local_results(value))


def from_number(make):
    return strategy.experimental_distribute_values_from_function(lambda context: make(context.replica_id_in_sync_group))


def replicas_say(function, *values):
    return local(strategy.run(function, args=values))


VALUES = {
    "int32": from_number(lambda i: tf.constant([[i, 2 * i, 5], [1, 2, i]])),
    "int64": from_number(lambda i: tf.constant([i + 1], tf.int64)),
    "uint8": from_number(lambda i: tf.constant([i + 100], tf.uint8)),
    "float16": from_number(lambda i: tf.constant([i + 0.5], tf.float16)),
    "float64": from_number(lambda i: tf.constant([i + 0.5], tf.float64)),
    "complex64": from_number(lambda i: tf.constant([complex(i, 1)], tf.complex64)),
    "bool": from_number(lambda i: tf.constant([i % 2 == 0])),
    "text": from_number(lambda i: tf.constant([f"r{i}"])),
}
for name, values in VALUES.items():
    for op in ("SUM", "MEAN"):
        error(f"{op} of {name}", lambda op=op, values=values: strategy.reduce(op, values, axis=None))
    if name not in ("bool", "text"):
        error(f"SUM of {name} along -1", lambda values=values: strategy.reduce("SUM", values, axis=-1))
        error(f"MEAN of {name} along 0", lambda values=values: strategy.reduce("MEAN", values, axis=0))
        compiled = tf.function(lambda values=values: strategy.reduce("MEAN", values, axis=None))
        show(f"MEAN of {name} in a function", compiled())
for name in ("int32", "int64", "float16", "bool"):
    for op in ("SUM", "MEAN"):
        reduce = lambda x, op=op: tf.distribute.get_replica_context().all_reduce(op, x)
        error(f"all_reduce {op} of {name}", lambda reduce=reduce, name=name: replicas_say(reduce, VALUES[name])[1])
for axis in (2, -3):
    error(f"no axis {axis}", lambda axis=axis: strategy.reduce("SUM", VALUES["int32"], axis=axis))

PLAIN = {"vector": tf.constant([1.0, 2.0]), "integers": np.array([1, 2]), "number": 3.0}
for name, value in PLAIN.items():
    for op in ("SUM", "MEAN"):
        for axis in (None, 0):
            error(f"{op} of a plain {name}, axis {axis}", lambda o=op, v=value, a=axis: strategy.reduce(o, v, axis=a))

cube = from_number(lambda i: tf.reshape(tf.range(4) + 10 * i, [1, 2, 2]))
for axis in (0, 1, 2, -1, -3, 3, -4):
    error(f"gather {axis}", lambda axis=axis: strategy.gather(cube, axis=axis))
    gather = lambda x, axis=axis: tf.distribute.get_replica_context().all_gather(x, axis=axis)
    error(f"all_gather {axis}", lambda gather=gather: replicas_say(gather, cube)[1])
rows = from_number(lambda i: tf.ones([i + 1, 2]))
columns = from_number(lambda i: tf.ones([2, i + 1]))
show("gather rows", tf.shape(strategy.gather(rows, axis=0)))
error("gather rows along 1", lambda: strategy.gather(rows, axis=1))
error("gather columns along 0", lambda: strategy.gather(columns, axis=0))
error("sum of uneven values", lambda: strategy.reduce("SUM", rows, axis=None))
show("sum of uneven columns", strategy.reduce("SUM", columns, axis=1))
error("mean of uneven columns along 0", lambda: strategy.reduce("MEAN", columns, axis=0))
show("gather of what is equal", strategy.gather(tf.constant([1.0, 2.0]), axis=0))

show("text from run", strategy.run(lambda: "abc"))
show("text tensor from run", local(strategy.run(lambda: tf.constant("abc"))))
show("text from a function", tf.function(lambda: strategy.run(lambda: "abc"))())
show("text tensors from a function", local(tf.function(lambda: strategy.run(lambda: tf.constant("abc")))()))
show("text passed through", replicas_say(lambda x: x, VALUES["text"]))
show("text joined", replicas_say(lambda x: tf.concat([x, ["!"]], 0), VALUES["text"]))
show("mixed results", strategy.run(lambda: {"n": 3, "s": "x", "none": None, "t": (1, 2.0)}))

MADE = {
    "None": lambda i: None,
    "numbers": lambda i: i,
    "equal numbers": lambda i: 3,
    "texts": lambda i: f"a{i}",
    "arrays": lambda i: np.arange(2.0) + i,
    "uneven": lambda i: tf.ones([i]),
    "several types": lambda i: tf.constant(1.0 if i else 1),
}
for name, make in MADE.items():
    show(f"values from a function: {name}", list(from_number(make).values))
show("in a dict", list(from_number(lambda i: {"a": [tf.constant(i)]})["a"][0].values))
show("Python numbers in replicas", replicas_say(lambda x: tf.constant(x * 2.5), from_number(lambda i: i)))
error("a function without argument", lambda: strategy.experimental_distribute_values_from_function(lambda: 1.0))
error("no function", lambda: strategy.experimental_distribute_values_from_function(3))
context = tf.distribute.experimental.ValueContext(2, 3)
show("contexts", [str(context), str(tf.distribute.InputContext(2, 1, 3))])

error("copy", lambda: copy.copy(strategy))
error("deepcopy", lambda: copy.deepcopy({"s": strategy})["s"].num_replicas_in_sync)
error("pickle", lambda: pickle.dumps(strategy))
values = VALUES["int64"]
for name, use in {
    "numpy": lambda: values.numpy(),
    "float": lambda: float(values),
    "add": lambda: values + 1,
    "tf.add": lambda: tf.add(values, 1),
    "convert": lambda: tf.convert_to_tensor(values),
    "len": lambda: len(values),
    "index": lambda: values[0],
    "iterate": lambda: list(values),
    "dtype": lambda: values.dtype,
}.items():
    error(f"{name} of values", use)
