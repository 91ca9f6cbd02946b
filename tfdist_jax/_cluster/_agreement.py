"""Processes agree on what they do next, before a collective in which they would wait for each other for ever.

They compare a hash through JAX's coordination service. Only when it differs do they send what it was made of, so that the
error can name the process and the field.
"""

import base64
import functools
import hashlib
import itertools
import json
import sys
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from jax.sharding import NamedSharding

from tfdist_jax import _internals
from tfdist_jax._cluster._exchange import Exchange
from tfdist_jax._cluster._waiting import DisagreementError
from tfdist_jax._user_code import user_line

_NAMES = "tfdist_jax/names"
_SHOWN = 300


def step_fields(args: Any, *, results: Any = (), program: str | None = None, **values: Any) -> dict[str, str]:
    """Return what makes a step the same one in all processes.

    Args:
        args: The step's arguments: a tree whose arrays' shapes, dtypes and shardings count.
        results: A tree of its results, as `jax.eval_shape` has them.
        program: The text of the step, such as `jax.jit(step).lower(*args).as_text()`.
        values: Whatever else must be the same, such as `steps_per_epoch`.

    Example:
        >>> step_fields({"x": jax.numpy.zeros([2, 3])}, steps=4)
        {'steps': '4', "['x'] shape": '(2, 3)', "['x'] dtype": 'float32', "['x'] sharding": 'of this process alone'}
    """
    fields = {name: str(value) for name, value in values.items()}
    for name, leaf in _arrays(args):
        fields[f"{name} shape"] = str(tuple(leaf.shape))
        fields[f"{name} dtype"] = str(leaf.dtype)
        fields[f"{name} sharding"] = _sharding(leaf)
    fields |= {f"result{name}": f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in _arrays(results)}
    return fields if program is None else {**fields, "program": program}


def _arrays(tree: Any) -> Iterator[tuple[str, Any]]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            yield jax.tree_util.keystr(path), leaf


def _sharding(leaf: Any) -> str:
    sharding = getattr(leaf, "sharding", None)
    # The device of an array that only this process has differs from process to process.
    if not isinstance(sharding, NamedSharding) or sharding.is_fully_addressable:
        return "of this process alone"
    spec = "whole" if sharding.is_fully_replicated else str(sharding.spec)
    return f"{spec} on {dict(sharding.mesh.shape)}"


def agree(what: str, fields: Mapping[str, str]) -> None:
    """Return when all processes have come to the same point with the same fields; at once where there is one process.

    Args:
        what: What comes next, for messages; it must be the same, too.
        fields: What must be the same, such as `step_fields(...)`.

    Raises:
        DisagreementError: In all processes, if one has something else. It names that process and the field.
    """
    digest = hashlib.sha256(json.dumps(dict(fields), sort_keys=True).encode()).hexdigest()
    if len(set(allgather_object(what, digest))) > 1:
        raise DisagreementError(_difference(what, fields))


def allgather_object(what: str, value: Any) -> list[Any]:
    """Exchange values at a point to which all processes come in the same order.

    Args:
        what: What comes next, for messages; it must be the same.
        value: What this process says, of which JSON can be made.

    Returns:
        What all processes have said, in their order.

    Raises:
        DisagreementError: In all processes, if one has come to another point, or has ended. It names that process.
    """
    joined = _internals.joined_processes()
    if joined is None or joined[1] == 1:
        return [value]
    told = _points()([what, value], what)
    if any(other != what for other, _ in told):
        raise DisagreementError(_difference(what, {}))
    return [said for _, said in told]


def introduce(name: str) -> None:
    """Say what this process is called in messages."""
    joined = _internals.joined_processes()
    if joined is not None:
        _internals.key_value_client().key_value_set(f"{_NAMES}/{joined[2]}", name)


@functools.cache
def _points() -> Exchange:
    return Exchange("agreement")


def _difference(what: str, fields: Mapping[str, str]) -> str:
    """Let all processes compare what they have with what the first one has, and return what they say."""
    joined = _internals.joined_processes()
    process_id = 0 if joined is None else joined[2]
    own = (
        _name(process_id),
        f"{what}, at {user_line(sys._getframe()) or 'an unknown line'}",
        {"what comes next": what, **fields},
    )
    first = _unpacked(_points()(_packed(own) if process_id == 0 else "")[0])
    messages = _points()(_compared(first, own))
    return f"The processes are about to do different things. {' '.join(filter(None, messages))}"


def _packed(value: Any) -> str:
    """Return a value as a short string: programs are long and repeat themselves."""
    return base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()


def _unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text)))


def _name(process_id: int) -> str:
    try:
        return _internals.key_value_client().key_value_try_get(f"{_NAMES}/{process_id}")
    except jax.errors.JaxRuntimeError:
        return f"process {process_id}"  # It has joined the others in another way.


def _compared(first: tuple[str, str, dict[str, str]], other: tuple[str, str, dict[str, str]]) -> str:
    """Say in what a process differs from the first one; nothing if it does not."""
    (name, place, fields), (other_name, other_place, other_fields) = first, other
    differing = [field for field in {**fields, **other_fields} if fields.get(field) != other_fields.get(field)]
    if not differing:
        return ""
    field = differing[0]
    more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
    value, other_value = _where_different(fields.get(field, "nothing"), other_fields.get(field, "nothing"))
    return (
        f"{other_name} has {other_value} as {field}{more}, {name} has {value}. "
        f"{other_name} is before {other_place}; {name} before {place}."
    )


def _where_different(one: str, other: str) -> tuple[str, str]:
    """Return the first lines in which two strings differ, shortened."""
    pairs = itertools.zip_longest(one.splitlines(), other.splitlines(), fillvalue="nothing")
    found = next(((a, b) for a, b in pairs if a != b), (one, other))
    return _shown(found[0]), _shown(found[1])


def _shown(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
