"""The guide to training checkpoints: a loop with a manager, stopped and gone on with, parts of it loaded by hand."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from _facts import show

os.chdir(tempfile.mkdtemp())


class Net(tf.Module):
    """A linear layer that makes its variables when it is first called."""

    def __init__(self):
        super().__init__()
        self.l1 = Linear(5)

    def __call__(self, x):
        return self.l1(x)


class Linear(tf.Module):
    def __init__(self, units):
        super().__init__()
        self.units = units
        self.kernel = None

    def __call__(self, x):
        if self.kernel is None:
            self.kernel = tf.Variable(tf.ones([x.shape[-1], self.units]) * 0.5)
            self.bias = tf.Variable(tf.zeros([self.units]))
        return x @ self.kernel + self.bias


def toy_dataset():
    inputs = tf.range(10.0)[:, None]
    labels = inputs * 5.0 + tf.range(5.0)[None, :]
    return tf.data.Dataset.from_tensor_slices(dict(x=inputs, y=labels)).repeat().batch(2)


def train_step(net, example, optimizer):
    with tf.GradientTape() as tape:
        output = net(example["x"])
        loss = tf.reduce_mean(tf.square(output - example["y"]))
    variables = net.trainable_variables
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables))
    return loss


class Descent(tf.Module):
    """An optimizer with one variable."""

    def __init__(self):
        super().__init__()
        self.iterations = tf.Variable(0)

    def apply_gradients(self, pairs):
        self.iterations.assign_add(1)
        for gradient, variable in pairs:
            variable.assign_sub(0.002 * gradient)


def train_and_checkpoint(net, manager, ckpt, opt, iterator):
    ckpt.restore(manager.latest_checkpoint)
    print("Restored from" if manager.latest_checkpoint else "Initializing from scratch.", manager.latest_checkpoint)
    for _ in range(50):
        example = next(iterator)
        loss = train_step(net, example, opt)
        ckpt.step.assign_add(1)
        if int(ckpt.step) % 10 == 0:
            save_path = manager.save()
            print(f"Saved checkpoint for step {int(ckpt.step)}: {save_path}")
            print(f"loss {loss.numpy():1.3f}")


for attempt in range(2):
    opt, net = Descent(), Net()
    iterator = iter(toy_dataset())
    ckpt = tf.train.Checkpoint(step=tf.Variable(1), optimizer=opt, net=net, iterator=iterator)
    manager = tf.train.CheckpointManager(ckpt, "./tf_ckpts", max_to_keep=3)
    train_and_checkpoint(net, manager, ckpt, opt, iterator)
    show("next of the data", next(iterator)["x"])
print(manager.checkpoints)

to_restore = tf.Variable(tf.zeros([5]))
fake_layer = tf.train.Checkpoint(bias=to_restore)
fake_net = tf.train.Checkpoint(l1=fake_layer)
new_root = tf.train.Checkpoint(net=fake_net)
status = new_root.restore(tf.train.latest_checkpoint("./tf_ckpts/"))
show("the bias alone", np.allclose(to_restore, net.l1.bias))
status.assert_existing_objects_matched()
deferred_restore = tf.Variable(tf.zeros([1, 5]))
fake_layer.kernel = deferred_restore
show("the kernel afterwards", np.allclose(deferred_restore, net.l1.kernel))
status.expect_partial()

reader = tf.train.load_checkpoint("./tf_ckpts/")
shape_from_key = reader.get_variable_to_shape_map()
dtype_from_key = reader.get_variable_to_dtype_map()
keys = [k for k in sorted(shape_from_key) if "OBJECT_GRAPH" not in k]
show("keys", keys)
key = "net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE"
show("shape and dtype", [shape_from_key[key], dtype_from_key[key].name])
show("value", np.allclose(reader.get_tensor(key), net.l1.kernel))

save = tf.train.Checkpoint()
save.listed = [tf.Variable(1.0)]
save.listed.append(tf.Variable(2.0))
save.mapped = {"one": save.listed[0]}
save.mapped["two"] = save.listed[1]
save_path = save.save("./tf_list_example")
restore = tf.train.Checkpoint()
v2 = tf.Variable(0.0)
restore.mapped = {"two": v2}
restore.restore(save_path)
show("through another way", v2)
restore.listed = []
v1 = tf.Variable(0.0)
restore.listed.append(v1)
show("appended", v1)
show("path", save_path)
