"""A generative adversarial network: two models, two optimizers, one step; and one with a gradient penalty."""

import numpy as np
import tensorflow as tf
from _facts import show
from _weights import settle
from tensorflow import keras

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])
GLOBAL_BATCH, NOISE = 16, 6
draw = np.random.RandomState(0)
images = draw.rand(40, 8, 8, 1).astype("float32") * 2.0 - 1.0
dataset = tf.data.Dataset.from_tensor_slices(images).batch(GLOBAL_BATCH, drop_remainder=True)
distributed = strategy.experimental_distribute_dataset(dataset)

with strategy.scope():
    generator = keras.Sequential(
        [
            keras.layers.Input((NOISE,)),
            keras.layers.Dense(4 * 4 * 4, use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.LeakyReLU(),
            keras.layers.Reshape((4, 4, 4)),
            keras.layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="tanh"),
        ]
    )
    discriminator = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3, strides=2, padding="same"),
            keras.layers.LeakyReLU(),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    settle(generator, 1)
    settle(discriminator, 2)
    generator_optimizer = keras.optimizers.SGD(0.1)
    discriminator_optimizer = keras.optimizers.SGD(0.05, momentum=0.5)
    generator_optimizer.build(generator.trainable_variables)
    discriminator_optimizer.build(discriminator.trainable_variables)
    cross_entropy = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")
    generator_metric, discriminator_metric = keras.metrics.Mean(), keras.metrics.Mean()
    steps = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)


def discriminator_loss(real, fake):
    losses = cross_entropy(tf.ones_like(real), real) + cross_entropy(tf.zeros_like(fake), fake)
    return tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH)


def generator_loss(fake):
    return tf.reduce_sum(cross_entropy(tf.ones_like(fake), fake)) * (1.0 / GLOBAL_BATCH)


def train_step(images, noise):
    with tf.GradientTape() as generator_tape, tf.GradientTape() as discriminator_tape:
        generated = generator(noise, training=True)
        real, fake = discriminator(images, training=True), discriminator(generated, training=True)
        of_generator, of_discriminator = generator_loss(fake), discriminator_loss(real, fake)
    gradients = generator_tape.gradient(of_generator, generator.trainable_variables)
    generator_optimizer.apply_gradients(zip(gradients, generator.trainable_variables))
    gradients = discriminator_tape.gradient(of_discriminator, discriminator.trainable_variables)
    discriminator_optimizer.apply_gradients(zip(gradients, discriminator.trainable_variables))
    generator_metric.update_state(of_generator * strategy.num_replicas_in_sync)
    discriminator_metric.update_state(of_discriminator * strategy.num_replicas_in_sync)
    steps.assign_add(1)
    return of_generator, of_discriminator


@tf.function
def distributed_step(images, noise):
    losses = strategy.run(train_step, args=(images, noise))
    return [strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None) for loss in losses]


for epoch in range(2):
    generator_metric.reset_state()
    discriminator_metric.reset_state()
    for batch in distributed:
        noise = tf.data.Dataset.from_tensor_slices(draw.randn(GLOBAL_BATCH, NOISE).astype("float32")).batch(
            GLOBAL_BATCH
        )
        (noise,) = strategy.experimental_distribute_dataset(noise)
        show("losses", distributed_step(batch, noise))
    show("metrics", [generator_metric.result(), discriminator_metric.result()])
show("steps", [int(steps.numpy()), int(generator_optimizer.iterations.numpy())])
show("bias", discriminator.trainable_variables[-1].numpy())
show("scale", generator.trainable_variables[1].numpy()[:4])

with strategy.scope():
    critic, target = [
        keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="softplus"), keras.layers.Dense(1)])
        for _ in range(2)
    ]
    settle(critic, 3)
    target.set_weights(critic.get_weights())
    critic_optimizer = keras.optimizers.SGD(0.02)
    mean_losses = tf.Variable(
        [0.0, 0.0],
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.MEAN,
    )
points = draw.randn(48, 4).astype("float32")
points = tf.data.Dataset.from_tensor_slices(points).batch(GLOBAL_BATCH, drop_remainder=True).repeat()


def critic_step(real):
    rows = tf.cast(tf.range(tf.shape(real)[0]), tf.float32)
    fake = tf.sin(real * 3.0)
    mix = tf.abs(tf.sin(rows))[:, None]
    between = mix * real + (1.0 - mix) * fake
    with tf.GradientTape() as tape:
        with tf.GradientTape() as inner:
            inner.watch(between)
            scores = critic(between, training=True)
        slopes = tf.sqrt(tf.reduce_sum(inner.gradient(scores, between) ** 2, -1) + 1e-8)
        penalty = 10.0 * tf.reduce_sum((slopes - 1.0) ** 2)
        loss = (tf.reduce_sum(critic(fake)) - tf.reduce_sum(critic(real)) + penalty) / GLOBAL_BATCH
    gradients = tape.gradient(loss, critic.trainable_variables)
    critic_optimizer.apply_gradients(zip(gradients, critic.trainable_variables))
    mean_losses.assign_add(tf.stack([loss, tf.reduce_mean(slopes)]))
    return loss


@tf.function
def train_critic(iterator):
    total = 0.0
    for _ in range(3):
        total += strategy.reduce("SUM", strategy.run(critic_step, args=(next(iterator),)), axis=None)
    for old, new in zip(target.variables, critic.variables):
        old.assign(0.5 * old + 0.5 * new)
    return total


iterator = iter(strategy.experimental_distribute_dataset(points))
show("critic", [train_critic(iterator) for _ in range(2)])
show("means", [mean_losses.read_value(), *mean_losses.values])
show("target", target.trainable_variables[-2].numpy()[:3, 0])
