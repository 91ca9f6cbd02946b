import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import tfdist_jax

ROOT = Path(__file__).parents[1]
MODULES = [module.name for module in pkgutil.walk_packages(tfdist_jax.__path__, "tfdist_jax.")]
OUTER = [name for name in MODULES if name.startswith(("tfdist_jax.cli", "tfdist_jax.compat"))]
CORE = ["tfdist_jax", *sorted({*MODULES} - {*OUTER, "tfdist_jax.__main__"})]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples_in(page):
    """The page's ```python blocks, each with the line it begins at."""
    text = page.read_text() if page.exists() else ""
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield pytest.param(block[1], id=f"{page.name}:{text.count(chr(10), 0, block.start()) + 1}")


EXAMPLES = [example for page in PAGES for example in examples_in(page)]


@pytest.mark.parametrize("name", OUTER)
def test_docstring_examples_run(name):
    assert doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed == 0


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
