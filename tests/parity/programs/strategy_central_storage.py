import tensorflow as tf
from _facts import error, show

Central = tf.distribute.experimental.CentralStorageStrategy
strategy = Central(["/cpu:0", "/cpu:1"], "/cpu:2")
show("replicas", strategy.num_replicas_in_sync)
show("workers", list(strategy.extended.worker_devices))


def replica_id():
    return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)


for name, arguments in {
    "two": (["/cpu:0", "/cpu:1"],),
    "named": (["/cpu:0", "/cpu:1"], "/cpu:1"),
    "one": (["/cpu:1"],),
    "one and another": (["/cpu:0"], "/cpu:3"),
}.items():
    other = Central(*arguments)
    with other.scope():
        show(f"{name}: variable on", tf.Variable([1.0, 2.0]).device)
    show(f"{name}: replicas", other.num_replicas_in_sync)
error("no list", lambda: Central("/cpu:0"))
error("no device", lambda: Central(["/foo:0"]))

AGGREGATIONS = ("MEAN", "SUM", "ONLY_FIRST_REPLICA")
for synchronization in ("ON_WRITE", "ON_READ", "AUTO"):
    for aggregation in AGGREGATIONS:
        with strategy.scope():
            v = tf.Variable(
                1.0,
                synchronization=getattr(tf.VariableSynchronization, synchronization),
                aggregation=getattr(tf.VariableAggregation, aggregation),
            )
        label = f"{synchronization} {aggregation}"
        show(f"{label} trainable", v.trainable)
        for how in (lambda step: step, tf.function):
            strategy.run(how(lambda: v.assign_add(replica_id() + 1.0)))
            show(f"{label} added", v)
            strategy.run(how(lambda: v.assign(replica_id() + 5.0)))
            show(f"{label} assigned", v)
        v.assign(3.0)
        show(f"{label} outside", v)
        show(f"{label} read", strategy.run(lambda: v + replica_id()).values)
        error(f"{label} reduced", lambda: strategy.reduce("SUM", v, axis=None))
        show(f"{label} results", strategy.experimental_local_results(v)[0] is v)

show("sum", strategy.reduce("SUM", strategy.run(replica_id), axis=None))
show("mean", strategy.reduce("MEAN", strategy.run(replica_id), axis=None))
batches = strategy.experimental_distribute_dataset(tf.data.Dataset.range(7).batch(4))
show("batches", [strategy.experimental_local_results(batch) for batch in batches])


def make_dataset(context):
    size = context.get_per_replica_batch_size(4)
    return tf.data.Dataset.range(8).batch(size)


batches = strategy.distribute_datasets_from_function(make_dataset)
show("batches of a function", [strategy.experimental_local_results(batch) for batch in batches])

with strategy.scope():
    weights = tf.Variable([[1.0], [2.0]])
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
data = tf.data.Dataset.from_tensor_slices(tf.reshape(tf.range(14.0), (7, 2)) / 14.0).batch(2)


def replica_step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((x @ weights) ** 2) / 2.0
    optimizer.apply_gradients(zip(tape.gradient(loss, [weights]), [weights], strict=True))
    return loss


@tf.function
def step(x):
    return strategy.reduce("SUM", strategy.run(replica_step, args=(x,)), axis=None)


for x in strategy.experimental_distribute_dataset(data):
    show("loss", step(x))
show("weights", weights)
show("weights are on", weights.device)
