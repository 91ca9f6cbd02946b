"""Write docs/reference.md: every public name of `tfdist_jax`, from signatures and docstrings."""

import ast
import dataclasses
import enum
import inspect
import re
from pathlib import Path
from typing import Any

import tfdist_jax

PAGE = Path(__file__).parent / "reference.md"

# Each subject with what it is about, and its names in the order in which one meets them.
SUBJECTS = {
    "Strategies": (
        "A strategy says where the state lies. All have the methods of `td.Strategy`; [parallelism.md](parallelism.md) compares them.",
        [
            "Strategy",
            "SingleDevice",
            "Mirrored",
            "ZeRO1",
            "FSDP",
            "HSDP",
            "TensorParallel",
            "Sharded",
            "Pipeline",
            "Offloaded",
            "CentralStorage",
            "Compressed",
            "Int8",
            "BFloat16",
            "PowerSGD",
            "TopK",
            "Compression",
        ],
    ),
    "Pipelines": (
        "A loss made of stages, and who computes what of it when; [parallelism.md](parallelism.md#pipelines) compares the schedules.",
        ["Staged", "Schedule", "ScheduleError"],
    ),
    "Parameter servers": (
        "Workers that do not wait for each other; [parameter-server.md](parameter-server.md) says when that helps.",
        ["ParameterServer", "Asynchronous", "Synchronous", "LocalSGD", "StepResult"],
    ),
    "What a step does": (
        "Told before it runs, and held to in tests; [explain.md](explain.md) reads an explanation.",
        ["Explanation", "assert_collectives", "check_equal"],
    ),
    "Which mesh": (
        "Compared before there are devices; [parallelism.md](parallelism.md#which-mesh) says how.",
        ["plan", "Plan", "PlannedMesh", "Hardware", "HARDWARE"],
    ),
    "What a loss returns": (
        "A mean, a sum or entries of rows are found out; these say it where nothing can be known.",
        ["Sum", "Mean", "Rows"],
    ),
    "Inside of a model": (
        "Functions for losses and models. On one device they are what they say.",
        [
            "layer",
            "row_keys",
            "attend",
            "token_positions",
            "run_experts",
            "Routed",
            "compute_router_z_loss",
            "assume_exact",
        ],
    ),
    "Checkpoints": (
        "The state of a training by step, in a folder or a bucket.",
        ["Checkpointer", "Restored", "DataLossError"],
    ),
    "Several processes": (
        "One process for each machine, or group of devices; [multi-machine.md](multi-machine.md) leads there.",
        ["initialize", "Cluster", "Task", "Timeouts", "TLS", "MissingTasksError", "Preemption", "LateSave"],
    ),
    "Devices and layouts": (
        "What a strategy of one's own answers with.",
        ["use_cpu_devices", "make_mesh", "DATA", "Layout", "StateLeaf"],
    ),
    "Replica by replica": (
        "For `strategy.run`, where a program says itself what replicas exchange.",
        ["PerReplica", "ReduceOp", "fused_sum", "fused_mean", "split_sizes", "PaddedBatch"],
    ),
}

# Values have no docstring, and need no example.
CONSTANTS = {
    "DATA": 'The string "data": the axis of a mesh over which the batch is split.',
    "HARDWARE": "What is known of GPUs and TPUs, a `td.Hardware` each, by their names: "
    + ", ".join(f"`{name}`" for name in tfdist_jax.HARDWARE)
    + ".",
}

TITLES = ("Args", "Attributes", "Returns", "Raises", "Example")

# What JAX calls, and nobody else.
HIDDEN = {"tree_flatten", "tree_unflatten"}


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


def public_names() -> list[str]:
    """Return the names that `tfdist_jax` exports: those that it imports as themselves."""
    module = ast.parse(inspect.getsource(tfdist_jax))
    aliases = [alias for node in ast.walk(module) if isinstance(node, ast.ImportFrom) for alias in node.names]
    return [alias.name for alias in aliases if alias.asname == alias.name]


def members(cls: type) -> dict[str, Any]:
    """Return the public methods and properties that a class has of its own, in their order."""
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set[str]()
    named = {*fields, *getattr(cls, "_fields", ()), *getattr(cls, "__slots__", ()), *HIDDEN}
    if issubclass(cls, tfdist_jax.Strategy) and cls is not tfdist_jax.Strategy:
        named |= {*dir(tfdist_jax.Strategy)}
    is_one = lambda value: isinstance(value, property | classmethod) or inspect.isfunction(value)
    return {
        name: value
        for name, value in vars(cls).items()
        if not name.startswith("_") and name not in named and is_one(value)
    }


def page() -> str:
    """Return the page's text."""
    lines = [
        "# Reference",
        "",
        "Made by `make api` from the docstrings of `import tfdist_jax as td`, whose examples are tested. They run on eight devices.",
        "",
    ]
    for subject, (_, names) in SUBJECTS.items():
        lines.append(f"- [{subject}](#{subject.lower().replace(' ', '-')}): {', '.join(f'`{name}`' for name in names)}")
    for subject, (about, names) in SUBJECTS.items():
        lines += ["", f"## {subject}", "", about]
        for name in names:
            lines += ["", *entry(name)]
    return "\n".join(lines) + "\n"


def entry(name: str) -> list[str]:
    """Return the lines about a public name."""
    value = getattr(tfdist_jax, name)
    if name in CONSTANTS:
        return [f"### td.{name}", "", CONSTANTS[name]]
    lines = [f"### td.{name}", ""]
    if arguments := signature(value):
        lines += [f"`td.{name}{arguments}`", ""]
    lines += markdown(value.__doc__)
    if "__init__" in vars(value) and not dataclasses.is_dataclass(value):
        lines += ["", *markdown(value.__init__.__doc__)]
    for member, of_class in members(value).items() if isinstance(value, type) else ():
        is_property = isinstance(of_class, property)
        function = of_class.fget if is_property else getattr(value, member)
        shown = f".{member}" if is_property else f".{member}{signature(function)}"
        lines += ["", f"#### `{name}{shown}`", "", *markdown(function.__doc__)]
    return lines


def signature(value: Any) -> str:
    """Return the arguments as a caller writes them, with their defaults; of errors and enumerations, none."""
    if isinstance(value, type) and (issubclass(value, Exception | enum.Enum) or inspect.isabstract(value)):
        return ""
    found = inspect.signature(value)
    arguments = [
        each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values() if each.name != "self"
    ]
    return str(found.replace(parameters=arguments, return_annotation=inspect.Signature.empty))


def markdown(docstring: str | None) -> list[str]:
    """Return a docstring's lines, with its sections as lists and its examples as blocks."""
    lines: list[str] = []
    title = ""
    for part in re.split(rf"^({'|'.join(TITLES)}):\n", inspect.cleandoc(docstring or ""), flags=re.MULTILINE):
        if part in TITLES:
            title = part
        elif not title:
            lines += [*part.strip().splitlines(), ""]
        elif title == "Example":
            lines += ["```pycon", *inspect.cleandoc(part).splitlines(), "```", ""]
        elif title == "Returns":
            lines += [f"Returns: {' '.join(part.split())}", ""]
        else:
            lines += [*([] if title == "Args" else [f"{title}:", ""]), *items(part), ""]
    return lines[:-1]


def items(section: str) -> list[str]:
    """Return a section's entries, `name: text`, as a list."""
    entries = re.split(r"\n(?=\w+: )", inspect.cleandoc(section).strip())
    pairs = [entry.split(": ", 1) for entry in entries]
    return [f"- `{name}`: {' '.join(text.split())}" for name, text in pairs]


if __name__ == "__main__":
    main()
