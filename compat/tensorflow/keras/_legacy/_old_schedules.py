"""`tf.keras.experimental`: schedules of learning rates that Keras 3 has dropped.

Ref: https://arxiv.org/abs/1709.07417, "Neural Optimizer Search with Reinforcement Learning".
"""

import math
from typing import Any

import keras

# Their results have no types.
ops: Any = keras.ops


@keras.saving.register_keras_serializable("tensorflow.legacy")
class LinearCosineDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that falls along a line times a cosine.

    Args:
        initial_learning_rate: The rate at the first step.
        decay_steps: After how many steps it stays.
        num_periods: How many periods the cosine has.
        alpha: What is added to the line.
        beta: What is added to the product.
        name: A name.
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        num_periods: float = 0.5,
        alpha: float = 0.0,
        beta: float = 0.001,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._config: dict[str, Any] = {
            "initial_learning_rate": initial_learning_rate,
            "decay_steps": decay_steps,
            "num_periods": num_periods,
            "alpha": alpha,
            "beta": beta,
            "name": name,
        }

    def __call__(self, step: Any) -> Any:
        """Return the rate at a step."""
        config = self._config
        done = self._done(step)
        line = 1.0 - done + self._noise(step)
        cosine = 0.5 * (1.0 + ops.cos(math.pi * 2.0 * config["num_periods"] * done))
        return config["initial_learning_rate"] * ((config["alpha"] + line) * cosine + config["beta"])

    def _done(self, step: Any) -> Any:
        steps = float(self._config["decay_steps"])
        return ops.minimum(ops.cast(step, "float32"), steps) / steps

    def _noise(self, step: Any) -> Any:
        return 0.0

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return self._config


@keras.saving.register_keras_serializable("tensorflow.legacy")
class NoisyLinearCosineDecay(LinearCosineDecay):
    """A rate that falls along a line with noise times a cosine.

    Args:
        initial_learning_rate: The rate at the first step.
        decay_steps: After how many steps it stays.
        initial_variance: The noise's variance at the first step.
        variance_decay: The power of the step number by which it falls.
        num_periods: How many periods the cosine has.
        alpha: What is added to the line.
        beta: What is added to the product.
        name: A name.
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        initial_variance: float = 1.0,
        variance_decay: float = 0.55,
        num_periods: float = 0.5,
        alpha: float = 0.0,
        beta: float = 0.001,
        name: str | None = None,
    ) -> None:
        super().__init__(initial_learning_rate, decay_steps, num_periods, alpha, beta, name)
        self._config |= {"initial_variance": initial_variance, "variance_decay": variance_decay}

    def _noise(self, step: Any) -> Any:
        done = self._done(step) * float(self._config["decay_steps"])
        variance = self._config["initial_variance"] / ops.power(1.0 + done, self._config["variance_decay"])
        return keras.random.normal(()) * ops.sqrt(variance)
