"""One loop under the default strategy, on one device, and mirrored on one and on four."""

import numpy as np
import tensorflow as tf
from _facts import show
from _weights import settle

GLOBAL_BATCH = 8
features = np.random.RandomState(0).randn(18, 3).astype("float32")
targets = features.sum(1, keepdims=True)
losses_of_rows = tf.keras.losses.MeanSquaredError(reduction="none")
STRATEGIES = {
    "default": tf.distribute.get_strategy,
    "one device": lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
    "mirrored on one": lambda: tf.distribute.MirroredStrategy(["/cpu:0"]),
    "mirrored on four": lambda: tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)]),
}


def run_loop(name, strategy):
    local = lambda value: list(strategy.experimental_local_results(value))
    dataset = tf.data.Dataset.from_tensor_slices((features, targets)).batch(GLOBAL_BATCH)
    distributed = strategy.experimental_distribute_dataset(dataset)
    with strategy.scope():
        layers = [tf.keras.Input((3,)), tf.keras.layers.Dense(4, activation="tanh"), tf.keras.layers.Dense(1)]
        model, optimizer = tf.keras.Sequential(layers), tf.keras.optimizers.SGD(0.1, momentum=0.9)
        settle(model, 1)
        optimizer.build(model.trainable_variables)
        mean = tf.keras.metrics.Mean()
        steps = tf.Variable(0, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
        total = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
        average = tf.Variable(tf.zeros_like(model.trainable_variables[0]), trainable=False)

    def step(x, y):
        context = tf.distribute.get_replica_context()
        with tf.GradientTape() as tape:
            losses = losses_of_rows(y, model(x, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        mean.update_state(loss * context.num_replicas_in_sync)
        steps.assign_add(1)
        total.assign_add(loss)
        average.assign(0.5 * average + 0.5 * model.trainable_variables[0])
        gathered = context.all_gather(tf.reshape(loss, [1]), axis=0)
        merged = context.merge_call(lambda strategy, x: strategy.reduce("SUM", x, axis=None), args=(loss,))
        return loss, context.all_reduce("SUM", loss), tf.shape(gathered)[0], merged

    @tf.function
    def train(batch):
        loss, everywhere, parts, merged = strategy.run(step, args=batch)
        reduced = [strategy.reduce("SUM", loss, axis=None), strategy.reduce("MEAN", everywhere, axis=None)]
        return [*reduced, strategy.reduce("MEAN", parts, axis=None), merged]

    show(f"{name}: replicas", strategy.num_replicas_in_sync)
    for batch in distributed:
        show(f"{name}: losses", [float(x) for x in train(batch)])
    show(f"{name}: metrics", [mean.result(), int(steps.numpy()), total.read_value(), average.numpy()[0]])
    batch = next(iter(distributed))
    show(f"{name}: rows", [list(x.shape) for x in local(batch[0])])
    sums = strategy.run(lambda x, y: tf.reduce_sum(x, 1), args=batch)
    show(f"{name}: gathered", strategy.gather(sums, axis=0))
    show(f"{name}: reduced", [strategy.reduce(op, sums, axis=0) for op in ("SUM", "MEAN")])
    numbers = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(context.replica_id_in_sync_group + context.num_replicas_in_sync)
    )
    show(f"{name}: values", local(numbers))
    show(f"{name}: Python values", strategy.run(lambda: (1, "a", None)))
    show(f"{name}: by name", local(strategy.run(lambda a, b=2: tf.constant(a * b), kwargs={"a": 3, "b": 4})))
    made = strategy.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.range(8).batch(context.get_per_replica_batch_size(8))
    )
    show(f"{name}: made for replicas", [local(each) for each in made])


for name, make in STRATEGIES.items():
    run_loop(name, make())
