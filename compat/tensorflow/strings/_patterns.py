"""`tf.strings.regex_full_match`, `regex_replace`: regular expressions, as RE2 reads them."""

import functools
from typing import Any

import numpy as np
import re2

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._host_operation import map_strings, strings_of
from tfdist_jax.compat.tensorflow._tensors._host_part import computes_rows
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


@computes_rows
def regex_full_match(input: Any, pattern: Any, name: str | None = None) -> Any:
    """Return which strings match a pattern from their beginning to their end, bool of their shape.

    Args:
        input: Strings `[...]`.
        pattern: A regular expression; see https://github.com/google/re2/wiki/Syntax.
        name: Unused.

    Raises:
        InvalidArgumentError: If the pattern is no regular expression.
    """
    texts, matches = strings_of(input), _compile(_scalar(pattern, "pattern")).fullmatch
    found = [matches(text) is not None for text in texts.reshape(-1).tolist()]
    return convert_to_tensor(np.array(found, bool).reshape(texts.shape))


@computes_rows
def regex_replace(input: Any, pattern: Any, rewrite: Any, replace_global: bool = True, name: str | None = None) -> Any:
    r"""Return strings in which something else stands for what matches a pattern.

    Args:
        input: Strings `[...]`.
        pattern: A regular expression; see https://github.com/google/re2/wiki/Syntax.
        rewrite: What stands there: `\0` is what has matched, `\1` to `\9` the groups in it, `\\` a backslash.
        replace_global: Whether to replace all that matches; the first only if not.
        name: Unused.

    Raises:
        InvalidArgumentError: If the pattern is no regular expression, or `rewrite` does not fit it.
    """
    compiled, parts = _compile(_scalar(pattern, "pattern")), _rewriting(_scalar(rewrite, "rewrite"))
    groups = [part for part in parts if isinstance(part, int)]
    if groups and max(groups) > compiled.groups:
        raise invalid(f"rewrite {rewrite!r} names group {max(groups)}, but {pattern!r} has {compiled.groups}.")
    if not groups:
        text = b"".join(part for part in parts if isinstance(part, bytes))
        make: Any = lambda match: text
    else:
        make = lambda match: b"".join(part if isinstance(part, bytes) else match.group(part) or b"" for part in parts)
    count = 0 if replace_global else 1
    return map_strings(lambda text: compiled.sub(make, text, count), strings_of(input))


def _scalar(value: Any, name: str) -> bytes:
    texts = strings_of(value)
    if texts.ndim:
        raise invalid(f"{name} must be scalar, but received {list(texts.shape)}")
    return texts.item()


@functools.lru_cache(maxsize=128)
def _compile(pattern: bytes) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error.args[0]
        raise invalid(f"Invalid pattern: {pattern.decode(errors='replace')}, error: {reason}") from None


@functools.lru_cache(maxsize=128)
def _rewriting(rewrite: bytes) -> list[bytes | int]:
    """Return the parts of a replacement: texts, and numbers of groups."""
    first, *rest = rewrite.split(b"\\")
    parts: list[bytes | int] = [first]
    items = iter(rest)
    for item in items:
        if item[:1].isdigit():
            parts += [int(item[:1]), item[1:]]
        elif not item and (after := next(items, None)) is not None:
            parts.append(b"\\" + after)
        else:
            raise invalid(f"Invalid rewrite {rewrite!r}: a backslash stands before a digit or another backslash.")
    return parts
