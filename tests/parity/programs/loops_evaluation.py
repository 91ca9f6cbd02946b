"""Training and evaluation with a short last batch: metrics of Keras, sums on each replica, gathered predictions."""

import numpy as np
import tensorflow as tf
from _facts import show
from _weights import settle

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])
GLOBAL_BATCH = 16
draw = np.random.RandomState(0)
features, labels = draw.randn(53, 6).astype("float32"), draw.randint(0, 3, 53)


def distributed(rows):
    dataset = tf.data.Dataset.from_tensor_slices((features[:rows], labels[:rows])).batch(GLOBAL_BATCH)
    return strategy.experimental_distribute_dataset(dataset)


class Counts:
    """What a metric is made of, by hand: sums on each replica, added up when they are read."""

    def __init__(self):
        of_replica = {
            "trainable": False,
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.SUM,
        }
        self.total, self.correct = tf.Variable(0.0, **of_replica), tf.Variable(0.0, **of_replica)
        self.confusion = tf.Variable(tf.zeros([3, 3]), **of_replica)

    def update(self, labels, scores):
        chosen = tf.argmax(scores, -1)
        self.correct.assign_add(tf.reduce_sum(tf.cast(tf.equal(chosen, tf.cast(labels, tf.int64)), tf.float32)))
        self.total.assign_add(tf.cast(tf.size(labels), tf.float32))
        self.confusion.assign_add(tf.math.confusion_matrix(labels, chosen, num_classes=3, dtype=tf.float32))

    def reset(self):
        for variable in (self.total, self.correct, self.confusion):
            variable.assign(tf.zeros_like(variable))


class Trainer:
    def __init__(self):
        layers = [tf.keras.Input((6,)), tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(3)]
        self.model = tf.keras.Sequential(layers)
        settle(self.model, 0)
        self.optimizer = tf.keras.optimizers.Adam(0.01)
        self.optimizer.build(self.model.trainable_variables)
        self.losses = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        self.train_loss, self.test_loss = tf.keras.metrics.Mean(), tf.keras.metrics.Mean()
        self.accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
        self.top2 = tf.keras.metrics.SparseTopKCategoricalAccuracy(k=2)
        self.counts = Counts()

    def train_step(self, x, y):
        with tf.GradientTape() as tape:
            losses = self.losses(y, self.model(x, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH)
            size = tf.add_n([tf.nn.l2_loss(w) for w in self.model.trainable_variables])
            total = loss + tf.nn.scale_regularization_loss(size * 1e-3)
        gradients = tape.gradient(total, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
        self.train_loss.update_state(loss * strategy.num_replicas_in_sync)
        return loss

    def test_step(self, x, y):
        scores = self.model(x, training=False)
        self.test_loss.update_state(self.losses(y, scores))
        for metric in (self.accuracy, self.top2, self.counts):
            getattr(metric, "update_state", getattr(metric, "update", None))(y, scores)
        return tf.nn.softmax(scores), y

    @tf.function
    def train(self, batch):
        return strategy.reduce("SUM", strategy.run(self.train_step, args=batch), axis=None)

    @tf.function
    def test(self, batch):
        return strategy.run(self.test_step, args=batch)


with strategy.scope():
    trainer = Trainer()
    best = tf.Variable(0.0, trainable=False)
for epoch in range(2):
    losses = [trainer.train(batch) for batch in distributed(48)]
    show("train", [sum(losses) / 3.0, trainer.train_loss.result()])
    gathered, seen = [], []
    for batch in distributed(53):
        probabilities, of_replicas = trainer.test(batch)
        gathered.append(strategy.gather(probabilities, axis=0).numpy())
        seen += [label for part in strategy.experimental_local_results(of_replicas) for label in part.numpy().tolist()]
    gathered = np.concatenate(gathered)
    show("gathered", [list(gathered.shape), seen == labels.tolist(), float((gathered.argmax(-1) == labels).mean())])
    show("metrics", [metric.result() for metric in (trainer.test_loss, trainer.accuracy, trainer.top2)])
    counts = trainer.counts
    show("counts", [counts.correct.read_value() / counts.total.read_value(), counts.confusion.read_value()])
    show("of the last replica", [float(x) for x in strategy.experimental_local_results(counts.total)][-1])
    if float(trainer.accuracy.result()) > float(best.numpy()):
        best.assign(trainer.accuracy.result())
    show("best", best.numpy())
    for metric in (trainer.train_loss, trainer.test_loss, trainer.accuracy, trainer.top2):
        metric.reset_state()
    counts.reset()

history, settings = [], {"decay": 1e-3, "clip": 1.0}
targets = features[:, :1] * 2.0 - features[:, 1:2]
with strategy.scope():
    layers = [tf.keras.Input((6,)), tf.keras.layers.Dense(6, activation="tanh"), tf.keras.layers.Dense(1)]
    model, optimizer = tf.keras.Sequential(layers), tf.keras.optimizers.SGD(0.05)
    settle(model, 4)


def eager_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / GLOBAL_BATCH
        decay = settings["decay"] * sum(tf.reduce_sum(w**2) for w in model.trainable_variables)
        loss += decay / strategy.num_replicas_in_sync
    gradients = [tf.clip_by_norm(g, settings["clip"]) for g in tape.gradient(loss, model.trainable_variables)]
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


dataset = tf.data.Dataset.from_tensor_slices((features, targets)).batch(GLOBAL_BATCH)
for epoch in range(3):
    losses = []
    for batch in strategy.experimental_distribute_dataset(dataset):
        losses.append(float(strategy.reduce("SUM", strategy.run(eager_step, args=batch), axis=None)))
    history.append(sum(losses) / len(losses))
    show("uncompiled", history)
    if epoch == 1:
        settings["clip"] = 0.25
        optimizer.learning_rate.assign(0.02)
