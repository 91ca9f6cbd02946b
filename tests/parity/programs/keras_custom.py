"""Layers, losses, metrics, callbacks and training steps of the user's own, written with `tf.*`, under a strategy."""

import numpy as np
import tensorflow as tf
from _facts import error, show

keras = tf.keras
random = np.random.default_rng(0)
x, y = random.normal(size=(16, 4)).astype("f4"), random.integers(0, 3, 16)
strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])


class Linear(keras.layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.units = units

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], self.units), initializer=tf.constant_initializer(0.1), name="w")
        self.b = self.add_weight(shape=(self.units,), initializer=tf.zeros_initializer(), name="b")
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False, name="seen")

    def call(self, x, training=False):
        if training:
            self.seen.assign_add(tf.reduce_mean(tf.square(x)))
        self.add_loss(0.01 * tf.nn.l2_loss(tf.convert_to_tensor(self.w)))
        return tf.matmul(x, self.w) + self.b


class Scaled(keras.layers.Layer):
    def call(self, x):
        size = tf.cast(tf.shape(x)[-1], x.dtype)
        gate = tf.where(x > 0.0, x, 0.2 * x)
        return tf.stack(tf.unstack(gate, axis=-1), axis=-1) / tf.sqrt(size)


class Focal(keras.losses.Loss):
    def __init__(self, power=2.0):
        super().__init__()
        self.power = power

    def call(self, y_true, y_pred):
        chances = tf.nn.softmax(y_pred)
        hit = tf.reduce_sum(chances * tf.one_hot(tf.cast(tf.reshape(y_true, [-1]), tf.int32), 3), -1)
        return -tf.pow(1.0 - hit, self.power) * tf.math.log(tf.maximum(hit, 1e-7))


class Hits(keras.metrics.Metric):
    def __init__(self, name="hits"):
        super().__init__(name=name)
        self.hits = self.add_weight(name="hits", initializer="zeros")
        self.rows = self.add_weight(name="rows", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        found = tf.equal(tf.cast(tf.reshape(y_true, [-1]), tf.int64), tf.argmax(y_pred, axis=-1))
        found = tf.cast(found, tf.float32)
        if sample_weight is not None:
            found = found * tf.cast(tf.reshape(sample_weight, [-1]), tf.float32)
        self.hits.assign_add(tf.reduce_sum(found))
        self.rows.assign_add(tf.cast(tf.size(found), tf.float32))

    def result(self):
        return tf.math.divide_no_nan(self.hits, self.rows)

    def reset_state(self):
        self.hits.assign(0.0)
        self.rows.assign(0.0)


def crossentropy(y_true, y_pred):
    labels = tf.cast(tf.reshape(y_true, [-1]), tf.int32)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=y_pred)


def margin(y_true, y_pred):
    best = tf.math.top_k(y_pred, k=2).values
    return best[:, 0] - best[:, 1]


def make(model=None, **options):
    with strategy.scope():
        if model is None:
            start = keras.layers.Dense(6, kernel_initializer=tf.constant_initializer(np.linspace(-1, 1, 24)))
            model = keras.Sequential([keras.Input((4,)), start, Scaled(), Linear(3)])
        options = {"loss": Focal(), "metrics": [Hits(), margin]} | options
        model.compile(keras.optimizers.SGD(0.5), **options)
    return model


def fit(model, **options):
    options = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0} | options
    return model.fit(x, y, **options).history


def results(model):
    return [weight.numpy() for weight in model.trainable_variables]


model = make()
show("history", fit(model))
show("weights", results(model))
show("evaluated", model.evaluate(x, y, batch_size=8, verbose=0))
show("predicted", model.predict(x[:3], verbose=0))
show("weighted", fit(make(weighted_metrics=[Hits("weighted")]), sample_weight=np.linspace(0, 2, 16, dtype="f4")))
show("loss function", fit(make(loss=crossentropy)))
show("summed", fit(make(loss=lambda y, p: tf.reduce_sum(tf.square(p), -1) * tf.constant(0.1), metrics=[])))


class Steps(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(3, kernel_initializer=tf.constant_initializer(np.linspace(-1, 1, 12)))
        self.tracker = keras.metrics.Mean(name="tracked")
        self.hits = Hits()

    def call(self, x, training=False):
        return self.inner(x)

    @property
    def metrics(self):
        return [self.tracker, self.hits]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            logits = self(x, training=True)
            loss = tf.reduce_sum(crossentropy(y, logits)) / 8.0
        gradients = tape.gradient(loss, self.trainable_variables)
        norms = [tf.norm(gradient) for gradient in gradients]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.tracker.update_state(loss)
        self.hits.update_state(y, logits)
        return {"tracked": self.tracker.result(), "hits": self.hits.result(), "largest": tf.reduce_max(norms) * 0.0}

    def test_step(self, data):
        x, y = data
        self.hits.update_state(y, self(x, training=False))
        return {"hits": self.hits.result()}

    def predict_step(self, data):
        return tf.argmax(self(data, training=False), axis=-1)


with strategy.scope():
    steps = Steps()
    steps.compile(keras.optimizers.SGD(0.5))
show("own steps", fit(steps))
show("own weights", results(steps))
show("own evaluation", steps.evaluate(x, y, batch_size=8, verbose=0, return_dict=True))
show("own prediction", steps.predict(x, batch_size=8, verbose=0))

show("constants", [tf.constant_initializer([1, 2, 3, 4])((2, 2)), tf.constant_initializer(3)((2,), dtype=tf.int32)])
error("constants that do not fit", lambda: tf.constant_initializer([1, 2, 3])((2, 2)))
show("zeros and ones", [tf.zeros_initializer()((2,), dtype=tf.float64), tf.ones_initializer()(shape=[2])])
show("configurations", [tf.random_uniform_initializer().get_config(), tf.constant_initializer(2).get_config()])
show("random", tf.random_normal_initializer(stddev=0.1)((3,)).shape.as_list())
