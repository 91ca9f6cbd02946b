"""The guide to mixed precision: policies, types of layers, fit, loss scaling, a training loop. Numbers are rounded."""

import numpy as np
import tensorflow as tf
from _facts import error, show
from tensorflow import keras
from tensorflow.keras import layers, mixed_precision

policy = mixed_precision.Policy("mixed_float16")
mixed_precision.set_global_policy(policy)
show("compute type", policy.compute_dtype)
show("variable type", policy.variable_dtype)
show("global policy", mixed_precision.global_policy().name)
error("unknown policy", lambda: mixed_precision.Policy("mixed_float12"))

inputs = keras.Input(shape=(12,), name="digits")
dense1 = layers.Dense(16, activation="relu", name="dense_1")
x = dense1(inputs)
dense2 = layers.Dense(16, activation="relu", name="dense_2")
x = dense2(x)
show("policy of a layer", dense1.dtype_policy.name)
show("type of its output", tf.as_dtype(x.dtype).name)
show("type of its kernel", tf.as_dtype(dense1.kernel.dtype).name)
x = layers.Dense(3, name="dense_logits")(x)
outputs = layers.Activation("softmax", dtype="float32", name="predictions")(x)
show("type of the model's output", tf.as_dtype(outputs.dtype).name)
model = keras.Model(inputs=inputs, outputs=layers.Activation("linear", dtype="float32")(outputs))
weights = np.random.RandomState(1)
model.set_weights([weights.randn(*w.shape).astype("f4") * 0.3 for w in model.get_weights()])

rng = np.random.RandomState(0)
y_train, y_test = rng.randint(0, 3, 192), rng.randint(0, 3, 64)
centres = rng.randn(3, 12)
x_train = (centres[y_train] + rng.randn(192, 12) / 2).astype("float32")
x_test = (centres[y_test] + rng.randn(64, 12) / 2).astype("float32")


def rounded(numbers):
    return [round(float(number), 2) for number in numbers]


model.compile(
    loss=keras.losses.SparseCategoricalCrossentropy(), optimizer=keras.optimizers.SGD(0.1), metrics=["accuracy"]
)
show("optimizer", type(model.optimizer).__name__)
initial_weights = model.get_weights()
history = model.fit(x_train, y_train, batch_size=32, epochs=3, validation_split=0.25, shuffle=False, verbose=0)
show("losses", rounded(history.history["loss"]))
show("validation", rounded(history.history["val_loss"]))
show("test", rounded(model.evaluate(x_test, y_test, verbose=0)))
show("weights stay in float32", sorted({w.dtype.name for w in model.get_weights()}))
model.set_weights(initial_weights)

x = tf.constant(256, dtype="float16")
show("overflow", (x**2).numpy())
x = tf.constant(1e-5, dtype="float16")
show("underflow", (x**2).numpy())
show("scaled", [float((x * 1024).numpy()) > 0, tf.cast(x, tf.float32) * 1024])

optimizer = mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1))
loss_object = tf.keras.losses.SparseCategoricalCrossentropy()
train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train)).batch(32)
test_dataset = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(32)
show("initial scale", optimizer.initial_scale)


# The guide's names are Keras 2's; Keras 3 on TensorFlow has others.
has_guides_names = hasattr(optimizer, "get_scaled_loss")


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        predictions = model(x, training=True)
        loss = loss_object(y, predictions)
        scaled_loss = optimizer.get_scaled_loss(loss) if has_guides_names else optimizer.scale_loss(loss)
    gradients = tape.gradient(scaled_loss, model.trainable_variables)
    if has_guides_names:
        gradients = optimizer.get_unscaled_gradients(gradients)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


@tf.function
def test_step(x):
    return model(x, training=False)


optimizer.build(model.trainable_variables)
for epoch in range(3):
    epoch_loss = tf.keras.metrics.Mean()
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")
    for x, y in train_dataset:
        epoch_loss(train_step(x, y))
    for x, y in test_dataset:
        accuracy.update_state(y, test_step(x))
    show(f"epoch {epoch}", rounded([epoch_loss.result(), accuracy.result()]))
show("steps that were not finite", 18 - int(optimizer.iterations.numpy()))
show("scale", float(optimizer.dynamic_scale.numpy()))

growing = mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=8.0, dynamic_growth_steps=2)
variable = tf.Variable([1.0, 2.0])
growing.build([variable])


@tf.function
def apply(gradient):
    growing.apply_gradients([(gradient * growing.scale_loss(tf.constant(1.0)), variable)])


for gradient in ([0.5, 0.5], [np.inf, 0.0], [0.25, 0.0], [0.25, 0.0], [np.nan, 1.0], [0.5, 1.0]):
    apply(tf.constant(gradient))
    show(f"after {gradient}", [variable.numpy().tolist(), float(growing.dynamic_scale.numpy())])
show("steps", int(growing.iterations.numpy()))

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(2)])
with strategy.scope():
    scaled = mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=16.0)
    variable = tf.Variable(1.0)
    scaled.build([variable])


@tf.function
def replica_step(x):
    def step(x):
        with tf.GradientTape() as tape:
            loss = scaled.scale_loss(variable * x)
        scaled.apply_gradients([(tape.gradient(loss, variable), variable)])
        return loss

    return strategy.run(step, args=(x,))


losses = replica_step(tf.constant(0.25))
show("on replicas", [strategy.reduce("MEAN", losses, axis=None), variable.numpy(), float(scaled.dynamic_scale.numpy())])
replica_step(tf.constant(np.inf))
show("not finite on replicas", [variable.numpy(), float(scaled.dynamic_scale.numpy())])
mixed_precision.set_global_policy("float32")
show("back to", mixed_precision.global_policy().name)
