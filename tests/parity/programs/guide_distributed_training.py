"""The guide to distributed training: the strategies, Keras's fit and evaluate under one, and a training loop."""

import numpy as np
import tensorflow as tf
from _facts import error, show

DEVICES = [f"/cpu:{i}" for i in range(4)]
show("some devices", tf.distribute.MirroredStrategy(DEVICES[:2]).num_replicas_in_sync)
by_copies = tf.distribute.MirroredStrategy(DEVICES, cross_device_ops=tf.distribute.HierarchicalCopyAllReduce())
reducing = tf.distribute.MirroredStrategy(DEVICES, cross_device_ops=tf.distribute.ReductionToOneDevice())
ones = lambda: tf.ones([])
for strategy in (by_copies, reducing):
    show("all-reduce", strategy.reduce("SUM", strategy.run(ones), axis=None))
one = tf.distribute.OneDeviceStrategy(device="/cpu:0")
with one.scope():
    v = tf.Variable(1.0)
    show("one device", [v.device.rpartition("/")[2], one.num_replicas_in_sync, one.run(lambda: v + 1)])
default = tf.distribute.get_strategy()
show("default", [tf.distribute.has_strategy(), default.num_replicas_in_sync, default.reduce("SUM", 1.0, axis=None)])

mirrored_strategy = tf.distribute.MirroredStrategy(DEVICES[:2])


def make_model():
    start = tf.keras.initializers.Constant(0.2)
    layer = tf.keras.layers.Dense(
        1, input_shape=(1,), kernel_initializer=start, kernel_regularizer=tf.keras.regularizers.L2(1e-4)
    )
    return tf.keras.Sequential([layer])


with mirrored_strategy.scope():
    model = make_model()
model.compile(loss="mse", optimizer="sgd")
dataset = tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(100).batch(10)
history = model.fit(dataset, epochs=2, verbose=0)
show("fit", history.history["loss"])
show("evaluate", model.evaluate(dataset, verbose=0))
inputs, targets = np.ones((100, 1)), np.ones((100, 1))
show("of arrays", model.fit(inputs, targets, epochs=2, batch_size=10, verbose=0).history["loss"])
show("weights", model.get_weights())
show("predict", model.predict(np.ones((4, 1)), verbose=0))

BATCH_SIZE_PER_REPLICA = 5
global_batch_size = BATCH_SIZE_PER_REPLICA * mirrored_strategy.num_replicas_in_sync
dataset = tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(100).batch(global_batch_size)
LEARNING_RATES_BY_BATCH_SIZE = {5: 0.1, 10: 0.15, 20: 0.175}
learning_rate = LEARNING_RATES_BY_BATCH_SIZE[global_batch_size]
show("batch and learning rate", [global_batch_size, learning_rate])
with mirrored_strategy.scope():
    model = make_model()
    model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(learning_rate), metrics=["mae"])
show("larger batches", model.fit(dataset, epochs=2, verbose=0).history)

with mirrored_strategy.scope():
    model = make_model()
    optimizer = tf.keras.optimizers.SGD()
dataset = tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(105).batch(global_batch_size)
dist_dataset = mirrored_strategy.experimental_distribute_dataset(dataset)
loss_object = tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")


def train_step(inputs):
    features, labels = inputs
    with tf.GradientTape() as tape:
        predictions = model(features, training=True)
        per_example_loss = loss_object(labels, predictions)
        loss = tf.nn.compute_average_loss(per_example_loss, global_batch_size=global_batch_size)
        model_losses = model.losses
        if model_losses:
            loss += tf.nn.scale_regularization_loss(tf.add_n(model_losses))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


@tf.function
def distributed_train_step(dist_inputs):
    per_replica_losses = mirrored_strategy.run(train_step, args=(dist_inputs,))
    return mirrored_strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


show("epoch", [distributed_train_step(dist_inputs) for dist_inputs in dist_dataset])
iterator = iter(dist_dataset)
show("by iterator", [distributed_train_step(next(iterator)) for _ in range(11)])
show("at its end", next(iterator, None) is not None)
error("after its end", lambda: next(iterator))
show("trained", model.get_weights())
weighted = tf.nn.compute_average_loss(
    tf.constant([1.0, 2.0]), sample_weight=tf.constant([1.0, 0.5]), global_batch_size=4
)
show("with sample weights", weighted)
with mirrored_strategy.scope():
    show(
        "batch size known by the strategy",
        mirrored_strategy.run(lambda: tf.nn.compute_average_loss(tf.ones([2]))).values,
    )


def mean_inside(inputs):
    features, _ = inputs
    return tf.reduce_mean(features)


values = mirrored_strategy.run(mean_inside, args=(next(iter(dist_dataset)),))
print("printed:", values)
print([values])
with mirrored_strategy.scope():
    print(tf.Variable([1.0, 2.0], name="mirrored"))
    on_read = {"synchronization": tf.VariableSynchronization.ON_READ, "aggregation": tf.VariableAggregation.SUM}
    print([tf.Variable(1, name="counts", **on_read)])
with one.scope():
    print(tf.Variable(1, name="single"))
show("values", [list(values.values), mirrored_strategy.reduce("MEAN", values, axis=None)])
