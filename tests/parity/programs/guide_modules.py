"""The guide to modules, layers and models: tf.Module, variables made late, checkpoints, functions, Keras on top."""

import os
import tempfile

import tensorflow as tf
from _facts import error, show

folder = tempfile.mkdtemp()


class Line(tf.Module):
    """A slope that is trained and an offset that is not."""

    def __init__(self, name=None):
        super().__init__(name=name)
        self.slope = tf.Variable(5.0, name="train_me")
        self.offset = tf.Variable(5.0, trainable=False, name="do_not_train_me")

    def __call__(self, x):
        return self.slope * x + self.offset


line = Line(name="simple")
show("called", line(tf.constant(5.0)))
show("name", line.name)
print("trainable:", line.trainable_variables)
print("all:", line.variables)


def numbers(rows, columns):
    return tf.reshape(tf.range(rows * columns, dtype=tf.float32), [rows, columns]) / 10 - 0.2


class Dense(tf.Module):
    """A layer whose sizes are known at once."""

    def __init__(self, in_features, out_features, name=None):
        super().__init__(name=name)
        self.w = tf.Variable(numbers(in_features, out_features), name="w")
        self.b = tf.Variable(tf.zeros([out_features]), name="b")

    def __call__(self, x):
        return tf.nn.relu(tf.matmul(x, self.w) + self.b)


class Sequential(tf.Module):
    """Two layers, one after the other."""

    def __init__(self, name=None):
        super().__init__(name=name)
        self.dense_1 = Dense(in_features=3, out_features=3)
        self.dense_2 = Dense(in_features=3, out_features=2)

    def __call__(self, x):
        return self.dense_2(self.dense_1(x))


model = Sequential(name="the_model")
show("model", model(tf.constant([[2.0, 2.0, 2.0]])))
show("submodules", [type(module).__name__ + " " + module.name for module in model.submodules])
for variable in model.variables:
    show(variable.name, variable)


class LazyDense(tf.Module):
    """A layer that learns its input's size in the first call."""

    def __init__(self, out_features, name=None):
        super().__init__(name=name)
        self.is_built = False
        self.out_features = out_features

    @tf.Module.with_name_scope
    def __call__(self, x):
        if not self.is_built:
            self.w = tf.Variable(numbers(x.shape[-1], self.out_features), name="w")
            self.b = tf.Variable(tf.zeros([self.out_features]), name="b")
            self.is_built = True
        return tf.nn.relu(tf.matmul(x, self.w) + self.b)


class LazySequential(tf.Module):
    """Two such layers; compiled."""

    def __init__(self, name=None):
        super().__init__(name=name)
        self.dense_1 = LazyDense(out_features=3)
        self.dense_2 = LazyDense(out_features=2)

    @tf.function
    def __call__(self, x):
        return self.dense_2(self.dense_1(x))


lazy = LazySequential(name="lazy_model")
show("before the call", len(lazy.variables))
show("late", lazy(tf.constant([[2.0, 2.0, 2.0]])))
show("after it", [variable.name for variable in lazy.variables])

path = os.path.join(folder, "my_checkpoint")
written = tf.train.Checkpoint(model=lazy).write(path)
show("path", os.path.basename(written))
lazy.dense_1.w.assign_add(tf.ones([3, 3]))
new = LazySequential()
tf.train.Checkpoint(model=new).restore(path)
show("restored", new(tf.constant([[2.0, 2.0, 2.0]])))
names = [name for name, _ in tf.train.list_variables(path)]
show("kept", [name for name in names if "ATTRIBUTES/VARIABLE_VALUE" in name and "save_counter" not in name])

show("a batch of three ranks", lazy(tf.constant([[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]])))
logdir = os.path.join(folder, "logs")
writer = tf.summary.create_file_writer(logdir)
fresh = LazySequential()
tf.summary.trace_on(graph=True)
tf.profiler.experimental.start(logdir)
show("traced", fresh(tf.constant([[2.0, 2.0, 2.0]])))
with writer.as_default():
    tf.summary.trace_export(name="my_func_trace", step=0, profiler_outdir=logdir)
tf.profiler.experimental.stop()
show("files", bool(os.listdir(logdir)))


class KerasDense(tf.keras.layers.Layer):
    """The same as a Keras layer."""

    def __init__(self, in_features, out_features, **kwargs):
        super().__init__(**kwargs)
        self.w = tf.Variable(numbers(in_features, out_features), name="w")
        self.b = tf.Variable(tf.zeros([out_features]), name="b")

    def call(self, x):
        return tf.nn.relu(tf.matmul(x, self.w) + self.b)


show("Keras layer", KerasDense(name="simple", in_features=3, out_features=3)(tf.constant([[2.0, 2.0, 2.0]])))


@tf.keras.utils.register_keras_serializable("guide")
class KerasLazyDense(tf.keras.layers.Layer):
    """Its variables are made in `build`."""

    def __init__(self, out_features, **kwargs):
        super().__init__(**kwargs)
        self.out_features = out_features

    def build(self, input_shape):
        kernel = tf.keras.initializers.Constant(0.1)
        self.w = self.add_weight(shape=(input_shape[-1], self.out_features), initializer=kernel, name="w")
        self.b = self.add_weight(shape=(self.out_features,), initializer="zeros", name="b")

    def call(self, inputs):
        return tf.matmul(inputs, self.w) + self.b

    def get_config(self):
        return {**super().get_config(), "out_features": self.out_features}


flexible = KerasLazyDense(out_features=3)
show("not built", len(flexible.variables))
show("built", flexible(tf.constant([[2.0, 2.0, 2.0], [3.0, 3.0, 3.0]])))
show("its variables", [variable.name for variable in flexible.variables])
error("another size", lambda: flexible(tf.constant([[2.0, 2.0, 2.0, 2.0]])))


@tf.keras.utils.register_keras_serializable("guide")
class KerasSequential(tf.keras.Model):
    """A model of two layers."""

    def __init__(self, name=None, **kwargs):
        super().__init__(name=name, **kwargs)
        self.dense_1 = KerasLazyDense(out_features=3)
        self.dense_2 = KerasLazyDense(out_features=2)

    def call(self, x):
        return self.dense_2(self.dense_1(x))

    def get_config(self):
        return {"name": self.name}


keras_model = KerasSequential(name="the_model")
show("Keras model", keras_model(tf.constant([[2.0, 2.0, 2.0]])))
show("variables", [list(variable.shape) for variable in keras_model.variables])
show("layers", [type(layer).__name__ for layer in keras_model.layers])
inputs = tf.keras.Input(shape=[3])
functional = tf.keras.Model(inputs=inputs, outputs=KerasLazyDense(2)(KerasLazyDense(3)(inputs)))
show("functional", functional(tf.constant([[2.0, 2.0, 2.0]])))
show("weights", functional.count_params())
file = os.path.join(folder, "model.keras")
keras_model.save(file)
again = tf.keras.models.load_model(file)
show("reconstructed", again(tf.constant([[2.0, 2.0, 2.0]])))
show("its class", type(again).__name__)
