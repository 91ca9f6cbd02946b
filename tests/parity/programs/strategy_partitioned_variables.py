import os
import sys

import numpy as np
import tensorflow as tf
from _clusters import make_cluster
from _facts import error, show

partitioners = tf.distribute.experimental.partitioners
Fixed, Min, Max = (getattr(partitioners, f"{kind}Partitioner") for kind in ("FixedShards", "MinSize", "MaxSize"))
Shape = tf.TensorShape

# What partitioners answer.
for name, partitioner in {
    "fixed 3": Fixed(3),
    "fixed 30": Fixed(30),
    "fixed 0": Fixed(0),
    "fixed -1": Fixed(-1),
    "min 4, 2": Min(4, 2),
    "min 10, 10": Min(10, 10),
    "min": Min(),
    "min of many": Min(max_shards=100),
    "max 4": Max(4),
    "max 4, 2": Max(4, 2),
    "max 4, 0": Max(4, 0),
    "max 24": Max(24),
    "max 50": Max(50),
    "max 1024": Max(1024),
}.items():
    for shape in ([6, 1], [10, 3], [5], [7, 2, 3]):
        for dtype in (tf.float32, tf.float64, tf.string):
            show(f"{name} of {shape} {dtype.name}", list(partitioner(Shape(shape), dtype)))
show("second axis", [Fixed(3)(Shape([9, 2]), tf.int8, axis=1), Min(4, 3)(Shape([6, 8]), tf.float32, axis=1)])
show("is one", isinstance(Fixed(3), partitioners.Partitioner))
show("no elements", Min(4, 9)(Shape([0, 1]), tf.float32))
error("fixed of a list", lambda: Fixed(2)([10, 2], tf.float32))
error("fixed of an unknown size", lambda: Fixed(2)(Shape([None, 2]), tf.float32))
error("fixed of a scalar", lambda: Fixed(2)(Shape([]), tf.float32))
error("fixed by a word", lambda: Fixed("x")(Shape([3]), tf.float32))
error("min of an axis that is not there", lambda: Min(4, 2)(Shape([6, 1]), tf.float32, axis=2))
error("min of a list", lambda: Min(4, 2)([6, 1], tf.float32))
error("min of an unknown size", lambda: Min(4, 2)(Shape([None, 1]), tf.float32))
error("max of a list", lambda: Max(4)([6, 1], tf.float32))
error("max of an unknown size", lambda: Max(4)(Shape([None, 1]), tf.float32))
error("max of no elements", lambda: Max(4)(Shape([0, 1]), tf.float32))
error("max of a scalar", lambda: Max(4)(Shape([]), tf.float32))
error("no type", lambda: Max(4)(Shape([3]), "nothing"))
for options in ({"min_shard_bytes": 0}, {"max_shards": 0}, {"bytes_per_string": 0}):
    error(f"min {options}", lambda options=options: Min(**options))
for options in ({"max_shard_bytes": 0}, {"max_shards": -1}, {"bytes_per_string": 0}):
    error(f"max {options}", lambda options=options: Max(**{"max_shard_bytes": 4} | options))
error("base", lambda: partitioners.Partitioner()(Shape([3]), tf.float32))


class Answer(partitioners.Partitioner):
    answer: object = (3, 1)

    def __init__(self):
        self.asked = []

    def __call__(self, shape, dtype, axis=0):
        self.asked.append([shape.as_list(), dtype.name])
        return self.answer


# How variables are made.
answer = Answer()
strategy = tf.distribute.ParameterServerStrategy(make_cluster(workers=2, servers=3), variable_partitioner=answer)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
ROWS = np.arange(20, dtype="f4").reshape(10, 2)


def make(parts, value=ROWS, **options):
    answer.answer = parts
    with strategy.scope():
        return tf.Variable(value, **options)


def values(variable):
    return [part.numpy().tolist() for part in variable.variables]


table = make([3, 1], name="table")
scalar, whole = make([3, 1], 1.0, name="scalar"), make([1, 1], name="whole")
integers, frozen = make([2], [1, 2, 3, 4, 5]), make([3, 1], name="frozen", trainable=False)
show("asked", answer.asked)
show("names", [part.name for part in table.variables])
show("no names", [part.name for part in integers.variables])
show("name", table.name)
show("shapes", [part.shape.as_list() for part in table.variables])
show("shape", table.shape.as_list())
show("type", table.dtype.name)
show("on", [part.device for part in [*table.variables, scalar, whole, *integers.variables, *frozen.variables]])
show("trainable", [part.trainable for part in [*table.variables, *frozen.variables]])
show("is a variable", [isinstance(v, tf.Variable) for v in (table, table.variables[0], scalar, whole)])
show("list", isinstance(table.variables, list))
show("attributes", [hasattr(table, name) for name in "trainable device value ref assign scatter_nd_add look".split()])
show("is sharded", table.is_sharded_variable)
for parts in ([], None, [0], [2, 2], "no", [2.5], [-1], 3, [None]):
    error(f"partitioner answers {parts!r}", lambda parts=parts: make(parts))
