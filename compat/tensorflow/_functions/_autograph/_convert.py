"""Conversion of Python functions by diastatic-malt; what converted code calls in place of Python's own."""

import ast
import functools
import inspect
import logging
import types
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, final

from malt.core.converter import ConversionOptions, Feature as Feature, ProgramContext
from malt.impl import api
from malt.lang.directives import set_loop_options as set_loop_options
from malt.utils.ag_logging import set_verbosity as set_verbosity, trace as trace

from tfdist_jax._thread_state import having
from tfdist_jax._user_code import call_for_user, is_user_file
from tfdist_jax.compat.tensorflow._functions._autograph import _branches, _expressions, _loops

_log = logging.getLogger(__name__)
_AS_IT_IS = "_tfdist_not_to_convert"


@final
class _Converter(api.PyToPy):
    """Turns functions into others with the same signature and closure, whose control flow can be traced."""

    def get_extra_locals(self) -> dict[str, Any]:
        """Return the names that converted code finds."""
        if self._extra_locals is None:
            (module,) = super().get_extra_locals().values()
            for source in (_branches, _loops, _expressions):
                names = {name: value for name, value in vars(source).items() if not name.startswith("__")}
                vars(module).update(names)
            vars(module)["converted_call"] = converted_call
        return super().get_extra_locals()

    def transform_ast(self, node: Any, ctx: Any) -> Any:
        """Convert a function's syntax tree; malt takes the names of exceptions for nodes, Python's parser gives strings."""
        for handler in _handlers(node):
            handler.name = ast.Name(handler.name, ast.Store())
        node = super().transform_ast(node, ctx)
        for handler in _handlers(node):
            handler.name = handler.name.id
        return node

    def transform_function(self, fn: Any, user_context: Any) -> Any:
        """Convert a function; errors in it show the lines of its own source."""
        key = self.get_caching_key(user_context)
        if not self._cache.has(fn, key):
            super().transform_function(fn, user_context)
            _relocate(self._cached_factory(fn, key))
        return super().transform_function(fn, user_context)


def _handlers(tree: ast.AST) -> list[Any]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name]


