"""Write docs/api.md: which of TensorFlow's public names the facade has. `--record` asks TensorFlow for the names first."""

import argparse
import inspect
import types
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER / "api.md"
RECORD = FOLDER / "tensorflow_names.txt"

# Namespaces whose names are not counted: what they are for is another issue than training, or they are others' own.
LEFT_OUT = (
    "tf.compat",
    "tf.compat.v1",
    "tf.keras",
    "tf.lite",
    "tf.mlir",
    "tf.quantization",
    "tf.raw_ops",
    "tf.xla",
    "tf.estimator",
)


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="ask an installed TensorFlow for its names first")
    if parser.parse_args().record:
        RECORD.write_text("\n".join(tensorflow_names()) + "\n")
    PAGE.write_text(page())


def tensorflow_names() -> list[str]:
    """Return TensorFlow's public names, each with "class" behind it if it is one."""
    import tensorflow as tf

    found: dict[str, str] = {}
    waiting: list[tuple[str, types.ModuleType]] = [("tf", tf)]
    while waiting:
        path, module = waiting.pop()
        for name in dir(module):
            dotted = f"{path}.{name}"
            if name.startswith("_") or dotted in LEFT_OUT or dotted in found:
                continue
            value = getattr(module, name, None)
            if isinstance(value, types.ModuleType):
                if "._api.v2." in value.__name__ or dotted == "tf.experimental":
                    waiting.append((dotted, value))
            elif not inspect.ismodule(value):
                found[dotted] = f"{dotted} class" if isinstance(value, type) else dotted
    return [found[name] for name in sorted(found)]


def recorded() -> dict[str, bool]:
    """Return TensorFlow's public names, and whether they are classes."""
    lines = [line.split() for line in RECORD.read_text().splitlines()]
    return {name: bool(kind) for name, *kind in lines}


def facade_names() -> set[str]:
    """Return the facade's public names, without namespaces."""
    import tfdist_jax.compat.tensorflow as tf
    from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

    names: LazyNames = tf.__getattr__
    shown = (name for name in names.dotted_names() if not name.startswith(LEFT_OUT))
    return {
        "tf.newaxis",
        "tf.experimental.numpy.newaxis",
        *(name for name in shown if not name.rpartition(".")[2].startswith("_")),
    }


def status() -> dict[str, str]:
    """Return for each public name of TensorFlow "native", "emulated" or "unsupported"."""
    from tfdist_jax.compat.tensorflow._names._emulated import EMULATED

    here = facade_names()
    kind = lambda name: "unsupported" if name not in here else "emulated" if name in EMULATED else "native"
    return {name: kind(name) for name in recorded()}


def page() -> str:
    """Return the page's text."""
    from tfdist_jax.compat.tensorflow._names._emulated import EMULATED
    from tfdist_jax.compat.tensorflow._names._missing import reason

    by_name = status()
    spaces = sorted({name.rpartition(".")[0] for name in by_name})
    count = lambda kind, names: sum(by_name[name] == kind for name in names)
    lines = [
        "# Names",
        "",
        "Made by `make api`. For each of TensorFlow's public names: *native* computes with JAX what TensorFlow computes;",
        "*emulated* is there, but does its work in another way or has nothing to do; *unsupported* is not there: asking for it",
        "says why, or names the nearest that is. `tf.keras` is Keras 3 itself, on JAX. What differs within a name is in",
        "[differences.md](differences.md).",
        "",
        "| namespace | native | emulated | unsupported |",
        "| --- | --- | --- | --- |",
    ]
    for space in spaces:
        names = [name for name in by_name if name.rpartition(".")[0] == space]
        lines.append(
            f"| `{space}` | " + " | ".join(str(count(k, names)) for k in ("native", "emulated", "unsupported")) + " |"
        )
    for space in spaces:
        names = [name for name in by_name if name.rpartition(".")[0] == space]
        lines += ["", f"## {space}", ""]
        short = lambda name: f"`{name.rpartition('.')[2]}`"
        for kind in ("native", "emulated", "unsupported"):
            chosen = [name for name in names if by_name[name] == kind]
            if kind == "emulated" and chosen:
                lines += ["Emulated:", "", *(f"- {short(name)}: {EMULATED[name]}" for name in chosen), ""]
            elif kind == "unsupported":
                lines += unsupported(chosen)
            elif chosen:
                lines += [f"{kind.capitalize()}: {', '.join(map(short, chosen))}", ""]
        lines.pop()
    lines += ["", "## Namespaces that are not counted", ""]
    lines += [f"- `{space}`: {reason(space)}" for space in LEFT_OUT if reason(space)]
    return "\n".join(lines) + "\n"


def unsupported(names: list[str]) -> list[str]:
    """Return the lines about names that are not there, those for one reason together."""
    from tfdist_jax.compat.tensorflow._names._missing import reason

    lines: list[str] = []
    for why in sorted({reason(name) or "" for name in names}):
        same = ", ".join(f"`{name.rpartition('.')[2]}`" for name in names if (reason(name) or "") == why)
        lines += [f"Unsupported: {same}" + (f": {why}" if why else ""), ""]
    return lines


if __name__ == "__main__":
    main()