for parts in ((2,), [2, 1, 1], [30, 1]):
    show(f"parts of {parts}", values(make(parts)))
for parts in ([1, 1, 1], [True]):
    show(f"{parts}", make(parts))
error("no value", lambda: make([2, 1], None))
with tf.name_scope("outer"):
    show("names in a scope", [part.name for part in make([2, 1], name="inner").variables])


def initialize(shape=None, dtype=None, partition_shape=None, partition_offset=None):
    return tf.fill(partition_shape, float(partition_offset[0]))


show("made by parts", values(make([3, 1], initialize, shape=[10, 2], dtype=tf.float32)))
show("called", values(make([3, 1], lambda: tf.constant(ROWS))))
show("called with shape", values(make([3, 1], lambda: tf.constant(ROWS), shape=[10, 2], dtype=tf.float32)))
show("of other numbers", values(make([3, 1], ROWS.tolist(), dtype=tf.float64)))
show("of an unknown shape", values(make([3, 1], shape=[None, 2])))
error("another shape", lambda: make([2, 1], lambda: tf.constant(ROWS), shape=[11, 2], dtype=tf.float32))

# Reads.
show("value", table.numpy())
show("converted", tf.convert_to_tensor(table))
error("converted to another type", lambda: tf.convert_to_tensor(table, dtype=tf.int32))
show("iterated", [part.shape.as_list() for part in table])
for key in (
    0,
    -1,
    9,
    np.int64(3),
    slice(2, 9, 3),
    slice(None, None, -1),
    slice(8, 1, -2),
    slice(5, 5),
    slice(20, None),
):
    show(f"at {key}", table[key])
for key in (slice(-3, None), slice(-30, None), slice(9, -20, -1), slice(20, None, -1), slice(None, 100)):
    show(f"at {key}", table[key])
for key in ((3, 1), (slice(1, 5), 0), (Ellipsis, 1), tf.newaxis, (slice(None), tf.newaxis), (slice(2, 9, 3), Ellipsis)):
    show(f"at {key}", table[key])
show("masked", table[tf.constant([True, False] * 5)])
show("masked by an array", table[np.array([True, False] * 5)])
for key in (10, -11, (), True, 1.5, "x", [1, 2], slice(None, None, 0), tf.constant(1), slice(tf.constant(1), None)):
    error(f"at {'a tensor' if tf.is_tensor(key) else str(key)[:9]}", lambda key=key: table[key])
for name, compute in {
    "sum": lambda v: v + 1.0,
    "difference": lambda v: 1.0 - v,
    "product": lambda v: 2.0 * v * v,
    "quotient": lambda v: v / 4.0,
    "integer quotient": lambda v: v // 3.0,
    "rest": lambda v: v % 3.0,
    "negative": lambda v: -v,
    "absolute": abs,
    "matrix product": lambda v: v @ tf.ones([2, 1]),
    "greater": lambda v: v > 3.0,
    "equal": lambda v: v == ROWS,
    "unequal": lambda v: v != ROWS,
    "with a variable": lambda v: tf.Variable(2.0) * v,
    "with itself": lambda v: v - v,
    "reduced": lambda v: tf.reduce_sum(v, axis=0),
    "joined": lambda v: tf.concat([v, v], 1),
    "gathered": lambda v: tf.gather(v, [1, 7]),
    "shape of": tf.shape,
}.items():
    show(name, compute(table))
show("inverted", ~integers)
error("types that differ", lambda: table + integers)
error("length", lambda: len(table))
error("number", lambda: float(table))
show("in a set", len({table, table}))

# Changes.
show("assigned", table.assign(ROWS * 2).numpy())
show("is itself", [table.assign_add(ROWS) is table, table.assign_sub(ROWS, read_value=False) is table])
show("added", table)
error("fewer rows", lambda: table.assign(tf.zeros([8, 2])))
error("another rank", lambda: table.assign(tf.zeros([10])))
error("a scalar", lambda: table.assign(1.0))
error("another type", lambda: table.assign(tf.zeros([10, 2], tf.int32)))
table.assign(ROWS)
SLICES = tf.IndexedSlices(tf.constant([[2.0, 3.0], [4.0, 5.0], [1.0, 1.0]]), tf.constant([0, 9, 4]))
for how in ("add", "sub", "mul", "div", "min", "max", "update"):
    show(f"scatter_{how}", getattr(table, f"scatter_{how}")(SLICES).numpy())
for row in (10, -1):
    error(f"row {row}", lambda row=row: table.scatter_add(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([row]))))
error("two axes", lambda: table.scatter_add(tf.IndexedSlices(tf.ones([1, 1, 2]), tf.constant([[1]]))))
show("read by rows", table.sparse_read(tf.constant([7, 1, 4])))
table.assign(ROWS)

