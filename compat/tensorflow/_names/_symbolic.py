"""What becomes of a function's call with symbolic tensors, which stand for a Keras model's values that are not there yet."""

import functools
from collections.abc import Callable
from typing import Any

PLACE = "__place__"
"""The attribute in which a function's wrapper says where it is found, as "module:name"."""

# Modules whose functions compute tensors from tensors.
_COMPUTING = (
    "_ops.",
    "nn.",
    "linalg.",
    "image.",
    "signal.",
    "random.",
    "_tensors._tensor",
    "_gradients._custom_gradient",
)
# What would take a symbolic tensor for a value: these look before they call.
_LOOKING_FIRST = (
    "shape size rank shape_n identity identity_n stop_gradient zeros_like ones_like convert_to_tensor "
    "broadcast_static_shape ensure_shape grad_pass_through"
)
_ASIDE = (
    "is_tensor is_symbolic_tensor get_static_value type_spec_from_value executing_eagerly "
    "get_current_name_scope inside_function control_dependencies group no_op custom_gradient recompute_grad "
    "set_seed guarantee_const timestamp"
)


_handlers: list[Callable[..., Any]] = []


def handle_with(handler: Callable[..., Any]) -> None:
    """Let calls with symbolic tensors be made by `handler(function, args, kwargs)`; NotImplemented where there are none."""
    _handlers[:] = [handler]


def call_on_symbols(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a call with symbolic tensors becomes; NotImplemented without any, as before Keras is loaded."""
    return _handlers[0](function, args, kwargs) if _handlers else NotImplemented


def takes_symbols(source: str, name: str, value: Any) -> bool:
    """Whether a public name is a function that computes tensors, and so may be called with symbolic ones."""
    is_computing = f"{source}.".startswith(_COMPUTING)
    return is_computing and callable(value) and not isinstance(value, type) and name not in _ASIDE.split()


@functools.cache
def taking_symbols(function: Callable[..., Any], place: str) -> Callable[..., Any]:
    """Return a function that does as another, found at a place, and, with symbolic tensors, what Keras makes of it."""
    name = place.partition(":")[2]
    if name in _LOOKING_FIRST.split():

        @functools.wraps(function)
        def looking(*args: Any, **kwargs: Any) -> Any:
            result = call_on_symbols(looking, args, kwargs)
            return function(*args, **kwargs) if result is NotImplemented else result

        looking.__dict__[PLACE] = place
        return looking

    @functools.wraps(function)
    def trying(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception:
            result = call_on_symbols(trying, args, kwargs)
            if result is NotImplemented:
                raise
            return result

    trying.__dict__[PLACE] = place
    return trying


def function_itself(function: Any) -> Any:
    """Return the function whose wrapper a public name gives out; anything else as it is."""
    return function.__wrapped__ if PLACE in getattr(function, "__dict__", ()) else function
