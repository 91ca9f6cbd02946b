"""A model that strategies with variables in parts train, and what it is trained on."""

import keras
import numpy as np
from jax.sharding import PartitionSpec as P

OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "clipped by norm": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.5),
    "accumulating": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2, weight_decay=0.1, use_ema=True),
    "averaged": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=2),
    "by layer": lambda: keras.optimizers.Lamb(0.01),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)),
    "factored": lambda: keras.optimizers.Adafactor(0.01),
}

RULES = {"up/kernel": P(None, "tensor"), "up/bias": P("tensor"), "down/kernel": P("tensor")}


def make_layout_map(mesh=True):
    """Return Keras's way to say how variables are divided."""
    devices = [f"cpu:{i}" for i in (0, 2, 4, 6, 1, 3, 5, 7)]
    layouts = keras.distribution.LayoutMap(
        keras.distribution.DeviceMesh((2, 4), ["batch", "model"], devices) if mesh else None
    )
    layouts[".*up/kernel"] = ("batch", "model")
    layouts[".*up/bias"] = ("model",)
    layouts[".*down/kernel"] = ("model", "batch")
    return layouts


def make_data(rows=65):
    random = np.random.RandomState(0)
    return random.randn(rows, 64).astype("f4"), random.randn(rows, 1).astype("f4")


def make_model(strategy, optimizer="momentum", policy=None):
    """Return a model of which the kernels of "up" and "down" are large."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [
            keras.layers.Dense(64, activation="relu", name="up", dtype=policy),
            keras.layers.Dropout(0.5, dtype=policy),
            # A bias before BatchNormalization has no gradient but rounding errors, of which Adam makes steps.
            keras.layers.Dense(32, use_bias=False, name="down", dtype=policy),
            keras.layers.BatchNormalization(dtype=policy),
        ]
        model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(1, dtype="float32")])
        model.compile(OPTIMIZERS[optimizer](), "mse", metrics=["mae"])
    return model


def fit(strategy, model):
    """Return all losses and metrics, with batches of 32, 32 and 1 rows."""
    x, y = make_data()
    history = model.fit(
        x, y, batch_size=32, epochs=2, shuffle=False, verbose=0, validation_data=(x[:20], y[:20])
    ).history
    return [*np.ravel([*history.values()]), *model.evaluate(x, y, batch_size=32, verbose=0)]
