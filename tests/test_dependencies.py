"""What the packages import is what pyproject.toml declares: always what they need, as an extra what some programs use."""

import ast
import importlib.metadata
import sys
import tomllib
from collections.abc import Iterable, Set
from pathlib import Path

import jax
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Extras that the packages' own code does not import.
NOT_IMPORTED = ("cuda12", "cuda13", "tpu", "examples", "peers", "dev", "testing")
# What hands out these modules; they are not installed here.
NOT_INSTALLED = {"kubernetes": "kubernetes", "googleapiclient": "google-api-python-client"}
# What hands out these modules; others hand out more in the same namespace.
SHARED = {"google.cloud.storage": "google-cloud-storage", "google.protobuf": "protobuf"}


def trees(*folders: str) -> list[ast.Module]:
    """What the folders hold, without the link to the facade and what has an extra of its own."""
    files = [path for folder in folders for path in (ROOT / folder).glob("**/*.py")]
    apart = {"compat", "testing"} - {Path(folder).name for folder in folders}
    return [ast.parse(path.read_text()) for path in files if not apart & {*path.relative_to(ROOT).parts[1:2]}]


def imported(tree: ast.AST) -> set[str]:
    """The modules that import statements name."""
    nodes = list(ast.walk(tree))
    statements = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {*statements, *(str(node.module) for node in nodes if isinstance(node, ast.ImportFrom))}


def imported_by_name(tree: ast.AST) -> set[str]:
    """The modules that `importlib.import_module` is given: those that may be missing."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    named = [call.args[0] for call in calls if ast.unparse(call.func) == "importlib.import_module"]
    return {name.value for name in named if isinstance(name, ast.Constant)}


def distributions(modules: Set[str]) -> set[str]:
    """The packages to install that hand out modules; modules that nobody does stand for themselves."""
    handed_out = importlib.metadata.packages_distributions()
    owner = {module: name for module in modules for part, name in SHARED.items() if f"{module}.".startswith(f"{part}.")}
    tops = {module.partition(".")[0] for module in modules - owner.keys()} - sys.stdlib_module_names - {"tfdist_jax"}
    owners = {top: handed_out.get(top) or [NOT_INSTALLED.get(top, top)] for top in tops}
    return {canonicalize_name(min(names)) for names in owners.values()} | set(owner.values())


def declared(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(requirement).name) for requirement in requirements}


def test_what_is_imported_is_declared():
    needed = distributions(set().union(*map(imported, trees("tfdist_jax", "compat"))))
    assert needed <= declared(PROJECT["dependencies"])
    assert {"jax", "etils", "h5py"} <= needed


def test_what_jax_imports_to_write_programs_is_declared():
    """JAX itself does without, and says so when a program is written: a SavedModel, or a step that goes to another process."""
    needed = imported(ast.parse(Path(jax.__file__).with_name("_src").joinpath("export/serialization.py").read_text()))
    assert distributions(needed) <= declared(PROJECT["dependencies"])


def test_what_may_be_missing_is_an_extra():
    extras = PROJECT["optional-dependencies"]
    optional = declared(requirement for name in extras.keys() - set(NOT_IMPORTED) for requirement in extras[name])
    assert distributions(set().union(*map(imported_by_name, trees("tfdist_jax", "compat")))) == optional
    assert not optional & declared(PROJECT["dependencies"])


def test_what_the_plugin_for_tests_imports_is_an_extra():
    needed = distributions(set().union(*map(imported, trees("tfdist_jax/testing"))))
    assert needed == declared(PROJECT["optional-dependencies"]["testing"])


def test_pinned_versions_are_those_that_are_declared():
    wanted = [
        Requirement(text)
        for texts in (PROJECT["dependencies"], *map(PROJECT["optional-dependencies"].get, ("images", "testing")))
        for text in texts
    ]
    for path in ROOT.glob("constraints-*.txt"):
        lines = [line for line in path.read_text().splitlines() if "==" in line]
        pinned = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
        wrong = [one for one in wanted if pinned.get(canonicalize_name(one.name), "") not in one.specifier]
        assert not wrong, path.name
