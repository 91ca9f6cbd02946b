"""What becomes of a function's call with symbolic tensors, which stand for a Keras model's values that are not there yet."""

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

PLACE = "__place__"
"""The attribute in which a function's wrapper says where it is found, as "namespace:name"."""

_ROOT = __name__.rpartition("._names.")[0]
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
    "strings.",
    "io._decoding",
    "io._wave",
    "io._csv",
    "io._parsing",
    "io._sequence_parsing",
    "io._tensor_messages",
)
# What does more than to compute, of tensors that may be known on the host: a file that holds a model must not call it.
_WITH_EFFECTS = ("io._files",)
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


_noters: list[Callable[..., Any]] = []


def note_with(noter: Callable[..., Any]) -> None:
    """Let calls that cannot be traced be noted by `noter(function, args, kwargs)`; NotImplemented where they are not its own."""
    _noters[:] = [noter]


_overriding: list[tuple[type, str]] = []


def override_with(kind: type, module: str) -> None:
    """Let `find_override` of a module, relative to this package, say what is called in a public function's place with a `kind` of value."""
    _overriding.append((kind, module))


def _find_override(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, deep: bool = True
) -> Any:
    """Return the call that takes the place of one with ragged tensors, also within structures if `deep`; None if there is none."""
    for kind, module in _overriding:
        if any(isinstance(leaf, kind) for leaf in (_leaves((args, kwargs)) if deep else (*args, *kwargs.values()))):
            found = importlib.import_module(f"{_ROOT}.{module}")
            return found.find_override(function, args, kwargs)
    return None


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    else:
        yield value


def takes_symbols(source: str, name: str, value: Any) -> bool:
    """Whether a public name is a function that computes tensors, and so may be called with symbolic ones."""
    is_computing = f"{source}.".startswith(_COMPUTING)
    return is_computing and callable(value) and not isinstance(value, type) and name not in _ASIDE.split()


_wrappers: dict[Callable[..., Any], Callable[..., Any]] = {}


def has_effects(source: str, value: Any) -> bool:
    """Whether a public name is a function that reads or writes files, by names that are tensors."""
    return source.startswith(_WITH_EFFECTS) and callable(value)


def taking_symbols(function: Callable[..., Any], namespace: str, name: str) -> Callable[..., Any]:
    """Return a function that does as another and, with symbolic tensors, what Keras makes of it.

    It is one for all namespaces, and belongs to the first that gives it out, where pickle and saved models find it.
    """
    if function not in _wrappers:
        looks_first = function.__name__ in _LOOKING_FIRST.split()
        wrapper = _wrappers[function] = (_looking_first if looks_first else _trying_first)(function)
        wrapper.__module__, wrapper.__qualname__ = namespace, name
        wrapper.__dict__[PLACE] = f"{namespace}:{name}"
    return _wrappers[function]


def unwrap(function: Any) -> Any:
    """Return the function that a public one calls; anything else as it is."""
    return function.__wrapped__ if PLACE in getattr(function, "__dict__", ()) else function


def _looking_first(function: Callable[..., Any]) -> Callable[..., Any]:
    trying = noting(function)

    @functools.wraps(function)
    def looking(*args: Any, **kwargs: Any) -> Any:
        override = _find_override(function, args, kwargs, deep=False) if _overriding else None
        if override is not None:
            return override()
        result = call_on_symbols(looking, args, kwargs)
        return trying(*args, **kwargs) if result is NotImplemented else result

    return looking


def _trying_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Call at once, for speed: what meets a symbolic tensor, or a ragged one, raises an error."""

    @functools.wraps(function)
    def trying(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception:
            override = _find_override(function, args, kwargs)
            if override is None:
                result = _note(function, args, kwargs)
                result = call_on_symbols(trying, args, kwargs) if result is NotImplemented else result
                if result is NotImplemented:
                    raise
                return result
        return override()

    return trying


def noting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does as another, or is noted where it cannot be traced."""

    @functools.wraps(function)
    def trying(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception:
            result = _note(function, args, kwargs)
            if result is NotImplemented:
                raise
            return result

    return trying


def _note(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a call becomes that cannot be traced; NotImplemented if it belongs to nobody."""
    try:
        return _noters[0](function, args, kwargs) if _noters else NotImplemented
    except Exception as error:
        raise error from None  # That it could not be traced before is of no interest.
