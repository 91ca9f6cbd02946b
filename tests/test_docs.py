import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import tfdist_jax

ROOT = Path(__file__).parents[1]
MODULES = [module.name for module in pkgutil.walk_packages(tfdist_jax.__path__, "tfdist_jax.")]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples_in(page):
    """The page's ```python blocks, each with the line it begins at."""
    text = page.read_text() if page.exists() else ""
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield pytest.param(block[1], id=f"{page.name}:{text.count(chr(10), 0, block.start()) + 1}")


EXAMPLES = [example for page in PAGES for example in examples_in(page)]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    assert doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed == 0


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_in_pages_run(example, run_program):
    """An example with prompts must print what it shows; one without is a program for `tfdist-jax run`."""
    if ">>>" in example:
        test = doctest.DocTestParser().get_doctest(example, {}, "example", None, 0)
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0
    else:
        ran = run_program(example, devices=8)
        assert ran.returncode == 0, ran.stderr


def test_facade_modules_are_part_of_the_package():
    assert "tfdist_jax.compat.tensorflow.distribute" in MODULES
