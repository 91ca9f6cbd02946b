"""`tf.keras.backend` in losses, metrics and layers."""

import numpy as np
import tensorflow as tf
from _facts import error, show

K = tf.keras.backend


def shape(tensor):
    return tensor.shape.as_list()


random = np.random.default_rng(0)
x = tf.constant(random.normal(size=(3, 4)).astype("f4"))
square = tf.constant(random.normal(size=(3, 3)).astype("f4"))
volume = tf.constant(random.normal(size=(2, 3, 4)).astype("f4"))
image = tf.constant(random.normal(size=(1, 6, 6, 2)).astype("f4"))
kernel = tf.constant(random.normal(size=(3, 3, 2, 3)).astype("f4"))

show("sums", [K.sum(x), K.sum(x, axis=0), K.sum(x, axis=-1, keepdims=True), K.prod(x, axis=1)])
show("means", [K.mean(x), K.mean(x > 0), K.mean(x, axis=[0, 1]), K.std(x), K.var(x, axis=0)])
show("extremes", [K.max(x, axis=0), K.min(x), K.argmax(x), K.argmin(x, axis=0)])
show("truths", [K.any(x > 1, axis=0), K.all(x < 3), K.equal(x, x)[0], K.greater(x, 0.0)[0], K.not_equal(x, 0.0)[0]])
show("elements", [K.square(x[0]), K.sqrt(K.abs(x[0])), K.exp(x[0]), K.log(K.abs(x[0]) + K.epsilon()), K.pow(x[0], 2)])
show("rounding", [K.round(x[0] * 4), K.sign(x[0]), K.clip(x, -0.5, 0.5)[0], K.maximum(x[0], 0.0), K.cumsum(x, axis=1)])
show("activations", [K.relu(x[0]), K.relu(x[0], alpha=0.1, max_value=1.0), K.elu(x[0]), K.sigmoid(x[0]), K.tanh(x[0])])
show("softmax", [K.softmax(x), K.softplus(x[0]), K.softsign(x[0]), K.hard_sigmoid(x[0]), K.l2_normalize(x, axis=-1)])
show("shapes", [K.shape(x), K.int_shape(x), K.ndim(x), K.dtype(x), K.count_params(K.variable([1.0, 2.0]))])
show(
    "reshaping",
    [
        K.reshape(x, (2, 6)),
        shape(K.flatten(volume)),
        shape(K.batch_flatten(volume)),
        shape(K.expand_dims(x)),
    ],
)
show("order", [K.permute_dimensions(volume, (2, 0, 1)), K.transpose(x), K.reverse(x, 0)[0], K.squeeze(x[:, :1], 1)])
show(
    "joining",
    [shape(K.concatenate([x, x], axis=0)), shape(K.stack([x, x])), shape(K.tile(x, (1, 2)))],
)
show(
    "repeating",
    [K.repeat_elements(x, 2, axis=0), K.repeat(x[:2], 2), shape(K.temporal_padding(volume, (1, 0)))],
)
show("picking", [K.gather(x, [2, 0]), K.one_hot(tf.constant([1, 0]), 3), K.cast(x[0], "int32"), K.arange(1, 4)])
show("products", [K.dot(x, tf.transpose(x)), shape(K.dot(volume, tf.transpose(x))), K.batch_dot(x, x, axes=1)])
show("batched products", [K.batch_dot(volume, volume, axes=2), K.bias_add(x, x[0])[0], K.eye(2)])
show("choosing", [K.switch(tf.constant(True), x, -x)[0], K.switch(x > 0, x, tf.zeros_like(x))[0]])
show("likes", [K.ones_like(x)[0], K.zeros_like(x)[0], K.constant([1, 2]), K.constant(3, dtype="int32"), K.ones((2,))])
show(
    "losses",
    [K.binary_crossentropy(K.sigmoid(x), K.sigmoid(-x)), K.categorical_crossentropy(K.softmax(x), K.softmax(-x))],
)
show("of logits", [K.sparse_categorical_crossentropy(tf.constant([0, 1, 3]), x, from_logits=True)])
show("in top k", [K.in_top_k(x, tf.constant([0, 1, 2]), 2)])
show("loops", [K.map_fn(lambda row: row * 2, x)[0], K.foldl(lambda a, b: a + b, x), K.foldr(lambda a, b: a - b, x)])
show("convolutions", [shape(K.conv2d(image, kernel)), K.conv2d(image, kernel, padding="same", strides=(2, 2))])
show("pools", [K.pool2d(image, (2, 2), (2, 2))[0, 0], K.pool2d(image, (2, 2), (2, 2), pool_mode="avg")[0, 0]])
show(
    "images",
    [shape(K.resize_images(image, 2, 2, "channels_last")), shape(K.spatial_2d_padding(image))],
)
show("settings", [K.floatx(), K.epsilon(), K.image_data_format(), K.is_keras_tensor(x)])

variable = K.variable([1.0, 2.0], name="state")
K.update_add(variable, [1.0, 1.0])
show("variables", [K.get_value(variable), K.eval(variable), K.get_value(K.zeros((2,)))])
K.update(variable, [5.0, 6.0])
K.update_sub(variable, [1.0, 1.0])
show("updated", [K.get_value(variable)])
show(
    "random",
    [
        shape(K.random_normal((3,))),
        shape(K.random_uniform((3,), 2.0, 3.0)),
        K.truncated_normal((2,)).dtype.name,
    ],
)
show("gradients in a function", [tf.function(lambda x: K.gradients(K.sum(K.square(x)), [x])[0])(x[0])])
error("gradients outside", lambda: K.gradients(K.sum(x), [x]))
show("stopped", [K.stop_gradient(x)[0], K.get_uid("parity"), K.get_uid("parity")])


def step(inputs, states):
    return inputs + states[0], [inputs + states[0]]


last, outputs, states = K.rnn(step, volume, [tf.zeros((2, 4))])
show("recurrence", [last, shape(outputs), states[0]])


def closeness(y_true, y_pred):
    return K.mean(K.square(y_true - y_pred), axis=-1) + K.epsilon()


def largest_error(y_true, y_pred):
    return K.max(K.abs(y_true - y_pred))


strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
with strategy.scope():
    inputs = tf.keras.Input((4,))
    hidden = tf.keras.layers.Lambda(lambda x: K.concatenate([K.relu(x), K.abs(x)], axis=-1))(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, kernel_initializer="ones")(hidden))
    model.compile(tf.keras.optimizers.SGD(0.01), closeness, metrics=[largest_error])
history = model.fit(
    np.concatenate([x, x]), np.ones((6, 1), "f4"), batch_size=2, epochs=2, shuffle=False, verbose=0
).history
show("trained", [history["loss"], history["largest_error"], model.layers[-1].kernel])
