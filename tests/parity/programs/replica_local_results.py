"""Local results: one structure for each replica, whose tensors, on several devices, operations combine."""

import tensorflow as tf
from _facts import error, show

two = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
other = tf.distribute.MirroredStrategy(["/cpu:1", "/cpu:2"])
one = tf.distribute.OneDeviceStrategy("/cpu:1")
local, local_of_other = two.experimental_local_results, other.experimental_local_results


def number():
    return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32) + tf.ones([2])


def structure():
    return {"b": number(), "a": (tf.constant(2), [None, "text", 3])}


def slices():
    return tf.IndexedSlices(number()[:, None], tf.constant([0, 2]), tf.constant([3, 1]))


def gradients():
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(x * x * number())
    return [tape.gradient(y, x)]


for name, strategy in (("two", two), ("one", one), ("default", tf.distribute.get_strategy())):
    results = strategy.experimental_local_results
    show(f"structures {name}", results(strategy.run(structure)))
    show(f"order of keys {name}", list(results(strategy.run(structure))[0]))
    show(f"gradients {name}", results(strategy.run(gradients)))
    show(f"slices {name}", [[s.values, s.indices] for s in results(strategy.run(slices))])
    show(f"no tensors {name}", [results({}), results([1, (2, None)]), results(()), results(None), results(3)])
    show(f"variable outside {name}", results(tf.Variable(1.0)))
show("compiled", tf.function(lambda: local(two.run(structure))[1]["b"])())
sparse = two.experimental_distribute_values_from_function(
    lambda context: tf.sparse.SparseTensor([[0, context.replica_id_in_sync_group]], [1.0], [2, 3])
)
show("sparse tensors", [[s.indices, s.values] for s in local(sparse)])

a, b = two.run(number), other.run(number)
show("stack", tf.stack(local(a)))
show("concat", tf.concat(local(a), 0))
show("sums", [a.values[0] + a.values[1], sum(local(a)), tf.add_n(a.values), tf.maximum(*local(a))])
show("reductions", [tf.reduce_mean(local(a)), tf.reduce_sum(a.values, 0), tf.reduce_max(a.values)])
show("products", [tf.matmul([local(a)[0]], local(a)[1][:, None]), tf.tensordot(*local(a), 1)])
show("comparisons", [local(a)[0] == local(a)[1], tf.where(a.values[0] < a.values[1], *local(a))])
show("a function's arguments", tf.function(lambda x, y: x * y)(*local(a)))
show("with values of another strategy", tf.concat([*local(a), *local_of_other(b)], 0))
sums = [two.reduce("SUM", a, axis=None), other.reduce("SUM", b, axis=None)]
show("sums of two strategies", [sums[0] + sums[1], tf.stack(sums), tf.add_n(sums), tf.multiply(*sums)])
show("with local values", [sums[0] + b.values[1], tf.concat([sums[1], a.values[0]], 0)])
show("both in a function", tf.function(lambda x, y: x + y)(*sums))
show("back into replicas", local(two.run(lambda x: x * 2.0, args=(b.values[1],))))
x = local(a)[1]
with tf.GradientTape() as tape:
    tape.watch(x)
    y = tf.reduce_sum(tf.concat([x * x, local_of_other(b)[0]], 0) * tf.concat([sums[0], x], 0))
show("gradient", tape.gradient(y, x))
with two.scope():
    v = tf.Variable([1.0, 2.0])
with other.scope():
    w = tf.Variable([3.0, 4.0])
plain = tf.Variable([0.0, 0.0])
with tf.GradientTape() as tape:
    y = tf.reduce_sum(v * w)
show("gradients of two strategies' variables", tape.gradient(y, [v, w]))
show("variables", [v + w, tf.stack([v, w])])
plain.assign(local(a)[1])
show("assigned", [plain, plain + v, plain + w])
v.assign(local_of_other(b)[1])
w.assign(sums[0])
show("assigned to mirrored ones", [v, w])
error("other shapes", lambda: tf.stack([local(a)[0], tf.ones([3])]))
error("other types", lambda: local(a)[0] + tf.constant([1, 2]))
