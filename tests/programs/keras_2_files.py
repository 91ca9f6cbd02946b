"""Writes what Keras 2 leaves behind, for `tests/compat/keras/test_keras_2_files.py`: configurations of its layers, and models in files.

With tf_keras installed beside TensorFlow: `TF_USE_LEGACY_KERAS=1 python keras_2_files.py` writes the folder `keras_2_files` anew. The test
takes inputs and weights from here.
"""

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import tensorflow as tf

keras = tf.keras
L = keras.layers
FOLDER = Path(__file__).with_suffix("")

_draw = np.random.default_rng(0).normal
INPUTS = {
    "vectors": _draw(size=(2, 6)),
    "sequences": _draw(size=(2, 5, 4)),
    "images": _draw(size=(2, 8, 8, 3)),
    "volumes": _draw(size=(2, 4, 4, 4, 2)),
    "films": _draw(size=(2, 3, 6, 6, 2)),
    "films_of_rows": _draw(size=(2, 3, 6, 2)),
    "films_of_volumes": _draw(size=(1, 3, 4, 4, 4, 2)),
    "ids": np.array([[1, 2, 0, 6, 5], [3, 3, 1, 0, 0]]),
}
INPUTS = {name: values.astype("float32") for name, values in INPUTS.items()}


def make_layers():
    """Return Keras 2's layers, by what they take."""
    return {
        "vectors": [
            L.Dense(3, activation="relu", kernel_regularizer="l2", kernel_constraint=keras.constraints.MaxNorm(2)),
            L.Dense(3, activation="hard_sigmoid"),
            *(
                L.Activation(name)
                for name in ["swish", "softmax", "linear", "elu", "gelu", "exponential", "selu", "mish"]
            ),
            L.LeakyReLU(alpha=0.1),
            L.PReLU(),
            L.ELU(alpha=0.5),
            L.ReLU(6.0, negative_slope=0.1),
            L.ThresholdedReLU(theta=0.3),
            L.Softmax(),
            L.Dropout(0.5),
            L.AlphaDropout(0.5),
            L.GaussianDropout(0.5),
            L.GaussianNoise(0.5),
            L.ActivityRegularization(l1=0.1),
            L.BatchNormalization(momentum=0.9, epsilon=1e-5, scale=False),
            L.UnitNormalization(),
            L.Reshape((2, 3)),
            L.RepeatVector(3),
            L.Normalization(mean=1.0, variance=2.0),
            L.Discretization(bin_boundaries=[-1.0, 0.0, 1.0]),
            L.Identity(),
        ],
        "sequences": [
            L.SpatialDropout1D(0.5),
            L.LayerNormalization(),
            L.LayerNormalization(axis=[1, 2]),
            L.Permute((2, 1)),
            L.Masking(0.0),
            L.Conv1D(2, 3, padding="causal", dilation_rate=2),
            L.Conv1DTranspose(2, 3),
            L.SeparableConv1D(2, 3),
            L.DepthwiseConv1D(3),
            L.MaxPooling1D(2),
            L.AveragePooling1D(),
            L.GlobalMaxPooling1D(),
            L.GlobalAveragePooling1D(),
            L.ZeroPadding1D(1),
            L.Cropping1D(),
            L.UpSampling1D(),
            L.LSTM(3, return_sequences=True),
            L.LSTM(3, recurrent_activation="hard_sigmoid", dropout=0.1),
            L.GRU(3),
            L.GRU(3, reset_after=False, go_backwards=True),
            L.SimpleRNN(3),
            L.RNN(L.LSTMCell(3)),
            L.RNN([L.LSTMCell(2), L.GRUCell(3)]),
            L.Bidirectional(L.LSTM(3, return_sequences=True)),
            L.Bidirectional(L.GRU(3), merge_mode="sum"),
            L.TimeDistributed(L.Dense(2)),
            L.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d"),
            L.LocallyConnected1D(2, 2, strides=2),
        ],
        "images": [
            L.SpatialDropout2D(0.5),
            L.BatchNormalization(),
            L.GroupNormalization(3),
            L.Flatten(),
            L.Conv2D(4, 3, strides=2, padding="same", groups=1),
            L.Conv2DTranspose(2, 3, strides=2, padding="same"),
            L.SeparableConv2D(2, 3, depth_multiplier=2),
            L.DepthwiseConv2D(3, depth_multiplier=2),
            L.MaxPooling2D(),
            L.AveragePooling2D(padding="same"),
            L.GlobalAveragePooling2D(keepdims=True),
            L.GlobalMaxPooling2D(),
            L.ZeroPadding2D(((1, 0), (0, 1))),
            L.Cropping2D(),
            L.UpSampling2D(interpolation="bilinear"),
            L.Rescaling(1 / 255.0, offset=1.0),
            L.Resizing(4, 4),
            L.CenterCrop(4, 4),
            L.LocallyConnected2D(2, 3, strides=(2, 1), activation="relu"),
            *(L.RandomFlip("horizontal"), L.RandomRotation(0.1), L.RandomZoom(0.1), L.RandomTranslation(0.1, 0.1)),
            *(L.RandomContrast(0.1), L.RandomBrightness(0.1)),
        ],
        "volumes": [
            *(
                L.Conv3D(2, 2),
                L.Conv3DTranspose(2, 2),
                L.MaxPooling3D(),
                L.AveragePooling3D(),
                L.GlobalAveragePooling3D(),
            ),
            *(L.GlobalMaxPooling3D(), L.ZeroPadding3D(), L.Cropping3D(), L.UpSampling3D()),
        ],
        "films": [L.ConvLSTM2D(2, 2)],
        "films_of_rows": [L.ConvLSTM1D(2, 2)],
        "films_of_volumes": [L.ConvLSTM3D(2, 2)],
        "ids": [
            L.Embedding(7, 3, input_length=5, mask_zero=True),
            L.CategoryEncoding(num_tokens=7, output_mode="multi_hot"),
        ],
    }


