"""Models, data and strategies for the tests of Keras under strategies."""

import contextlib
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.keras._training import _trainer
from tfdist_jax.compat.tensorflow.keras._training._train_step_signature import is_tensorflow_form


class Data(NamedTuple):
    x: np.ndarray
    y: np.ndarray

    def rows(self, count: int) -> "Data":
        return Data(self.x[:count], self.y[:count])


@pytest.fixture(scope="session")
def data() -> Data:
    random = np.random.default_rng(0)
    return Data(random.normal(size=(64, 8)).astype("f4"), random.integers(0, 4, 64).astype("i4"))


@pytest.fixture
def strategy() -> tf.distribute.MirroredStrategy:
    return mirrored(4)


def mirrored(replicas: int) -> tf.distribute.MirroredStrategy:
    return tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)])


@pytest.fixture(params=[4, None], ids=["four replicas", "no strategy"])
def any_strategy(request: pytest.FixtureRequest) -> tf.distribute.Strategy:
    return mirrored(request.param) if request.param else tf.distribute.get_strategy()


@pytest.fixture
def make_strategy() -> Callable[[int], tf.distribute.MirroredStrategy]:
    return mirrored


@pytest.fixture
def make_model(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Make a compiled model, the same each time: `make_model(strategy=None, *, hidden=(), optimizer=..., **compile)`.

    Without a strategy, not even `tf.distribute.get_strategy()`, Keras's own engine trains it: to compare with.
    """
    by_keras, find = weakref.WeakSet(), _trainer._strategy_for

    def find_strategy(model: Any, kind: str) -> Any:
        # Which knows only JAX's form of steps.
        is_keras = model in by_keras and not is_tensorflow_form(model, f"{kind}_step")
        return None if is_keras else find(model, kind)

    monkeypatch.setattr(_trainer, "_strategy_for", find_strategy)

    def make(
        strategy: Any = None, *, hidden: Any = (), optimizer: Any = None, model: Any = None, **options: Any
    ) -> Any:
        keras.utils.set_random_seed(7)
        options = {"metrics": ["accuracy"]} | options
        loss = options.pop("loss", None) or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        with strategy.scope() if strategy is not None else contextlib.nullcontext():
            layers = [keras.Input((8,)), keras.layers.Dense(16, activation="relu"), *(make() for make in hidden)]
            model = keras.Sequential([*layers, keras.layers.Dense(4)]) if model is None else model()
            model.compile(optimizer() if optimizer else keras.optimizers.SGD(0.1, momentum=0.9), loss, **options)
        if strategy is None:
            by_keras.add(model)
        return model

    return make


@pytest.fixture
def fit() -> Callable[..., dict[str, list[float]]]:
    """Train a model without shuffling or printing and return its history."""

    def run(model: Any, data: Data, **options: Any) -> dict[str, list[float]]:
        options = {"batch_size": 16, "epochs": 2, "shuffle": False, "verbose": 0} | options
        return model.fit(data.x, data.y, **options).history

    return run


@pytest.fixture
def assert_same_history() -> Callable[..., None]:
    """Check that two histories, or two batches' logs, have the same entries."""

    def check(history: Any, expected: Any, atol: float = 1e-5) -> None:
        assert history.keys() == expected.keys()
        for name in expected:
            np.testing.assert_allclose(history[name], expected[name], atol=atol, err_msg=name)

    return check


@pytest.fixture
def assert_same_training(assert_same_history: Any) -> Callable[..., None]:
    """Check that two models have the same history and the same weights."""

    def check(model: Any, history: Any, expected_model: Any, expected: Any, atol: float = 1e-5) -> None:
        assert_same_history(history, expected, atol)
        for weight, expected_weight in zip(model.weights, expected_model.weights, strict=True):
            np.testing.assert_allclose(weight.numpy(), expected_weight.numpy(), atol=atol, err_msg=weight.path)

    return check
