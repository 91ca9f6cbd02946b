"""`tf.train.ExponentialMovingAverage`: smoothed copies of variables."""

from collections.abc import Sequence
from typing import Any, final

from tfdist_jax.compat.tensorflow._functions._function import init_scope
from tfdist_jax.compat.tensorflow._ops._binary import minimum
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow._variables._variable_creators import keeping_whole


@final
class ExponentialMovingAverage:
    """Keeps, for each variable, `average = decay * average + (1 - decay) * value`.

    Ref: https://www.tensorflow.org/api_docs/python/tf/train/ExponentialMovingAverage
    """

    def __init__(
        self, decay: float, num_updates: Any = None, zero_debias: bool = False, name: str = "ExponentialMovingAverage"
    ) -> None:
        """Average with `decay`; while `num_updates` is small, with `(1 + num_updates) / (10 + num_updates)`.

        `zero_debias` has no effect: averages of variables start as the variables' values.
        """
        self._decay, self._num_updates, self._name = decay, num_updates, name
        self._averages: dict[Any, tuple[Any, Variable]] = {}

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    def apply(self, var_list: Sequence[Any] = ()) -> None:
        """Move the averages of variables on; an average starts as its variable's value, in a function that before its call."""
        for variable in var_list:
            key = id(variable)
            if key not in self._averages:
                name = f"{variable.name.removesuffix(':0')}/{self._name}"
                with init_scope(), keeping_whole():
                    self._averages[key] = (variable, Variable(variable, trainable=False, name=name))
            average = self._averages[key][1]
            average.assign_sub((1 - self._present_decay()) * (average - variable))

    def _present_decay(self) -> Any:
        if self._num_updates is None:
            return self._decay
        return minimum(self._decay, (1.0 + self._num_updates) / (10.0 + self._num_updates))

    def average(self, var: Any) -> Variable | None:
        """Return the average of a variable, or None if it has none."""
        return self._averages.get(id(var), (None, None))[1]

    def average_name(self, var: Any) -> str:
        """Return the name of a variable's average."""
        average = self.average(var)
        return (f"{var.name.removesuffix(':0')}/{self._name}" if average is None else average.name).removesuffix(":0")

    def variables_to_restore(self, moving_avg_variables: Sequence[Any] | None = None) -> dict[str, Any]:
        """Return variables by the names of their averages; all that have an average, if none are given."""
        averaged = [variable for variable, _ in self._averages.values()]
        chosen = averaged if moving_avg_variables is None else moving_avg_variables
        return {self.average_name(variable): variable for variable in chosen}
