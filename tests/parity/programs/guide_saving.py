"""The guides to saving: checkpoints, SavedModels of modules, signatures, and Keras's own ways."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from _facts import error, show

os.chdir(tempfile.mkdtemp())
tf.keras.utils.set_random_seed(1)


class Layer(tf.Module):
    """A layer of the checkpoint guide's model."""

    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable([[1.0, 2.0]])
        self.bias = tf.Variable([5.0, 6.0])


net = tf.Module()
net.l1 = Layer()
path = tf.train.Checkpoint(net=net).save("delayed/x")
show("path", path)
deferred = tf.train.Checkpoint()
status = tf.train.Checkpoint(net=deferred).restore(path)
deferred.l1 = tf.train.Checkpoint()
deferred.l1.bias = tf.Variable([0.0, 0.0])
show("delayed", deferred.l1.bias)
error("not all is there", status.assert_consumed)
deferred.l1.kernel = tf.Variable([[0.0, 0.0]])
show("all is there", [deferred.l1.kernel, status.assert_consumed() is not None])
reader = tf.train.load_checkpoint("delayed/x-1")
shapes = {key: shape for key, shape in reader.get_variable_to_shape_map().items() if key.startswith("net")}
show("shapes", shapes)
show("tensor", reader.get_tensor("net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE"))
save = tf.train.Checkpoint()
save.listed = [tf.Variable(1.0)]
save.listed.append(tf.Variable(2.0))
save.mapped = {"one": save.listed[0]}
save.mapped["two"] = save.listed[1]
path = save.save("lists/x")
restore = tf.train.Checkpoint()
second = tf.Variable(0.0)
restore.mapped = {"two": second}
restore.restore(path)
restore.listed = []
first = tf.Variable(0.0)
restore.listed.append(first)
show("lists and dictionaries", [second, first])


class Scale(tf.Module):
    """The SavedModel guide's module."""

    def __init__(self):
        super().__init__()
        self.v = tf.Variable(1.0)

    @tf.function
    def __call__(self, x):
        return x * self.v

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def mutate(self, new_v):
        self.v.assign(new_v)


module = Scale()
module(tf.constant(0.0))
tf.saved_model.save(module, "plain")
imported = tf.saved_model.load("plain")
show("loaded", [imported(tf.constant(3.0)), len(imported.signatures)])
imported.mutate(tf.constant(2.0))
show("mutated", imported(tf.constant(3.0)))
optimizer = tf.keras.optimizers.SGD(0.05)


def train_step():
    with tf.GradientTape() as tape:
        loss = (10.0 - imported(tf.constant(2.0))) ** 2
    variables = tape.watched_variables()
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return loss


for _ in range(4):
    print(f"loss={train_step():.2f} variable={imported.v.numpy():.2f}")
call = module.__call__.get_concrete_function(tf.TensorSpec(None, tf.float32))
tf.saved_model.save(module, "one", signatures=call)
show("signatures", list(tf.saved_model.load("one").signatures))
of_arrays = module.__call__.get_concrete_function(tf.TensorSpec([None], tf.float32))
tf.saved_model.save(module, "several", signatures={"serving_default": call, "array_input": of_arrays})
several = tf.saved_model.load("several")
show("several", sorted(several.signatures))
show("of any rank", [several.signatures["serving_default"](tf.ones(shape))["output_0"] for shape in ([], [2], [1, 2])])
show("of one", several.signatures["array_input"](tf.ones([3])))


class Named(tf.Module):
    """One whose results have names."""

    def __init__(self):
        super().__init__()
        self.v = tf.Variable(1.0)

    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])
    def __call__(self, x):
        return {"custom_output_name": x * self.v}


named = Named()
output = named.__call__.get_concrete_function(tf.TensorSpec(None, tf.float32))
tf.saved_model.save(named, "named", signatures={"serving_default": output})
print("outputs", tf.saved_model.load("named").signatures["serving_default"].structured_outputs)
show("is one", [tf.saved_model.contains_saved_model(folder) for folder in ("named", "none")])

inputs = tf.keras.Input((4,))
model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(tf.keras.layers.Dense(3, activation="relu")(inputs)))
model.compile("adam", "mse")
x, y = np.random.RandomState(0).rand(16, 4).astype("float32"), np.ones((16, 1), "float32")
model.fit(x, y, verbose=0)
wanted = model.predict(x, verbose=0)
for name in ("model.keras", "model.h5"):
    model.save(name)
    loaded = tf.keras.models.load_model(name, compile=name != "model.h5")  # "mse" is not found again.
    show(name, bool(np.allclose(loaded.predict(x, verbose=0), wanted, atol=1e-6)))
model.save_weights("model.weights.h5")
again = tf.keras.models.clone_model(model)
again.load_weights("model.weights.h5")
show("weights", bool(np.allclose(again.predict(x, verbose=0), wanted, atol=1e-6)))
again = tf.keras.models.model_from_json(model.to_json())
again.set_weights(model.get_weights())
show("architecture", bool(np.allclose(again.predict(x, verbose=0), wanted, atol=1e-6)))
tf.saved_model.save(model, "whole")
served = tf.saved_model.load("whole").signatures["serving_default"](tf.constant(x))
show("served", [sorted(served), bool(np.allclose(served["output_0"], wanted, atol=1e-6))])
os.makedirs("training")
callback = tf.keras.callbacks.ModelCheckpoint("training/cp-{epoch:04d}.weights.h5", save_weights_only=True, save_freq=4)
model.fit(x, y, epochs=4, batch_size=8, callbacks=[callback], verbose=0)
show("files", sorted(os.listdir("training")))


class Unbuilt(tf.keras.Model):
    """One that has not been called."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def double(self, x):
        return 2 * x


tf.saved_model.save(Unbuilt(), "unbuilt")
show("not built", tf.saved_model.load("unbuilt").double(tf.ones([2])))
