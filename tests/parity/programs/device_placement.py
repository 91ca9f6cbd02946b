"""`tf.device`: where variables, results and what functions return lie, and what a model in two parts computes."""

import tensorflow as tf
from _facts import error, show

with tf.device("/cpu:1"):
    first = tf.Variable([[0.5, -0.25], [0.75, 1.0]])
    x = tf.constant([[1.0, 2.0], [3.0, -1.0]])
with tf.device("/device:CPU:2"):
    second = tf.Variable([[0.5], [0.25]])
count = tf.Variable(0)


def model(x):
    with tf.device("/cpu:1"):
        hidden = tf.nn.relu(x @ first)
    with tf.device("/cpu:2"):
        return hidden, tf.tanh(hidden @ second)


show("variables", [v.device for v in (first, second, count)])
show("constant", x.device)
hidden, y = model(x)
show("results", [hidden.device, y.device])
show("outside of scopes", [value.device for value in (y + 1, hidden * first, tf.identity(y), y @ tf.transpose(y))])
show("values", [hidden, y])
first.assign(first + 0.0)
with tf.device("/cpu:3"):
    first.assign_add(first)
    first.assign(first / 2)
    show("in another scope", [(first + 0).device, tf.identity(second).device, tf.zeros([2]).device])
show("assigned", [first.device, first])

with tf.device("/cpu:1"):
    with tf.device("/cpu:2"):
        show("innermost", tf.ones([1]).device)
    with tf.device(None):
        show("None", [tf.ones([1]).device, tf.Variable(1.0).device])
    with tf.device("/job:localhost"):
        show("a job alone", tf.ones([1]).device)
    show("afterwards", tf.ones([1]).device)
with tf.device("/gpu:7"):
    show("soft placement", [tf.ones([1]).device, tf.Variable(1.0).device])
with tf.device(tf.config.list_logical_devices("CPU")[1]):
    show("a logical device", tf.ones([1]).device)
with tf.device(tf.DeviceSpec(device_type="CPU", device_index=2)):
    show("a spec", tf.ones([1]).device)


def enter(name):
    with tf.device(name):
        return "entered"


error("no name", lambda: enter("nonsense"))
error("a number", lambda: enter(3))
error("a function", lambda: enter(lambda operation: "/cpu:1"))

with tf.GradientTape(persistent=True) as tape:
    tape.watch(x)
    loss = tf.reduce_sum(model(x)[1] ** 2) + tf.reduce_sum(first**2)
show("loss", [loss.device, loss])
show("gradients", tape.gradient(loss, [first, second, x]))


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        hidden, found = model(x)
        shifted = found + 1
        loss = tf.reduce_mean((found - y) ** 2)
    show("inside", [each.device for each in (hidden, found, shifted, first, second, count)])
    gradients = tape.gradient(loss, [first, second])
    for variable, gradient in zip([first, second], gradients):
        variable.assign_sub(0.5 * gradient)
    count.assign_add(1)
    return loss, shifted, gradients


for rows in (2, 2, 1):
    loss, shifted, gradients = step(x[:rows], tf.ones([rows, 1]))
    show(f"step of {rows} rows", [loss, shifted, gradients])
    show("lie on", [value.device for value in (loss, shifted, *gradients, first, second, count)])
show("trained", [first, second, count])


@tf.function
def control(x):
    with tf.device("/cpu:1"):
        if tf.reduce_sum(x) > 0:
            x = x * 2
        for i in tf.range(3):
            with tf.device("/cpu:2"):
                x = x + tf.cast(i, tf.float32)
    while tf.reduce_sum(x) < 100:
        with tf.device("/cpu:3"):
            x = x * 2
    return x


show("control flow", control(tf.constant([1.0, 2.0])))
show("where it lies", control(tf.constant([1.0, 2.0])).device)


@tf.function
def double(x):
    return x * 2, first * 2


for name in ("/cpu:3", "/cpu:0", "/cpu:1"):
    with tf.device(name):
        show(f"called on {name}", [value.device for value in double(x)])

checkpoint = tf.train.Checkpoint(first=first, second=second)
path = checkpoint.save("saved")
kept = first.numpy()
first.assign(tf.zeros([2, 2]))
checkpoint.restore(path)
show("restored", [first.device, second.device, bool((first.numpy() == kept).all())])

with tf.device("/cpu:1"):
    inputs = tf.keras.Input([2])
    hidden = tf.keras.layers.Dense(2, "relu", kernel_initializer="ones", bias_initializer="ones")(inputs)
with tf.device("/cpu:2"):
    outputs = tf.keras.layers.Dense(1, kernel_initializer="ones")(hidden)
network = tf.keras.Model(inputs, outputs)
show("weights", [weight.value.device for weight in network.weights])
network.compile(tf.keras.optimizers.SGD(0.01, momentum=0.9), "mse")
x, y = tf.reshape(tf.range(20.0), [10, 2]) / 20, tf.range(10.0) / 10
history = network.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0)
show("losses", history.history["loss"])
show("trained weights", [weight.numpy() for weight in network.weights])
show("still there", [weight.value.device for weight in network.weights])
show("predictions", network.predict(x, verbose=0))
