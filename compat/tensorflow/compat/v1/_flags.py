"""`tf.compat.v1.flags` and `tf.compat.v1.app`: the flags of the command line, which are those of `absl`."""

import sys
from collections.abc import Callable
from typing import Any

from absl import app as _app, flags as _flags

DEFINE_bool = DEFINE_boolean = _flags.DEFINE_boolean
DEFINE_enum = _flags.DEFINE_enum
DEFINE_float = _flags.DEFINE_float
DEFINE_integer = _flags.DEFINE_integer
DEFINE_list = _flags.DEFINE_list
DEFINE_multi_float = _flags.DEFINE_multi_float
DEFINE_multi_integer = _flags.DEFINE_multi_integer
DEFINE_multi_string = _flags.DEFINE_multi_string
DEFINE_string = _flags.DEFINE_string
FLAGS = _flags.FLAGS
mark_flag_as_required = _flags.mark_flag_as_required
mark_flags_as_required = _flags.mark_flags_as_required


def run(main: Callable[..., Any] | None = None, argv: list[str] | None = None) -> None:
    """Parse the command line, call `main` with what is no flag, and end the process.

    Args:
        main: The function; that of `__main__` where none is given.
        argv: The command line, with the program's name; `sys.argv` where none is given.
    """
    _app.run(main or vars(sys.modules["__main__"])["main"], argv)
