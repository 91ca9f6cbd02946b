"""Optimizers whose formulas Keras 3 has changed, with those of TensorFlow 2's `tf.keras.optimizers.legacy`.

Ref: https://www.tensorflow.org/versions/r2.10/api_docs/python/tf/keras/optimizers
"""

from typing import Any

import keras

# Keras's types do not say what its operations return.
ops: Any = keras.ops


class Adagrad(keras.optimizers.Adagrad):
    """Adds `epsilon` to the root, where Keras 3 adds it to what the root is taken of."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one variable."""
        gradient, rate = ops.cast(gradient, variable.dtype), ops.cast(learning_rate, variable.dtype)
        accumulator = self._accumulators[self._get_variable_index(variable)]
        self.assign_add(accumulator, ops.square(gradient))
        self.assign_sub(variable, rate * gradient / (ops.sqrt(accumulator) + self.epsilon))


class RMSprop(keras.optimizers.RMSprop):
    """Adds `epsilon` to the root as long as there is no momentum; with momentum it is Keras 3's formula."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one variable."""
        if self.momentum > 0:
            super().update_step(gradient, variable, learning_rate)
            return
        gradient, rate = ops.cast(gradient, variable.dtype), ops.cast(learning_rate, variable.dtype)
        i = self._get_variable_index(variable)
        squares = self.rho * self._velocities[i] + (1 - self.rho) * ops.square(gradient)
        self.assign(self._velocities[i], squares)
        if self.centered:
            average = self.rho * self._average_gradients[i] + (1 - self.rho) * gradient
            self.assign(self._average_gradients[i], average)
            squares = squares - ops.square(average)
        self.assign_sub(variable, rate * gradient / (ops.sqrt(squares) + self.epsilon))


class Nadam(keras.optimizers.Nadam):
    """Lets the momentum grow slowly, by `schedule_decay`; in Keras 3 it is as if that were 1."""

    def __init__(self, *args: Any, schedule_decay: float = 0.004, decay: float = 0.0, **kwargs: Any) -> None:
        """Make the optimizer; `decay` is taken and not used, as in TensorFlow 2."""
        super().__init__(*args, **kwargs)
        self.schedule_decay = schedule_decay

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make this optimizer again."""
        return {**super().get_config(), "schedule_decay": self.schedule_decay}

    def _steps(self, more: int, dtype: Any) -> Any:
        return ops.cast(self.iterations, dtype) + more

    def _momentum(self, more: int, dtype: Any) -> Any:
        return self.beta_1 * (
            1 - 0.5 * ops.power(ops.cast(0.96, dtype), self.schedule_decay * self._steps(more, dtype))
        )

    def _backend_update_step(self, grads: Any, trainable_variables: Any, learning_rate: Any) -> None:
        product = self._u_product
        self.assign(product, product * self._momentum(1, product.dtype))
        super(keras.optimizers.Nadam, self)._backend_update_step(grads, trainable_variables, learning_rate)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one variable."""
        dtype = variable.dtype
        gradient, rate = ops.cast(gradient, dtype), ops.cast(learning_rate, dtype)
        now, later = (self._momentum(n, dtype) for n in (1, 2))
        product = ops.cast(self._u_product, dtype)
        i = self._get_variable_index(variable)
        mean = self.beta_1 * self._momentums[i] + (1 - self.beta_1) * gradient
        squares = self.beta_2 * self._velocities[i] + (1 - self.beta_2) * ops.square(gradient)
        self.assign(self._momentums[i], mean)
        self.assign(self._velocities[i], squares)
        step = (1 - now) * gradient / (1 - product) + later * mean / (1 - product * later)
        root = ops.sqrt(squares / (1 - ops.power(ops.cast(self.beta_2, dtype), self._steps(1, dtype))))
        self.assign_sub(variable, rate * step / (root + self.epsilon))
