"""Keras optimizers: gradients are summed over the replicas before they are applied; sparse ones stay sparse for SGD."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from keras.optimizers import SGD

from tfdist_jax._stateful._served_storage import update
from tfdist_jax._stateful._transaction import changing_together
from tfdist_jax.compat.tensorflow._platform._context import replica_context
from tfdist_jax.compat.tensorflow._tensors._indexed_slices import IndexedSlices
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._variables._scatter import scattered
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import BaseOptimizer, get_stateless_scope
from tfdist_jax.compat.tensorflow.keras._training._round_gradients import give_to_round
from tfdist_jax.compat.tensorflow.keras._training._summed_updates import apply_summed


@contextlib.contextmanager
def overriding(optimizer: Any, **methods: Callable[..., Any]) -> Iterator[None]:
    """Let this optimizer alone have other methods, while a program is traced; past Keras's tracking of attributes."""
    for name, method in methods.items():
        object.__setattr__(optimizer, name, method)
    try:
        yield
    finally:
        for name in methods:
            object.__delattr__(optimizer, name)


def _reducing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def apply(self: BaseOptimizer, grads: Any, trainable_variables: Any = None) -> Any:
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        cells = [*self.variables, *(trainable_variables or ())]
        # Rows are all that is sent to servers.
        sparse = _takes_slices(self) or any(cell.storage.is_served for cell in cells)
        grads = _as_tensors(grads, keep_slices=sparse)
        context = replica_context()
        # A step without state gets gradients that are summed.
        if get_stateless_scope() is not None or (context is not None and context.is_updating):
            return change(self, trainable_variables, grads)
        if give_to_round(self, grads, trainable_variables):
            return None
        apply_now = functools.partial(change, self, trainable_variables)
        if context is None:
            return update(lambda: apply_together(apply_now, grads), cells)
        variables = trainable_variables
        if variables is None:
            if not self.built:
                return apply_now(grads)  # Which refuses.
            variables = self._trainable_variables
        return apply_summed(context, self, grads, variables, apply_now)

    def apply_together(apply_now: Callable[[Any], Any], grads: Any) -> Any:
        with changing_together():
            return apply_now(grads)

    def change(self: BaseOptimizer, trainable_variables: Any, grads: list[Any]) -> Any:
        return original(self, _as_tensors(grads, keep_slices=_takes_slices(self)), trainable_variables)

    return apply


def _as_tensors(grads: Any, *, keep_slices: bool) -> list[Any]:
    """Return gradients as tensors: what is like one, such as an accumulator held in a `tf.Variable`, is fine for TensorFlow."""
    return [
        grad if grad is None or (keep_slices and isinstance(grad, IndexedSlices)) else convert_to_tensor(grad)
        for grad in grads
    ]


def _takes_slices(optimizer: Any) -> bool:
    """Whether the gradient goes into the variable alone, and in proportion: then the rows do as well as all of it."""
    changed_before = (
        optimizer.clipnorm,
        optimizer.global_clipnorm,
        optimizer.clipvalue,
        optimizer.gradient_accumulation_steps,
        optimizer.loss_scale_factor,
    )
    return type(optimizer) is SGD and not optimizer.momentum and not any(changed_before)


def _scattering(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def update_step(self: SGD, gradient: Any, variable: Any, learning_rate: Any) -> None:
        if not isinstance(gradient, IndexedSlices):
            original(self, gradient, variable, learning_rate)
            return
        table = convert_to_tensor(variable)
        step = gradient.values.astype(table.dtype) * convert_to_tensor(learning_rate).astype(table.dtype)
        variable.assign(scattered("sub", table, gradient.indices[:, None], step))

    return update_step


CHANGES = (
    Hook(
        BaseOptimizer,
        "apply",
        _reducing,
        "self grads trainable_variables",
        "sum gradients over replicas in custom loops",
    ),
    Hook(SGD, "update_step", _scattering, "self gradient variable learning_rate", "sparse gradients stay sparse"),
)
