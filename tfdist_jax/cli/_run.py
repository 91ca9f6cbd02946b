"""`tfdist-jax run`: a TensorFlow program, unmodified, on JAX."""

import argparse
import os
import sys
import traceback
import types
from pathlib import Path
from typing import Any

import tfdist_jax


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "run", help="run a TensorFlow program on JAX", description="Run a TensorFlow program, unmodified, on JAX."
    )
    parser.add_argument(
        "--devices", type=_count, metavar="N", help="split the processor into N devices where there is no accelerator"
    )
    parser.add_argument("script", help="the program: a Python file")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the program's own arguments")
    parser.set_defaults(run=_run)


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"needs a number of devices, 1 or more, got {text!r}")
    return count


def _run(arguments: argparse.Namespace) -> int:
    script = Path(arguments.script)
    if not script.is_file():
        what = "is a folder" if script.is_dir() else "is not there"
        print(f"tfdist-jax run: cannot run {arguments.script!r}: it {what}. Name a Python file.", file=sys.stderr)
        return 2
    if arguments.devices is not None:
        tfdist_jax.use_cpu_devices(arguments.devices)
    from tfdist_jax.compat.tensorflow import _alias  # Sets Keras's backend before the program can import Keras.

    _alias.install()
    sys.argv = [arguments.script, *arguments.args]
    sys.path[0] = str(script.resolve().parent)
    return _run_as_main(script)


def _run_as_main(script: Path) -> int:
    """Run the file as `__main__`; an exception ends it as it would end `python script`."""
    module = types.ModuleType("__main__")
    module.__file__ = str(script)
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    try:
        code = compile(script.read_bytes(), str(script), "exec")
        exec(code, module.__dict__)  # noqa: S102
    except SystemExit:
        raise
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has gone; what is left in the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except BaseException as error:
        _print_traceback(error)
        return 1
    return 0


def _print_traceback(error: BaseException) -> None:
    """Print the traceback from the program's first line on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    sys.stdout.flush()
    traceback.print_exception(type(error), error, frames)
