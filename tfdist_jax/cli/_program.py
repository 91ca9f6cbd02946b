"""A Python program, found by path or by module name and run as `__main__` would be."""

import builtins
import dataclasses
import importlib.machinery
import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import Self, final

# What runs a program is no part of its tracebacks.
__tracebackhide__ = True

# Tells the processes that a program spawns what their `__main__` is: "package:path". See `_spawned`.
_VARIABLE = "TFDIST_JAX_PROGRAM"

# How Python calls the class of tensors in its own errors.
_TENSOR_CLASS = "'jaxlib._jax.ArrayImpl' object"

# JAX adds this to errors, where it would be the last line that is shown, in place of the error.
_FOOTER = "JAX has removed its internal frames"


@final
@dataclasses.dataclass(frozen=True)
class Program:
    """A file to run.

    Attributes:
        path: Where it is, absolute.
        package: The package that its relative imports start from; empty for a script.
    """

    path: Path
    package: str = ""

    @classmethod
    def of_script(cls, name: str) -> Self:
        """Find a program by its path.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        path = Path(name).absolute()
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "is not there"
            raise FileNotFoundError(f"cannot run {name!r}: it {what}. Name a Python file.")
        return cls(path)

    @classmethod
    def of_module(cls, name: str) -> Self:
        """Find a program by its module's name, or a package by the name of the folder with `__main__.py`.

        Raises:
            FileNotFoundError: If there is no such module, or if it is not written in Python.
        """
        try:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.submodule_search_locations is not None:
                spec = importlib.util.find_spec(f"{name}.__main__")
        except ModuleNotFoundError as error:
            raise FileNotFoundError(f"cannot run module {name!r}: {error}.") from error
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            raise FileNotFoundError(
                f"cannot run module {name!r}: there is no such Python module, or it has no `__main__`."
            )
        return cls(Path(spec.origin), spec.parent or "")

    @classmethod
    def of_parent(cls) -> Self:
        """Return the program whose process has spawned this one."""
        package, _, path = os.environ[_VARIABLE].partition(":")
        return cls(Path(path), package)

    def run(self, module: types.ModuleType) -> None:
        """Run the program's code as `module`."""
        os.environ[_VARIABLE] = f"{self.package}:{self.path}"
        names = {"__file__": str(self.path), "__package__": self.package or None, "__builtins__": builtins}
        module.__dict__.update(names)
        exec(compile(self.path.read_bytes(), str(self.path), "exec", dont_inherit=True), module.__dict__)


@final
class _MainSpec(importlib.machinery.ModuleSpec):
    """Names what stands for `__main__` in spawned processes; relative imports start from the program's own package."""

    def __init__(self, package: str) -> None:
        super().__init__("tfdist_jax.cli._spawned", None)
        self._package = package

    @property
    def parent(self) -> str:
        return self._package


def run_as_main(program: Program) -> int:
    """Run a program as the module `__main__`.

    Returns:
        The exit code that Python gives: also where the program ends with an exception, which is shown without the
        frames of this command.

    Raises:
        SystemExit: If the program does.
    """
    module = types.ModuleType("__main__")
    # Processes that `multiprocessing` spawns import their parent's `__main__` by its name.
    module.__spec__ = _MainSpec(program.package)
    sys.modules["__main__"] = module
    # What ends the program is left where Python leaves it, also for an exit code: what runs at the end may ask.
    try:
        program.run(module)
    except SystemExit as error:
        if error.code:
            sys.last_value = error
        raise
    except BaseException as error:
        sys.last_value = error
        _show(error)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _show(error: BaseException) -> None:
    """Show an exception as Python does at the end of a program, without the frames that run the program."""
    chained = [error]
    for other in chained:
        other.__traceback__ = _shown_frames(other.__traceback__)
        _drop_footer(other)
        _name_tensors(other)
        chained += [
            cause for cause in (other.__cause__, other.__context__) if cause is not None and cause not in chained
        ]
    sys.excepthook(type(error), error, error.__traceback__)


def _drop_footer(error: BaseException) -> None:
    """Take away JAX's note about frames, unless the user has said how they are to be filtered."""
    notes = getattr(error, "__notes__", None)
    if notes and "JAX_TRACEBACK_FILTERING" not in os.environ:
        notes[:] = [note for note in notes if _FOOTER not in note]


def _name_tensors(error: BaseException) -> None:
    """Call tensors by TensorFlow's name in an error of Python's, such as that of an attribute which they do not have."""
    if error.args and isinstance(error.args[0], str) and _TENSOR_CLASS in error.args[0]:
        error.args = (error.args[0].replace(_TENSOR_CLASS, "'Tensor' object"), *error.args[1:])


def _shown_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Take out the frames of modules that set `__tracebackhide__`."""
    kept = []
    while traceback is not None:
        if not traceback.tb_frame.f_globals.get("__tracebackhide__"):
            kept.append(traceback)
        traceback = traceback.tb_next
    for frame, following in zip(kept, [*kept[1:], None], strict=False):
        frame.tb_next = following
    return kept[0] if kept else None