# Lookups and gradients.
ids = tf.constant([[7, 1], [4, 7]])
show("looked up", tf.nn.embedding_lookup(table, ids))
show("in parts", tf.nn.embedding_lookup(table.variables, ids))
show("in a list", tf.nn.embedding_lookup([table], ids))
show("with norms", tf.nn.embedding_lookup(table, ids, max_norm=1.0))
show("one row", tf.nn.embedding_lookup(table, 7))
show("no row", tf.nn.embedding_lookup(table, tf.zeros([0], tf.int64)))
show("ragged", tf.nn.embedding_lookup(table, tf.ragged.constant([[1, 2], [9]])))
sparse = tf.sparse.from_dense([[7, 1], [4, 0]])
show("sparse", tf.nn.embedding_lookup_sparse(table, sparse, None, combiner="sum"))
show("safe", tf.nn.safe_embedding_lookup_sparse(table, sparse, combiner="mean"))
show("in tensors", tf.nn.embedding_lookup([tf.ones([2, 2]), tf.zeros([1, 2])], [0, 1, 2]))
error("in tensors of other sizes", lambda: tf.nn.embedding_lookup([tf.ones([1, 2]), tf.zeros([3, 2])], [0, 1, 2, 3]))
error("in nothing", lambda: tf.nn.embedding_lookup([], [0]))
for row in (10, -1):
    error(f"look up {row}", lambda row=row: tf.nn.embedding_lookup(table, [row]))


def gradient(compute, variable=table):
    with tf.GradientTape() as tape:
        loss = compute()
    found = tape.gradient(loss, variable.variables)
    return [
        [grad.indices, grad.values, grad.dense_shape] if isinstance(grad, tf.IndexedSlices) else grad for grad in found
    ]


def look_up():
    return tf.reduce_sum(tf.nn.embedding_lookup(table, ids) * tf.constant([1.0, 2.0]))


show("gradient of a lookup", gradient(look_up))
show("gradient of the value", gradient(lambda: tf.reduce_sum(table * table)))
show("gradient of a row", gradient(lambda: tf.reduce_sum(table[5] * 2.0)))
show("gradient of rows", gradient(lambda: tf.reduce_sum(table[3:6] * 2.0)))
show("not trainable", gradient(lambda: tf.reduce_sum(tf.nn.embedding_lookup(frozen, ids)), frozen))
show("not connected", gradient(lambda: tf.constant(1.0)))


def gradient_by_the_whole():
    with tf.GradientTape() as tape:
        loss = look_up()
    return tape.gradient(loss, table)


def gradient_of_watched():
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(frozen)
        loss = tf.reduce_sum(frozen * 3.0)
    return [v.name for v in tape.watched_variables()], tape.gradient(loss, frozen.variables)


error("gradient by the whole", gradient_by_the_whole)
show("watched", gradient_of_watched())


@tf.function
def dense_gradient(ids):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) * tf.constant([1.0, 2.0]))
    return [tf.convert_to_tensor(grad) for grad in tape.gradient(loss, table.variables)]


show("gradient in a function", dense_gradient(ids))


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.table, self.frozen, self.whole, self.all = table, frozen, whole, [table, frozen]


show("variables of a module", [v.name for v in Model().variables])
show("trainable ones", [v.name for v in Model().trainable_variables])
show("leaves", [type(leaf).__name__ for leaf in tf.nest.flatten([table, 1])])
show("leaves of parts", len(tf.nest.flatten([table, 1], expand_composites=True)))


# Workers.
@tf.function
def step(ids):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) * tf.constant([1.0, 2.0]))
    for grad, part in zip(tape.gradient(loss, table.variables), table.variables, strict=True):
        part.scatter_sub(grad)
    return loss


show("step", coordinator.schedule(step, args=(ids,)).fetch())
coordinator.join()
show("after it", table)


@tf.function
def change():
    table.assign_add(tf.ones([10, 2]))
    table.scatter_add(tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 7])))
    return table[7], tf.reduce_sum(table)


show("changed", coordinator.schedule(change).fetch())
show("after all", table)

# Checkpoints.
table.assign(ROWS)
path = tf.train.Checkpoint(table=table, whole=whole).save("saved")
show("saved", [item for item in tf.train.list_variables(path) if "VALUE" in item[0]])
show("loaded", tf.train.load_variable(path, "table/.ATTRIBUTES/VARIABLE_VALUE"))
zeros = np.zeros_like(ROWS)
for parts in ([1, 1], [2, 1], [5, 1], [10, 1]):
    other = make(parts, zeros)
    tf.train.Checkpoint(table=other).restore(path).assert_existing_objects_matched()
    show(f"restored into {parts}", other)
plain = tf.Variable(zeros)
tf.train.Checkpoint(table=plain).restore(path).assert_existing_objects_matched()
show("restored into a variable", plain)
again = make([4, 1], zeros)
tf.train.Checkpoint(table=again).restore(tf.train.Checkpoint(table=plain).save("plain")).assert_consumed()
show("and back", again)
later = tf.train.Checkpoint()
status = later.restore(path)
later.table = make([7, 1], zeros)
show("made later", [len(later.table.variables), later.table])
later.whole = make([2, 1], zeros)
show("of a whole one", later.whole)
status.assert_existing_objects_matched()
sys.stdout.flush()
os._exit(0)  # TensorFlow's servers in this process would wait.