def make_graphs(x):
    """Return outputs of functional models, by name, that take sequences."""

    def dense(units=4, name=None):
        return L.Dense(units, name=name)

    inner = keras.Sequential([L.Dense(4, input_shape=(5, 4)), L.BatchNormalization()], name="inner")
    y = keras.Input((5, 4))
    deeper = keras.Model(y, dense()(y), name="deeper")
    shared = dense(name="shared")
    states = L.LSTM(3, return_state=True)(x)[1:]
    return {
        "merges": L.Add()([L.Multiply()([x, x]), L.Subtract()([x, dense()(x)]), L.Average()([x, x])]),
        "extremes": L.Concatenate(axis=1)([L.Maximum()([x, dense()(x)]), L.Minimum()([x, dense()(x)])]),
        "dot": L.Dot(axes=(2, 2), normalize=True)([x, x]),
        "attention": L.MultiHeadAttention(2, 3)(x, x),
        "attentions": L.Concatenate()([L.Attention(use_scale=True)([x, x]), L.AdditiveAttention()([x, x])]),
        "shared": L.Concatenate()([shared(x), shared(shared(x))]),
        "states": L.LSTM(3)(x, initial_state=states),
        "masked": L.LSTM(3)(L.Masking()(x)),
        "sequential": inner(x),
        "functional": deeper(x),
        "twice": L.Add()([deeper(inner(x)), inner(inner(x))]),
        "functions": tf.reduce_sum(tf.nn.relu(x * 2.0 + dense()(x)), axis=-1, keepdims=True) - 1.0,
        "slices": tf.concat(
            [2.0 / (3.0 + x[:, 1:3] ** 2), -x[:, tf.newaxis, 0], x[..., 2:][:, ::4].shape[1] * x[:, -2:-1]], axis=1
        ),
        "sizes": tf.reshape(x, (-1, tf.shape(x)[1] * tf.shape(x)[2])),
        "conditions": tf.where(tf.math.logical_and(x > 0.0, x < 1.0), x, tf.zeros_like(x)),
        "both": dense(2)(L.Concatenate()([inner(x), deeper(x)])),
    }


def set_weights(model):
    """Give a model weights that depend on their shapes alone."""
    draw = np.random.default_rng(1).normal
    model.set_weights([abs(draw(size=weight.shape)).astype(weight.dtype) * 0.5 for weight in model.get_weights()])


def summarize(values):
    """Return an array as few numbers that tell it from others."""
    values = np.asarray(values, "float64")
    places = np.cos(np.arange(values.size)).reshape(values.shape)
    return [list(values.shape), *(round(float(one), 4) for one in (values.sum(), (values * places).sum()))]


def describe(model, inputs):
    """Return a model's configuration, and what it computes."""
    set_weights(model)
    config = json.loads(model.to_json().replace("tf_keras", "keras"))
    return {"config": config, "output": summarize(model.predict(INPUTS[inputs], verbose=0))}


def describe_all():
    """Yield the description of each model."""
    for inputs, layers in make_layers().items():
        for layer in layers:
            yield {
                "inputs": inputs,
                **describe(keras.Sequential([keras.Input(INPUTS[inputs].shape[1:]), layer]), inputs),
            }
    x = keras.Input((5, 4))
    for output in make_graphs(x).values():
        yield {"inputs": "sequences", **describe(keras.Model(x, output), "sequences")}


