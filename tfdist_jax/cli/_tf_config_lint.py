"""How a program sets TF_CONFIG, read from its source."""

import ast
from typing import Any

_STRATEGIES = ("MultiWorkerMirroredStrategy", "ParameterServerStrategy", "initialize")


def problems_of_program(source: str, name: str) -> list[str]:
    r"""Return what is wrong with how a program sets TF_CONFIG.

    Args:
        source: The program's text.
        name: Its name, for messages.

    Raises:
        SyntaxError: If it is no Python.

    Example:
        >>> problems_of_program("strategy = MultiWorkerMirroredStrategy()\nos.environ['TF_CONFIG'] = text", "a.py")
        ['a.py:2 sets TF_CONFIG after line 1 has made the strategy, which has not seen it. Set it before.']
    """
    tree = ast.parse(source, name)
    settings = [
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assign) and any(map(_is_tf_config, node.targets))
    ]
    strategies = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) in _STRATEGIES]
    if not settings:
        return []
    first = min(strategies, default=None)
    late = [line for line in settings if first is not None and line > first]
    found = [
        f"{name}:{line} sets TF_CONFIG after line {first} has made the strategy, which has not seen it. Set it before."
        for line in late
    ]
    fixed = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Dict) and _is_fixed_task(node)]
    found += [
        f"{name}:{line} gives every process that runs it the same index. Leave TF_CONFIG to `tfdist-jax launch`, or read the "
        "index from the environment."
        for line in fixed
    ]
    return found


def _is_tf_config(target: ast.expr) -> bool:
    """Tell whether something like `os.environ["TF_CONFIG"]` is assigned to."""
    return isinstance(target, ast.Subscript) and _constant(target.slice) == "TF_CONFIG"


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _is_fixed_task(node: ast.Dict) -> bool:
    """Tell whether a dictionary is a task with an index that is written out."""
    items = {_constant(key): value for key, value in zip(node.keys, node.values, strict=True)}
    return {"type", "index"} <= set(items) and isinstance(_constant(items["index"]), int)


def _constant(node: ast.expr | None) -> Any:
    return node.value if isinstance(node, ast.Constant) else None
