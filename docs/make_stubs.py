"""Write a stub beside each of the facade's namespaces, so that editors and type checkers know names that load lazily."""

import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path

from tfdist_jax.compat import tensorflow as tf
from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

FACADE = tf.__name__
HEADER = "# Made by `make api` from the namespace's table of names."
# What namespaces hold besides their tables.
CONSTANTS = {"newaxis": "newaxis: None"}
# Namespaces that hand on the names of another.
OTHERS = {
    "keras/__init__.pyi": f"{HEADER}\nfrom keras._tf_keras.keras import *\n",
    "compat/v1/keras.pyi": f"{HEADER}\nfrom keras._tf_keras.keras import *\n",
    "compat/v2.pyi": f"{HEADER}\nfrom {FACADE} import *\n\ndef enable_v2_behavior() -> None: ...\n",
}


def main() -> None:
    """Write the stubs."""
    for path, text in stubs().items():
        path.write_text(text)


def stubs() -> dict[Path, str]:
    """Return the text of each stub."""
    made = {_path(module): _stub(names, vars(module)) for module, names in _namespaces(tf)}
    return made | {_path(tf).parent / path: text for path, text in OTHERS.items()}


def _namespaces(module) -> Iterator[tuple]:
    """Yield a namespace and those below it that have tables, each with its table."""
    names = getattr(module, "__getattr__", None)
    if isinstance(names, LazyNames):
        yield module, names
        for name in sorted(names.modules):
            yield from _namespaces(getattr(module, name))


def _path(module) -> Path:
    return Path(inspect.getfile(module)).resolve().with_suffix(".pyi")


def _stub(names: LazyNames, holds) -> str:
    sources = sorted((f"{FACADE}.{source}", old, new) for new, (source, old) in names.attributes.items())
    lines = [HEADER]
    for source, group in itertools.groupby(sources, key=lambda entry: entry[0]):
        # `X as X` hands a name on; under another one it needs an assignment.
        lines += [f"from {source} import ("]
        lines += [f"    {old} as {new if new == old else f'_{new}'}," for _, old, new in group] + [")"]
    if names.modules:
        lines += [
            f"from {names.namespace} import (",
            *(f"    {name} as {name}," for name in sorted(names.modules)),
            ")",
        ]
    lines += [f"{new} = _{new}" for _, old, new in sources if new != old]
    lines += [line for name, line in CONSTANTS.items() if name in holds]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