@keras.utils.register_keras_serializable("files")
class Offset(L.Layer):
    """A layer of the program's own."""

    def __init__(self, offset, **kwargs):
        super().__init__(**kwargs)
        self.offset = offset

    def call(self, inputs):
        return inputs + self.offset

    def get_config(self):
        return {**super().get_config(), "offset": self.offset}


class WeighedError(keras.losses.Loss):
    """A loss of the program's own."""

    def __init__(self, weight, **kwargs):
        super().__init__(**kwargs)
        self.weight = weight

    def call(self, y_true, y_pred):
        return tf.reduce_mean(tf.square(y_true - y_pred), axis=-1) * self.weight

    def get_config(self):
        return {**super().get_config(), "weight": self.weight}


class Largest(keras.metrics.Metric):
    """A metric of the program's own, whose result is its variable."""

    def __init__(self, name="largest", **kwargs):
        super().__init__(name=name, **kwargs)
        self.value = self.add_weight(name="value", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(tf.maximum(self.value, tf.reduce_max(y_pred)))

    def result(self):
        return self.value

    def reset_state(self):
        self.value.assign(0.0)


def error(y_true, y_pred):
    """Return the mean absolute error of each row."""
    return tf.reduce_mean(tf.abs(y_true - y_pred), axis=-1)


def double(x):
    """Return 2 x."""
    return x * 2.0


OWN = {"WeighedError": WeighedError, "Largest": Largest, "error": error, "double": double}


def make_model_of_own():
    """Return a model with the program's own objects, two outputs, and a loss and a metric of tensors."""
    x = keras.Input((5, 4), name="x")
    hidden = Offset(0.5)(L.Flatten()(x))
    outputs = [L.Dense(2, activation=double, name="one")(hidden), L.Dense(2, name="other")(hidden)]
    model = keras.Model(x, outputs)
    model.add_loss(tf.reduce_mean(tf.abs(outputs[0])) * 0.1)
    model.add_metric(tf.reduce_max(outputs[1]), name="top", aggregation="mean")
    losses, metrics = {"one": error, "other": WeighedError(0.5)}, {"one": [error, "mae"], "other": [Largest()]}
    model.compile(keras.optimizers.SGD(0.01), losses, loss_weights={"one": 1.0, "other": 2.0}, metrics=metrics)
    return model


def make_models():
    """Return models to be trained and saved, by the name of their file."""
    for kind in ("h5", "keras"):
        yield f"own.{kind}", make_model_of_own()
    rates = keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.9)
    optimizers = {
        "adam.h5": keras.optimizers.Adam(0.01, amsgrad=True),
        "legacy_adam.h5": keras.optimizers.legacy.Adam(rates, amsgrad=True),
        "legacy_sgd.h5": keras.optimizers.legacy.SGD(0.01, momentum=0.9, nesterov=True),
        "rmsprop.keras": keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True),
    }
    for name, optimizer in optimizers.items():
        x = keras.Input((5, 4), name="x")
        hidden = L.LSTM(3, recurrent_activation="hard_sigmoid", name="hidden")(x)
        head = keras.Sequential(
            [L.Dense(3, activation="relu", input_shape=(3,)), L.BatchNormalization(), L.Dense(2)], name="head"
        )
        model = keras.Model(x, head(hidden))
        model.compile(optimizer, "mse", metrics=["mae", keras.metrics.MeanSquaredError(name="square")])
        yield name, model


def train(model):
    """Train a model, and return its losses."""
    x, y = INPUTS["sequences"], make_targets(model)
    return [round(value, 5) for value in model.fit(x, y, epochs=3, verbose=0).history["loss"]]


def make_targets(model):
    """Return targets for each output of a model."""
    targets = [INPUTS["sequences"][:, 0, :2]] * len(model.outputs)
    return targets if len(targets) > 1 else targets[0]


def save(model, file):
    """Save a model as Keras 2.15 has, whose modules have other names than tf_keras's."""
    model.save(file)
    if file.suffix == ".keras":
        with zipfile.ZipFile(file) as written:
            parts = {name: written.read(name) for name in written.namelist()}
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in parts.items():
                archive.writestr(name, data.replace(b"tf_keras", b"keras") if name.endswith(".json") else data)


def main():
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(one) for one in describe_all())
    (FOLDER / "models.json").write_text(f"[\n{lines}\n]\n")
    found = {}
    for name, model in make_models():
        set_weights(model)
        begun = train(model)
        save(model, FOLDER / name)
        found[name] = {"begun": begun, "going_on": train(model), "names": sorted(set(model.metrics_names))}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in found.items())
    (FOLDER / "losses.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    sys.exit(main())
