import argparse
import dataclasses
import doctest
import importlib
import inspect
import pkgutil
import re
import shlex
from pathlib import Path

import pytest

import tfdist_jax
from tfdist_jax.cli import _main

ROOT = Path(__file__).parents[1]
MODULES = [module.name for module in pkgutil.walk_packages(tfdist_jax.__path__, "tfdist_jax.")]
OUTER = [name for name in MODULES if name.startswith(("tfdist_jax.cli", "tfdist_jax.compat"))]
CORE = ["tfdist_jax", *sorted({*MODULES} - {*OUTER, "tfdist_jax.__main__"})]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


# A page whose examples with prompts go on from one another: they are one.
SESSIONS = [ROOT / "docs" / "native.md"]


def examples_in(page):
    """The page's ```python blocks, each with the line it begins at."""
    text = page.read_text() if page.exists() else ""
    session = []
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if page in SESSIONS and ">>>" in block[1]:
            session.append(block[1])
        else:
            yield pytest.param(block[1], id=f"{page.name}:{text.count(chr(10), 0, block.start()) + 1}")
    if session:
        yield pytest.param("".join(session), id=page.name, marks=pytest.mark.slow("trains in a dozen ways"))


EXAMPLES = [example for page in PAGES for example in examples_in(page)]


def test_files_that_pages_name_are_there():
    """Such as `tf/random/_state.py`, where tf/ is the facade."""
    files = [path.relative_to(ROOT) for top in ("tfdist_jax", "compat", "tests") for path in (ROOT / top).rglob("*.py")]
    for page in (ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md"):
        named = re.findall(r"`([a-z_/]+\.py)`", page.read_text())
        wanted = {re.sub("^tf/", "compat/tensorflow/", name) for name in named}
        assert {name for name in wanted if not any(f"/{file}".endswith(f"/{name}") for file in files)} == set()
        assert named


@pytest.mark.parametrize("name", OUTER)
def test_docstring_examples_run(name):
    module = importlib.import_module(name)
    # Doctest looks into all that a module holds: also into Keras's names that then import TensorFlow, which may not be there.
    if ">>>" in inspect.getsource(module):
        assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_docstring_examples_of_the_core_run_without_the_facade(run_script):
    """The facade, once imported, adds to JAX's arrays; the native library does without."""
    program = f"""
        import doctest, importlib, sys
        import tfdist_jax
        tfdist_jax.use_cpu_devices(8)
        results = [doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS) for name in {CORE}]
        print(sum(result.attempted for result in results), file=sys.stderr)
        loaded = [name for name in ("keras", "tensorflow", "tfdist_jax.compat") if name in sys.modules]
        sys.exit(f"loaded: {{loaded}}" if loaded else any(result.failed for result in results))
    """
    ran = run_script(program)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(ran.stderr) > 10


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_in_pages_run(example, run_prepared):
    """An example with prompts must print what it shows; one without is a program for `tfdist-jax run`."""
    if ">>>" in example:
        test = doctest.DocTestParser().get_doctest(example, {}, "example", None, 0)
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0
    else:
        ran = run_prepared(example, devices=8)
        assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_native_names_and_links_of_pages_exist(page):
    text = page.read_text()
    assert {name for name in re.findall(r"\btd\.(\w+)", text) if not hasattr(tfdist_jax, name)} == set()
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_what_the_page_of_several_machines_names_exists():
    text = (ROOT / "docs" / "multi-machine.md").read_text()
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    for command in _main._COMMANDS:
        command.add_parser(subparsers)
    commands = re.findall(r"tfdist-jax ((?:run|launch|doctor) [^`\"\n]+)", text)
    assert len(commands) > 8
    for command in commands:
        parser.parse_args(shlex.split(command))
    options = {option for one in subparsers.choices.values() for option in one._option_string_actions}
    schedulers = (ROOT / "examples" / "cluster" / "slurm.sh").read_text()
    assert all(option in options or option in schedulers for option in re.findall(r"`(--[a-z-]+)", text))
    times = {
        f"TFDIST_{field.name.removesuffix('_s').upper()}_TIMEOUT_S" for field in dataclasses.fields(tfdist_jax.Timeouts)
    }
    sources = "".join(path.read_text() for path in (ROOT / "tfdist_jax").rglob("*.py"))
    assert all(name in times or name in sources for name in re.findall(r"`(TFDIST_\w+)`", text))


def test_facade_modules_are_part_of_the_package():
    assert "tfdist_jax.compat.tensorflow.distribute" in MODULES
