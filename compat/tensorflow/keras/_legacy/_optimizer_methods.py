"""What optimizers of Keras 2 could do, and classes of the program's own that are written for them.

Such a class makes slots in `_create_slots` and changes a variable in `_resource_apply_dense`. Its variables here are views of
Keras's own, with TensorFlow's types and the names of layers, by which such classes choose.
"""

import collections
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, final

import keras

import tfdist_jax.compat.tensorflow as facade
from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow._platform._context import replica_context
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow.keras._change import Addition, Change, Hook
from tfdist_jax.compat.tensorflow.keras._internals import BaseOptimizer

# Its names load when they are touched, which type checkers do not see.
tf: Any = facade

_RATE = "learning_rate"
# An old class gives its rate after the base class has been made.
_UNTIL_SET = 0.001


@final
class _Called(list[Any]):
    """A list of variables that may be called, as the method `variables()` of Keras 2's optimizers was."""

    def __call__(self) -> list[Any]:
        tell_old_form("`optimizer.variables()`", "`optimizer.variables`")
        return list(self)


@final
class VariableView:
    """A variable of Keras, as TensorFlow's variables are: with its type, its layer's name and arguments of assignments."""

    def __init__(self, variable: Any) -> None:
        self._variable = variable

    @property
    def dtype(self) -> Any:
        """TensorFlow's type."""
        return as_dtype(self._variable.dtype)

    @property
    def name(self) -> str:
        """The name with the layer's, such as "dense/kernel:0"."""
        return f"{self._variable.path}:0"

    @property
    def device(self) -> str:
        """No device in particular."""
        return ""

    def assign(self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Give the variable a value."""
        self._variable.assign(value)
        return self

    def assign_add(
        self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Add to the variable."""
        return self.assign(self._variable + value)

    def assign_sub(
        self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Take from the variable."""
        return self.assign(self._variable - value)

    def read_value(self) -> Any:
        """Return what the variable holds."""
        return tf.convert_to_tensor(self._variable)

    @property
    def handle(self) -> "VariableView":
        """What functions of `tf.raw_ops` take."""
        return self

    def ref(self) -> Any:
        """Return a key for sets and dictionaries."""
        return self._variable.ref()

    def __jax_array__(self) -> Any:
        return self.read_value()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._variable, name)


_OPERATORS = (
    "add radd sub rsub mul rmul truediv rtruediv pow rpow neg abs lt le gt ge matmul rmatmul getitem mod floordiv"
)


def _operator(name: str) -> Callable[..., Any]:
    def method(self: VariableView, *others: Any) -> Any:
        values = (other.read_value() if isinstance(other, VariableView) else other for other in others)
        return getattr(self.read_value(), name)(*values)

    return method


for _name in _OPERATORS.split():
    setattr(VariableView, f"__{_name}__", _operator(f"__{_name}__"))


def _view(variable: Any) -> Any:
    return variable if isinstance(variable, Variable | VariableView) else VariableView(variable)


def _behind(variable: Any) -> Any:
    return variable._variable if isinstance(variable, VariableView) else variable


def _is_old(optimizer: Any) -> bool:
    """Whether the class is written for Keras 2: it changes variables in a method that Keras 3 does not have."""
    return type(optimizer)._resource_apply_dense is not _apply_dense


def _making(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        kind = type(self)
        if not _is_old(self):
            _refuse_other_forms(kind, args)
            original(self, *args, **kwargs)
            return
        tell_old_form(f"{kind.__name__}, an optimizer with `_resource_apply_dense`", "`update_step`")
        if isinstance(kwargs.get("weight_decay"), str):  # Where Keras 2's classes took the name.
            kwargs["name"] = kwargs.pop("weight_decay")
        if kwargs.get("weight_decay"):
            raise NotImplementedError(
                f"{kind.__name__} is a class for Keras 2, whose base classes had no `weight_decay`. Subtract it in "
                "`_resource_apply_dense`, or write `update_step(gradient, variable, learning_rate)` in its place."
            )
        if args and isinstance(args[0], str):
            kwargs["name"], args = args[0], args[1:]
        rate = kwargs.pop("lr", _UNTIL_SET)
        if not args and _RATE not in kwargs:
            kwargs[_RATE] = rate
        decay = kwargs.pop("decay", 0.0)
        original(self, *args, **kwargs)
        for name, value in {
            "_hyper": {},
            "_hyper_types": {},
            "_slots": {},
            "_initial_decay": decay,
            "writes_variables": True,  # What a step asks that applies gradients.
            "update_step": functools.partial(_update_step, self),
            "_apply_weight_decay": lambda variables: None,  # Keras 2's base class had none.
        }.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "build", functools.partial(_build, self, self.build))

    return __init__


def _refuse_other_forms(kind: type, args: tuple[Any, ...]) -> None:
    """Raise an error for classes of Keras 2 that cannot work."""
    write = "Write `build(variables)` and `update_step(gradient, variable, learning_rate)`: https://keras.io/api/optimizers/#custom-optimizers."
    if hasattr(kind, "get_updates"):
        raise NotImplementedError(f"{kind.__name__} is an optimizer for Keras before 2.3. {write}")
    if hasattr(kind, "_resource_apply_sparse"):
        raise NotImplementedError(
            f"{kind.__name__} has a rule of its own for the rows of an embedding that a batch uses (`_resource_apply_sparse`) "
            f"alone, and gradients here have all rows. Use the class that it is derived from, {kind.__mro__[1].__name__}. {write}"
        )
    if args and isinstance(args[0], str):
        raise NotImplementedError(
            f"{kind.__name__} is a class for Keras 2, whose first argument is a name, without `_resource_apply_dense`: what it "
            f"does in `apply_gradients` is not known here. For several optimizers in one model write a `train_step`. {write}"
        )


def _build(self: Any, original: Callable[..., None], variables: Iterable[Any]) -> None:
    if self.built:
        return
    variables = list(variables)
    original(variables)
    self._create_slots([_view(variable) for variable in variables])


def _update_step(self: Any, gradient: Any, variable: Any, learning_rate: Any) -> None:
    """Let the class's own method change a variable."""
    viewed = _view(variable)
    state: Any = collections.defaultdict(dict)
    self._prepare_local(viewed.device, viewed.dtype.base_dtype, state)
    gradient = tf.convert_to_tensor(gradient)
    if "apply_state" in inspect.signature(self._resource_apply_dense).parameters:
        self._resource_apply_dense(gradient, viewed, apply_state=state)
    else:
        self._resource_apply_dense(gradient, viewed)


def _apply_dense(self: Any, grad: Any, var: Any, apply_state: Any = None) -> None:
    """Change a variable as the optimizer of Keras does that the class is derived from."""
    state = (apply_state or {}).get((var.device, var.dtype.base_dtype)) or self._fallback_apply_state(
        var.device, var.dtype.base_dtype
    )
    type(self).update_step(self, grad, _behind(var), state["lr_t"])


def _prepare_local(self: Any, var_device: Any, var_dtype: Any, apply_state: Any) -> None:
    rate = self._decayed_lr(var_dtype)
    apply_state[var_device, var_dtype].update(lr_t=rate, learning_rate=rate)


def _fallback_apply_state(self: Any, var_device: Any, var_dtype: Any) -> Any:
    state: Any = {(var_device, var_dtype): {}}
    self._prepare_local(var_device, var_dtype, state)
    return state[var_device, var_dtype]


def _decayed_rate(self: Any, var_dtype: Any) -> Any:
    rate = tf.cast(tf.convert_to_tensor(self._get_current_learning_rate()), var_dtype)
    decay = getattr(self, "_initial_decay", 0.0)
    return rate / (1.0 + decay * tf.cast(self.iterations, var_dtype)) if decay else rate


def _set_hyper(self: Any, name: str, value: Any) -> None:
    """Set a number of the optimizer's; kept as a variable, so that functions that are traced see it change."""
    if name == _RATE:
        self.learning_rate = value if callable(value) or keras.tree.is_nested(value) else float(value)
    elif name == "decay":
        object.__setattr__(self, "_initial_decay", value)
    elif callable(value) or not isinstance(value, int | float):
        self._hyper[name] = value
    elif isinstance(self._hyper.get(name), keras.Variable):
        self._hyper[name].assign(value)
    else:
        locked = self._tracker.locked
        self._tracker.unlock()
        self._hyper_types[name] = type(value)
        self._hyper[name] = self.add_variable(
            (), keras.initializers.Constant(value), "bool" if isinstance(value, bool) else None, name=name
        )
        if locked:
            self._tracker.lock()


def _get_hyper(self: Any, name: str, dtype: Any = None) -> Any:
    value = self._learning_rate if name == _RATE else self._hyper[name] if name in self._hyper else getattr(self, name)
    if callable(value) and not isinstance(value, keras.optimizers.schedules.LearningRateSchedule):
        value = value()
    return value if dtype is None else tf.cast(tf.convert_to_tensor(value), dtype)


def _serialize_hyper(self: Any, name: str) -> Any:
    value = self._learning_rate if name == _RATE else self._initial_decay if name == "decay" else self._hyper[name]
    if isinstance(value, keras.optimizers.schedules.LearningRateSchedule):
        return keras.optimizers.schedules.serialize(value)
    if callable(value):
        value = value()
    if not isinstance(value, keras.Variable) and not tf.is_tensor(value):
        return value
    number = tf.convert_to_tensor(value).numpy().item()
    given = self._hyper_types.get(name, float)(number)
    return given if given == number else number


def _add_slot(self: Any, var: Any, slot_name: str, initializer: Any = "zeros", shape: Any = None) -> Any:
    """Make a variable beside one of the model's, of its shape unless another is given; `initializer` may be a tensor."""
    if self.get_slot_or_none(var, slot_name) is None:
        behind = _behind(var)
        if not isinstance(initializer, str) and not callable(initializer):
            value = tf.convert_to_tensor(initializer)
            shape, initializer = value.shape, lambda shape, dtype: keras.ops.cast(value, dtype)
        if shape is None:
            made = self.add_variable_from_reference(behind, name=slot_name, initializer=initializer)
        else:
            made = self.add_variable(tuple(shape), initializer, behind.dtype, name=slot_name)
        self._slots[id(behind), slot_name] = made
    return self.get_slot(var, slot_name)


def _find_slot(self: Any, var: Any, slot_name: str) -> Any:
    return self._slots.get((id(_behind(var)), slot_name))


def _get_slot(self: Any, var: Any, slot_name: str) -> Any:
    """Return a variable that `add_slot` has made."""
    return _view(self._slots[id(_behind(var)), slot_name])


def _get_attribute(self: Any, name: str) -> Any:
    hyper = vars(self).get("_hyper", {})
    if name in hyper:
        return hyper[name]
    raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _setting(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if name in vars(self).get("_hyper", ()):
            self._set_hyper(name, value)
        else:
            original(self, name, value)

    return __setattr__


def _old_config(original: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    @functools.wraps(original)
    def get_config(self: Any) -> dict[str, Any]:
        if "_hyper" in vars(self):
            clipping = {name: getattr(self, name) for name in ("clipnorm", "clipvalue", "global_clipnorm")}
            return {"name": self.name, **{name: value for name, value in clipping.items() if value is not None}}
        decay = vars(self).get("_decay")
        return {**original(self), "decay": decay} if decay else original(self)

    return get_config


def _called(value: Any) -> Any:
    return value() if callable(value) else value


def _minimize(
    self: Any, loss: Any, var_list: Any, grad_loss: Any = None, name: str | None = None, tape: Any = None
) -> Any:
    """Change variables so that a loss gets smaller.

    Args:
        self: The optimizer.
        loss: A function without arguments that gives the loss, or, with `tape`, the loss itself.
        var_list: The variables, or a function that gives them.
        grad_loss: The gradient of the loss, 1 unless it is given.
        name: Not used.
        tape: The tape that has recorded the loss.
    """
    tell_old_form("`optimizer.minimize`", "`tape.gradient` and `optimizer.apply_gradients`")
    if not callable(loss) and tape is None:
        raise ValueError("`tape` is required when a `Tensor` loss is passed.")
    if callable(loss):
        with tf.GradientTape() as tape:
            if not callable(var_list):
                tape.watch(var_list)
            loss = loss()
    variables: list[Any] = list(_called(var_list))
    return self.apply_gradients(zip(tape.gradient(loss, variables, grad_loss), variables, strict=True))


def _applying(original: Callable[..., Any]) -> Callable[..., Any]:
    """Take Keras 2's arguments; what the program has summed over the replicas itself is not summed again."""

    @functools.wraps(original)
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("name", None)
        if args and isinstance(args[0], str | None):
            args = args[1:]
        summed = kwargs.pop("skip_gradients_aggregation", False) or not kwargs.pop(
            "experimental_aggregate_gradients", True
        )
        pairs = [(gradient, _behind(variable)) for gradient, variable in grads_and_vars]
        context = replica_context()
        if summed and context is not None:
            tell_old_form("`experimental_aggregate_gradients=False`", "gradients that the optimizer sums")
            with context.replicated_update():
                return original(self, pairs, *args, **kwargs)
        return original(self, pairs, *args, **kwargs)

    return apply_gradients


def _decaying(original: Callable[..., None]) -> Callable[..., None]:
    """Let the rate fall with `decay`, as Keras 2's optimizers did: as 1 / (1 + decay * step)."""

    @functools.wraps(original)
    def _backend_update_step(self: Any, grads: Any, trainable_variables: Any, learning_rate: Any) -> None:
        decay = vars(self).get("_decay")
        if decay:
            learning_rate = learning_rate / (1.0 + decay * keras.ops.cast(self.iterations, "float32"))
        original(self, grads, trainable_variables, learning_rate)

    return _backend_update_step


def _make_slots(self: Any, var_list: Iterable[Any]) -> None:
    """Make the variables of an optimizer of Keras, which another optimizer uses; one that is built has them.

    Raises:
        NotImplementedError: If it does something outside of its steps, which the other one does not do.
    """
    if self.built:
        return
    for name in ("weight_decay", "use_ema", "gradient_accumulation_steps"):
        if getattr(self, name):
            raise NotImplementedError(
                f"`{name}` of {type(self).__name__} has no effect inside of another optimizer, which takes its steps alone. Leave it "
                "out, or use the optimizer by itself."
            )
    self.build([_behind(variable) for variable in var_list])


def _do_nothing(self: Any, *args: Any) -> None:
    """Make nothing: numbers are made when they are set."""


def _track(self: Any, trackable: Any, name: str, overwrite: bool = False) -> Any:
    """Count another optimizer's variables among this one's, so that they are saved."""
    if isinstance(trackable, BaseOptimizer):
        vars(self).setdefault("_inner_optimizers", []).append(trackable)
    return trackable


def _all_variables(self: Any, own: list[Any]) -> list[Any]:
    """Return an optimizer's variables, and those of optimizers inside it; each once."""
    inside = (variable for inner in vars(self).get("_inner_optimizers", ()) for variable in inner.variables)
    return list({id(variable): variable for variable in (*own, *inside)}.values())


def _argument_names(method: str) -> property:
    return property(lambda self: list(inspect.signature(getattr(self, method)).parameters))


_OLD_METHODS: dict[str, Any] = {
    "_resource_apply_dense": _apply_dense,
    "_create_slots": _make_slots,
    "_create_hypers": _do_nothing,
    "_prepare_local": _prepare_local,
    "_fallback_apply_state": _fallback_apply_state,
    "_decayed_lr": _decayed_rate,
    "_set_hyper": _set_hyper,
    "_get_hyper": _get_hyper,
    "_serialize_hyperparameter": _serialize_hyper,
    "add_slot": _add_slot,
    "get_slot": _get_slot,
    "get_slot_or_none": _find_slot,
    "minimize": _minimize,
    "weights": property(lambda self: list(self.variables)),
    "_weights": property(lambda self: list(self._variables)),
    "_use_locking": False,
    "_track_trackable": _track,
    "_dense_apply_args": _argument_names("_resource_apply_dense"),
    "__getattr__": _get_attribute,
}

CHANGES: tuple[Change, ...] = (
    *(Addition(BaseOptimizer, name, value) for name, value in _OLD_METHODS.items()),
    Hook(BaseOptimizer, "__init__", _making, "self learning_rate", "classes that are written for Keras 2's base class"),
    Hook(BaseOptimizer, "__setattr__", _setting, "self name value", "Keras 2's numbers of optimizers stay variables"),
    Hook(BaseOptimizer, "get_config", _old_config, "self", "Keras 2's base class gives less, and `decay`"),
    Hook(
        BaseOptimizer,
        "variables",
        lambda original: property(lambda self: _Called(_all_variables(self, original.fget(self)))),
        None,
        "may be called, as in Keras 2",
    ),
    Hook(BaseOptimizer, "apply_gradients", _applying, "self grads_and_vars", "Keras 2's arguments"),
    Hook(
        BaseOptimizer,
        "_backend_update_step",
        _decaying,
        "self grads trainable_variables learning_rate",
        "`decay=` counts",
    ),
)
