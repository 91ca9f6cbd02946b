"""The guide to TPUs: on one, or on CPU devices in its place, else on replicas of the processor; the same numbers."""

import numpy as np
import tensorflow as tf
from _facts import show

try:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    cores = tf.config.list_logical_devices("TPU")
    assert len(cores) == 4, cores
    with tf.device("/TPU:0"):
        assert tf.matmul(tf.ones([2, 2]), tf.ones([2, 2])).device
    older = tf.distribute.experimental.TPUStrategy(resolver)
    assert isinstance(older, tf.distribute.experimental.TPUStrategy), type(older)
    assert older.num_replicas_in_sync == 4 and older.cluster_resolver is resolver
    strategy, on_tpu = tf.distribute.TPUStrategy(resolver), True
except (ValueError, tf.errors.NotFoundError):
    strategy, on_tpu = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)]), False
show("replicas", strategy.num_replicas_in_sync)

a = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
b = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


@tf.function
def matmul_fn(x, y):
    return tf.matmul(x, y)


z = strategy.run(matmul_fn, args=(a, b))
show("on every core", list(strategy.experimental_local_results(z))[0])

rng = np.random.RandomState(0)
IMAGES = {True: rng.rand(96, 6, 6, 1).astype("f4"), False: rng.rand(40, 6, 6, 1).astype("f4")}
LABELS = {True: rng.randint(0, 5, 96), False: rng.randint(0, 5, 40)}


def get_dataset(batch_size, is_training=True):
    dataset = tf.data.Dataset.from_tensor_slices((IMAGES[is_training] * 255, LABELS[is_training]))

    def scale(image, label):
        return tf.cast(image, tf.float32) / 255.0, label

    dataset = dataset.map(scale)
    if is_training:
        dataset = dataset.repeat()
    return dataset.batch(batch_size)


def create_model():
    regularizer = tf.keras.regularizers.L2(1e-3)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((6, 6, 1)),
            tf.keras.layers.Conv2D(4, 3, activation="relu", kernel_regularizer=regularizer),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(8, activation="relu", kernel_regularizer=regularizer),
            tf.keras.layers.Dense(5),
        ]
    )
    weights = np.random.RandomState(1)
    model.set_weights([weights.randn(*w.shape).astype("f4") * 0.3 for w in model.get_weights()])
    return model


batch_size, steps_per_epoch, validation_steps = 16, 6, 2
train_dataset, test_dataset = get_dataset(batch_size), get_dataset(batch_size, is_training=False)


def fit(steps_per_execution):
    with strategy.scope():
        model = create_model()
        model.compile(
            optimizer=tf.keras.optimizers.SGD(0.1),
            steps_per_execution=steps_per_execution,
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["sparse_categorical_accuracy"],
        )
    history = model.fit(
        train_dataset,
        epochs=2,
        steps_per_epoch=steps_per_epoch,
        validation_data=test_dataset,
        validation_steps=validation_steps,
        verbose=0,
    )
    return {name: [round(number, 5) for number in numbers] for name, numbers in history.history.items()}


history = fit(steps_per_execution=1)
show("fit", history)
if on_tpu:  # TensorFlow crashes on replicas of the processor.
    assert fit(steps_per_execution=2) == history

with strategy.scope():
    model = create_model()
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    training_loss = tf.keras.metrics.Mean("training_loss", dtype=tf.float32)
    training_accuracy = tf.keras.metrics.SparseCategoricalAccuracy("training_accuracy", dtype=tf.float32)
per_replica_batch_size = batch_size // strategy.num_replicas_in_sync
train_dataset = strategy.distribute_datasets_from_function(lambda _: get_dataset(per_replica_batch_size))


def step_fn(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        per_example_loss = tf.keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        loss = tf.nn.compute_average_loss(per_example_loss)
        model_losses = model.losses
        if model_losses:
            loss += tf.nn.scale_regularization_loss(tf.add_n(model_losses))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(list(zip(gradients, model.trainable_variables)))
    training_loss.update_state(loss * strategy.num_replicas_in_sync)
    training_accuracy.update_state(labels, logits)


@tf.function
def train_step(iterator):
    strategy.run(step_fn, args=(next(iterator),))


@tf.function
def train_multiple_steps(iterator, steps):
    for _ in tf.range(steps):
        strategy.run(step_fn, args=(next(iterator),))


def report(label):
    show(label, [int(optimizer.iterations.numpy()), training_loss.result(), training_accuracy.result()])
    training_loss.reset_state()
    training_accuracy.reset_state()


train_iterator = iter(train_dataset)
for epoch in range(2):
    for _ in range(steps_per_epoch):
        train_step(train_iterator)
    report(f"epoch {epoch}")
train_multiple_steps(train_iterator, tf.convert_to_tensor(steps_per_epoch))
report("several steps in a function")
show("weights", [float(np.abs(w).sum()) for w in model.get_weights()])
