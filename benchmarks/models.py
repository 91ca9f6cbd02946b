"""The models that the benchmarks train, each with its batch: one code for Keras on JAX, under this project and under TensorFlow."""

# pyright: basic
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

CLASSES = 10


class Model(NamedTuple):
    """A classifier of ten classes; or a generator and a discriminator, whose labels are images.

    Attributes:
        rows: Rows of a batch, over all devices.
        shape: Shape of a row.
        make: Builds it from Keras and that shape.
        words: Number of words, where a row is a sentence; 0 for numbers.
        label: Shape of a label; () for classes.
    """

    rows: int
    shape: tuple[int, ...]
    make: Callable[[Any, tuple[int, ...]], Any]
    words: int = 0
    label: tuple[int, ...] = ()

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and labels."""
        random = np.random.RandomState(0)
        shape = (self.rows, *self.shape)
        inputs = random.randint(0, self.words, shape).astype("i4") if self.words else random.rand(*shape).astype("f4")
        if self.label:
            return inputs, random.rand(self.rows, *self.label).astype("f4")
        return inputs, random.randint(0, CLASSES, self.rows).astype("i4")


def _perceptron(hidden, depth=2):
    def make(keras, shape):
        layers = keras.layers
        dense = [layers.Dense(hidden, activation="relu") for _ in range(depth)]
        return keras.Sequential([keras.Input(shape), *dense, layers.Dense(CLASSES)])

    return make


def _cnn(keras, shape):
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(shape),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(CLASSES),
        ]
    )


def _resnet(stages):
    """A residual network for small images; `stages` are filters, of two blocks each."""

    def make(keras, shape):
        layers = keras.layers

        def normalized(x, filters, strides=1, size=3):
            x = layers.Conv2D(filters, size, strides, padding="same", use_bias=False)(x)
            return layers.BatchNormalization()(x)

        inputs = keras.Input(shape)
        x = layers.ReLU()(normalized(inputs, stages[0]))
        for filters in stages:
            for first in (True, False):
                strides = 2 if first and filters != stages[0] else 1
                residual = normalized(layers.ReLU()(normalized(x, filters, strides)), filters)
                is_same = strides == 1 and x.shape[-1] == filters
                x = layers.ReLU()(layers.Add()([residual, x if is_same else normalized(x, filters, strides, size=1)]))
        return keras.Model(inputs, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(x)))

    return make


def _application(name):
    """A model of `keras.applications`, without its weights."""

    def make(keras, shape):
        build = getattr(keras.applications, name)
        return build(weights=None, input_shape=shape, classes=CLASSES, classifier_activation=None)

    return make


def _lstm(keras, shape):
    layers = keras.layers
    return keras.Sequential([keras.Input(shape), layers.Embedding(WORDS, 64), layers.LSTM(64), layers.Dense(CLASSES)])


def make_encoder(width, depth, heads=4):
    """Return what builds a transformer's encoder, normalized first."""

    def make(keras, shape):
        layers = keras.layers
        inputs = keras.Input(shape)
        x = layers.Embedding(WORDS, width)(inputs)
        for _ in range(depth):
            normal = layers.LayerNormalization()(x)
            x = layers.Add()([x, layers.MultiHeadAttention(heads, width // heads)(normal, normal)])
            hidden = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(x))
            x = layers.Add()([x, layers.Dense(width)(hidden)])
        pooled = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
        return keras.Model(inputs, layers.Dense(CLASSES)(pooled))

    return make


def _adversaries(keras, shape):
    """A generator and a discriminator of images with transposed and strided convolutions."""
    layers = keras.layers

    def raised(filters, strides):
        return [
            layers.Conv2DTranspose(filters, 5, strides, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.LeakyReLU(),
        ]

    generator = [
        keras.Input(shape),
        layers.Dense(7 * 7 * 256, use_bias=False),
        layers.BatchNormalization(),
        layers.LeakyReLU(),
        layers.Reshape((7, 7, 256)),
        *raised(128, 1),
        *raised(64, 2),
        layers.Conv2DTranspose(1, 5, 2, padding="same", use_bias=False, activation="tanh"),
    ]
    discriminator = [
        keras.Input(_IMAGE),
        layers.Conv2D(64, 5, 2, padding="same"),
        layers.LeakyReLU(),
        layers.Conv2D(128, 5, 2, padding="same"),
        layers.LeakyReLU(),
        layers.Flatten(),
        layers.Dense(1),
    ]
    return keras.Sequential(generator), keras.Sequential(discriminator)


def make_model(keras, name):
    """Build a model of `MODELS`."""
    return MODELS[name].make(keras, MODELS[name].shape)


WORDS, _IMAGE = 2000, (28, 28, 1)

MODELS = {
    "mlp": Model(512, (784,), _perceptron(512)),
    "wide mlp": Model(256, (784,), _perceptron(1024)),
    "cnn": Model(128, (28, 28, 1), _cnn),
    "dcgan": Model(64, (100,), _adversaries, label=_IMAGE),
    "resnet": Model(64, (32, 32, 3), _resnet((16, 32, 64))),
    "resnet18": Model(32, (32, 32, 3), _resnet((64, 128, 256, 512))),
    "resnet50": Model(16, (32, 32, 3), _application("ResNet50")),
    "mobilenet": Model(32, (64, 64, 3), _application("MobileNetV2")),
    "lstm": Model(64, (50,), _lstm, words=WORDS),
    "transformer": Model(32, (64,), make_encoder(128, 4), words=WORDS),
    "deep transformer": Model(8, (64,), make_encoder(256, 12), words=WORDS),
    # One that leaves the devices nothing to do.
    "tiny": Model(16, (8,), _perceptron(8, depth=1)),
}