def _relocate(factory: Any) -> None:
    """Compile the converted source again so that its lines are those of the user's source."""
    module = factory.module
    with open(module.__file__, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    origins = {place.lineno: origin.loc for place, origin in factory.source_map.items()}
    if not origins:
        return
    first = min(origins)
    node: Any
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            # What conversion has added belongs to the user's line before it.
            mapped = [line for line in range(node.lineno, first - 1, -1) if line in origins][:1] or [first]
            line = origins[mapped[0]].lineno
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = line, line, 0, 0
    (outer,) = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    names = dict(vars(module))
    exec(compile(tree, origins[first].filename, "exec"), names)
    factory._unbound_factory = names[outer]()  # noqa: SLF001 - where the converter keeps what it has compiled.


_CONVERTER = _Converter()


@functools.cache
def _context(features: frozenset[Feature]) -> ProgramContext:
    wanted: Any = tuple(features)
    return ProgramContext(ConversionOptions(recursive=True, user_requested=True, optional_features=wanted))


# Whether functions that are called are converted, and with which features those are that are.
_converting: ContextVar[tuple[bool, frozenset[Feature]]] = ContextVar(
    "converting", default=(False, frozenset({Feature.ASSERT_STATEMENTS}))
)


def with_features(options: Any) -> frozenset[Feature]:
    """Return what is converted besides control flow: assertions, and what `experimental_autograph_options` names.

    Raises:
        ValueError: If an option is none of `tf.autograph.experimental.Feature`.
    """
    wanted = options if isinstance(options, list | tuple | set | frozenset) else [options] if options else []
    for option in wanted:
        if not isinstance(option, Feature):
            raise ValueError(f"Invalid AutoGraph option {option!r}: use tf.autograph.experimental.Feature.")
    every = set(Feature.all()) if Feature.ALL in wanted else set(wanted)
    return frozenset(every & {Feature.BUILTIN_FUNCTIONS, Feature.EQUALITY_OPERATORS}) | {Feature.ASSERT_STATEMENTS}


def do_not_convert(func: Any = None) -> Any:
    """Leave a function as it is: its Python control flow runs while it is traced."""
    if func is None:
        return do_not_convert

    @functools.wraps(func)
    def unconverted(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    setattr(unconverted, _AS_IT_IS, True)
    return unconverted


def converted(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fn` with control flow that can be traced; `fn` itself if it is no Python function of the user's."""
    if isinstance(fn, functools.partial):
        return functools.partial(converted(fn.func), *fn.args, **fn.keywords)
    if inspect.ismethod(fn):
        return types.MethodType(converted(fn.__func__), fn.__self__)
    if not _is_convertible(fn):
        call = inspect.getattr_static(type(fn), "__call__", None)
        # An object that can be called, and no class: those convert nothing.
        return functools.partial(converted(call), fn) if _is_convertible(call) and not isinstance(fn, type) else fn
    try:
        result = _CONVERTER.transform(fn, _context(_converting.get()[1]))[0]
    except Exception as error:  # Whatever the converter stumbles over; the function may need no conversion.
        _warn_once(fn, error)
        return fn
    setattr(result, _AS_IT_IS, True)
    return result


def converting(enabled: bool, features: frozenset[Feature]) -> AbstractContextManager[None]:
    """Let `converted_inside` convert what runs inside, with these features, or not."""
    return having(_converting, (enabled, features))


def converted_inside(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fn` converted if it is part of a function that is; as it is in eager code, where values are known."""
    return converted(fn) if _converting.get()[0] else fn


def _is_convertible(fn: Any) -> bool:
    if not inspect.isfunction(fn) or hasattr(fn, _AS_IT_IS) or api.is_autograph_artifact(fn):
        return False
    return fn.__code__.co_filename != "<string>" and is_user_file(fn.__code__.co_filename)


_warned: set[types.CodeType] = set()


def _warn_once(fn: Any, error: Exception) -> None:
    if fn.__code__ not in _warned:
        _warned.add(fn.__code__)
        _log.warning(
            "AutoGraph could not convert %s (%s, line %d) and will run it as it is: `if`, `while` and `for` on tensors "
            "fail in it. Cause: %s. To silence this, decorate it with @tf.autograph.experimental.do_not_convert.",
            fn.__qualname__,
            fn.__code__.co_filename,
            fn.__code__.co_firstlineno,
            error,
        )


def converted_call(
    f: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, caller_fn_scope: Any = None, options: Any = None
) -> Any:
    """Call `f` from converted code: functions of the user's are converted too, some builtins know tensors.

    Args:
        f: What is called.
        args: Its positional arguments.
        kwargs: Its keyword arguments, or None.
        caller_fn_scope: The calling function's scope.
        options: Unused.
    """
    kwargs = kwargs or {}
    if f in (eval, super, globals, locals):
        return api.converted_call(f, args, kwargs, caller_fn_scope, options)
    replaced = _expressions.replacement(f)
    if replaced is not None:
        return replaced(*args, **kwargs)
    if _expressions.calls_functions(f):
        args = _with_converted_functions(args)
        kwargs = {name: _with_converted_functions(value) for name, value in kwargs.items()}
    return converted(f)(*args, **kwargs)


call_for_user(converted_call.__code__.co_filename)


def _with_converted_functions(value: Any) -> Any:
    """Return arguments with the functions among them converted."""
    if isinstance(value, dict):
        return {key: _with_converted_functions(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_with_converted_functions, value))
    return converted(value) if callable(value) else value


def to_code(entity: Any, recursive: bool = True, experimental_optional_features: Any = None) -> str:
    """Return the source of the function that `entity` is converted to."""
    module: Any = _CONVERTER.transform(_plain(entity), _context(_converting.get()[1]))[1]
    return inspect.getsource(module)


def to_graph(entity: Any, recursive: bool = True, experimental_optional_features: Any = None) -> Any:
    """Return the function that `entity` is converted to."""
    return converted(_plain(entity))


def _plain(entity: Any) -> Any:
    fn = getattr(entity, "python_function", entity)
    if not inspect.isfunction(fn):
        raise ValueError(f"Only Python functions can be converted, got {entity!r}.")
    return fn
