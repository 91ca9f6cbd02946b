"""docs/reference.md has every public name of the native library, each with what it does and an example."""

import ast
import builtins
import doctest
import importlib.util
import inspect
from pathlib import Path

import pytest

import tfdist_jax


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_reference = _load(Path(__file__).parents[1] / "docs" / "make_reference.py")
NAMES = make_reference.public_names()
METHODS = [
    pytest.param(member, id=f"{name}.{member_name}")
    for name in NAMES
    if isinstance(value := getattr(tfdist_jax, name), type)
    for member_name, member in make_reference.members(value).items()
]


def test_page_is_what_the_docstrings_are():
    assert make_reference.PAGE.read_text() == make_reference.page(), "Run `make api`."


def test_page_has_every_public_name_once():
    assert sorted(name for _, names in make_reference.SUBJECTS.values() for name in names) == sorted(NAMES)
    assert len(NAMES) > 35


@pytest.mark.parametrize("member", METHODS)
def test_public_methods_and_properties_say_what_they_do(member):
    assert inspect.getdoc(member.fget if isinstance(member, property) else member)


def names_not_defined(source):
    """Return the names that an example uses and nothing in it defines."""
    nodes = list(ast.walk(ast.parse(source)))
    defined = {*dir(builtins)}
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                defined.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case ast.alias(name=name, asname=shown):
                defined.add(shown or name.partition(".")[0])
    return {node.id for node in nodes if isinstance(node, ast.Name)} - defined


@pytest.mark.parametrize("name", [name for name in NAMES if name not in make_reference.CONSTANTS])
def test_public_names_have_examples_that_can_be_copied(name):
    """That they run is tested in `test_docs.py`."""
    value = getattr(tfdist_jax, name)
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
    assert examples
    assert "SKIP" not in inspect.getdoc(value)
    members = make_reference.members(value).values() if isinstance(value, type) else ()
    for docstring in (value.__doc__, *(getattr(member, "__doc__", None) for member in members)):
        source = "".join(example.source for example in doctest.DocTestParser().get_examples(docstring or ""))
        assert names_not_defined(source) == set()
