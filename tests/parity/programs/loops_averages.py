"""Loops of one's own: accumulated gradients, averaged weights, a schedule, clipping, a momentum encoder, all_gather."""

import numpy as np
import tensorflow as tf
from _facts import show
from _weights import settle

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])
Sync, Agg = tf.VariableSynchronization, tf.VariableAggregation
GLOBAL_BATCH, STEPS = 8, 2
draw = np.random.RandomState(0)
features = draw.randn(32, 5).astype("float32")
targets = (features @ draw.randn(5, 1)).astype("float32")
distributed = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensor_slices((features, targets)).batch(GLOBAL_BATCH)
)


class WarmUp(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, base, steps):
        super().__init__()
        self.base, self.steps = base, steps

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        rising = self.base * (step + 1.0) / self.steps
        return tf.where(step < self.steps, rising, self.base * tf.math.rsqrt(step + 1.0))


with strategy.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((5,)), tf.keras.layers.Dense(4, activation="tanh"), tf.keras.layers.Dense(1)]
    )
    settle(model, 0)
    optimizer = tf.keras.optimizers.SGD(WarmUp(0.1, 3.0))
    sums = [
        tf.Variable(tf.zeros_like(v), trainable=False, synchronization=Sync.ON_READ, aggregation=Agg.SUM)
        for v in model.trainable_variables
    ]
    averages = [tf.Variable(v.numpy(), trainable=False) for v in model.trainable_variables]
    loss_sum = tf.Variable(0.0, trainable=False, synchronization=Sync.ON_READ, aggregation=Agg.SUM)
    batches = tf.Variable(0, trainable=False, synchronization=Sync.ON_READ, aggregation=Agg.ONLY_FIRST_REPLICA)


@tf.function
def accumulate(x, y):
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x, training=True) - y)) / (GLOBAL_BATCH * STEPS)
        for total, gradient in zip(sums, tape.gradient(loss, model.trainable_variables)):
            total.assign_add(gradient)
        loss_sum.assign_add(loss)
        batches.assign_add(1)
        return loss

    return strategy.reduce("SUM", strategy.run(step, args=(x, y)), axis=None)


@tf.function
def apply():
    def step():
        gradients, norm = tf.clip_by_global_norm([total + 0.0 for total in sums], 1.0)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        for total in sums:
            total.assign(tf.zeros_like(total))
        for average, variable in zip(averages, model.trainable_variables):
            average.assign(0.9 * average + 0.1 * variable)
        return norm

    return strategy.reduce("MEAN", strategy.run(step), axis=None)


for epoch in range(2):
    for number, batch in enumerate(distributed):
        loss = accumulate(*batch)
        if number % STEPS == STEPS - 1:
            show("applied", [loss, apply(), int(optimizer.iterations.numpy())])
    show("epoch", [loss_sum.read_value(), int(batches.read_value().numpy())])
    loss_sum.assign(0.0)
show("averages", [average.numpy() for average in averages])
kept = [variable.numpy() for variable in model.trainable_variables]
for variable, average in zip(model.trainable_variables, averages):
    variable.assign(average)
show("with averages", model(features[:3]))
for variable, value in zip(model.trainable_variables, kept):
    variable.assign(value)
show("without", model(features[:3]))


def encoder():
    return tf.keras.Sequential(
        [tf.keras.Input((5,)), tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(4)]
    )


with strategy.scope():
    student, teacher = encoder(), encoder()
    settle(student, 1)
    teacher.set_weights(student.get_weights())
    schedule = tf.keras.optimizers.schedules.CosineDecay(0.2, 10)
    contrastive = tf.keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True, weight_decay=1e-3)
    contrastive.build(student.trainable_variables)
    queue = tf.Variable(tf.zeros([8, 4]), trainable=False, aggregation=Agg.ONLY_FIRST_REPLICA)


@tf.function
def contrast(x):
    def step(x):
        context = tf.distribute.get_replica_context()
        with tf.GradientTape() as tape:
            mine = tf.math.l2_normalize(student(x * 1.1, training=True), -1)
            keys = tf.stop_gradient(tf.math.l2_normalize(teacher(x * 0.9), -1))
            all_keys = context.all_gather(keys, axis=0)
            rows = tf.shape(x)[0]
            labels = tf.range(rows) + rows * context.replica_id_in_sync_group
            logits = tf.concat(
                [tf.matmul(mine, all_keys, transpose_b=True), tf.matmul(mine, queue, transpose_b=True)], 1
            )
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits * 2.0)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH)
        gradients = tape.gradient(loss, student.trainable_variables)
        contrastive.apply_gradients(zip(gradients, student.trainable_variables))
        for slow, fast in zip(teacher.trainable_variables, student.trainable_variables):
            slow.assign(0.9 * slow + 0.1 * fast)
        queue.assign(tf.concat([queue[4:], all_keys[:4]], 0))
        return loss, tf.linalg.global_norm(gradients)

    loss, norm = strategy.run(step, args=(x,))
    return strategy.reduce("SUM", loss, axis=None), strategy.reduce("MEAN", norm, axis=None)


for x, _ in distributed:
    show("contrast", contrast(x))
show("queue", queue.numpy()[-1])
show("teacher", teacher.trainable_variables[-1].numpy())
