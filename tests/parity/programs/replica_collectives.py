"""Collectives inside `run`, eager and compiled, differentiable, with structures."""

import tensorflow as tf
from _facts import error, show

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])
values = strategy.experimental_distribute_values_from_function(
    lambda c: tf.constant([c.replica_id_in_sync_group + 1.0, 10.0])
)
local = lambda x: list(strategy.experimental_local_results(x))


def collectives(x):
    context = tf.distribute.get_replica_context()
    return (
        context.all_reduce(tf.distribute.ReduceOp.SUM, x),
        context.all_reduce("MEAN", {"a": x, "b": (x * 2,)}),
        context.all_gather(x, axis=0),
        context.num_replicas_in_sync,
    )


for name, run in (
    ("eager", lambda: strategy.run(collectives, args=(values,))),
    ("compiled", tf.function(lambda: strategy.run(collectives, args=(values,)))),
):
    total, mean, gathered, count = run()
    show(f"{name}: sum", local(total)[0])
    show(f"{name}: mean", [local(mean["a"])[1], local(mean["b"][0])[2]])
    show(f"{name}: gathered", local(gathered)[3])
    show(f"{name}: number", int(local(count)[0]))


def gradient_of_sum(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.distribute.get_replica_context().all_reduce("SUM", x * x)
        loss = tf.reduce_sum(y * x)
    return tape.gradient(loss, x)


show("gradient through all_reduce", local(strategy.run(gradient_of_sum, args=(values,))))


def gradient_of_gather(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.distribute.get_replica_context().all_gather(x * x, axis=0)
        loss = tf.reduce_sum(y * tf.range(8.0))
    return tape.gradient(loss, x)


show("gradient through all_gather", local(strategy.run(gradient_of_gather, args=(values,))))
dataset = tf.data.Dataset.from_tensor_slices(tf.range(6.0)).batch(6)
(uneven,) = strategy.experimental_distribute_dataset(dataset)
show("uneven", local(strategy.run(lambda x: tf.size(x), args=(uneven,))))
show(
    "uneven sum",
    local(
        strategy.run(lambda x: tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(x)), args=(uneven,))
    ),
)
show(
    "uneven gather",
    local(strategy.run(lambda x: tf.distribute.get_replica_context().all_gather(x, axis=0), args=(uneven,)))[0],
)


def gradients_when_uneven(x):
    context = tf.distribute.get_replica_context()
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        total = context.all_reduce("SUM", tf.reduce_sum(x * x)) * tf.reduce_sum(x)
        joined = tf.reduce_sum(context.all_gather(x * x, axis=0) * tf.range(6.0))
    return tape.gradient(total, x), tape.gradient(joined, x)


for name, run in (("", strategy.run), (", compiled", tf.function(strategy.run))):
    by_sum, by_gather = run(gradients_when_uneven, args=(uneven,))
    show(f"uneven gradient of a sum{name}", local(by_sum))
    show(f"uneven gradient of gathered rows{name}", local(by_gather))


def looking_at_values(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        joined = tf.distribute.get_replica_context().all_gather(x * x, axis=0)
        loss = tf.reduce_sum(joined * tf.range(6.0))
        if float(loss) > 1:
            loss = loss * 2
    return tape.gradient(loss, x)


show("gradient of gathered rows, with values", local(strategy.run(looking_at_values, args=(uneven,))))
show("ids", [int(i) for i in local(strategy.run(lambda: tf.distribute.get_replica_context().replica_id_in_sync_group))])
show("context's strategy", strategy.run(lambda: tf.distribute.get_replica_context().strategy is strategy) is not None)
show("not cross replica", bool(local(strategy.run(lambda: tf.constant(tf.distribute.in_cross_replica_context())))[0]))
error("no such reduction", lambda: strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("MAX", 1.0)))

with tf.GradientTape() as tape:
    x = tf.constant(2.0)
    tape.watch(x)
    y = tf.distribute.get_replica_context().all_reduce("SUM", x * 3)
show("default strategy", [y, tape.gradient(y, x)])
