"""Telling a program's author which line keeps a function from being compiled."""

import logging
import traceback
from typing import Any

from tfdist_jax._errors import NotCompilableError
from tfdist_jax._user_code import is_user_file

_log = logging.getLogger("tfdist_jax")
_NEEDS_VALUE = "it needs the value of a tensor. Return the tensor and look at it outside for full speed."


def warn_not_compiled(fn: Any, error: BaseException, how: str) -> None:
    """Log how a function runs that could not be compiled, which of its lines is the cause, and why."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_file(frame.filename)]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno}: {frames[-1].line})" if frames else ""
    name = getattr(fn, "__qualname__", repr(fn)).rpartition("<locals>.")[2].removeprefix("ag__")
    why = str(error) if isinstance(error, NotCompilableError) else _NEEDS_VALUE
    _log.warning("%s runs %s%s: %s", name, how, where, why)
