"""docs/api.md and the type stubs say what is there; the facade's files stay short."""

import functools
import importlib.util
import re
from pathlib import Path

import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow._names._emulated import EMULATED

ROOT = Path(__file__).parents[1]
LONGEST = 600


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_api = _load(ROOT / "docs/make_api.py")
make_stubs = _load(ROOT / "docs/make_stubs.py")


def test_page_is_what_the_names_are():
    assert make_api.PAGE.read_text() == make_api.page(), "Run `make api`."


def test_stubs_are_what_the_names_are():
    written = {path.resolve(): path.read_text() for path in (ROOT / "compat").rglob("*.pyi")}
    assert written == make_stubs.stubs(), "Run `make api`."


def test_names_that_are_there_load_and_others_do_not():
    for name, kind in make_api.status().items():
        value = tf
        try:
            for part in name.split(".")[1:]:
                value = getattr(value, part)
        except AttributeError:
            assert kind == "unsupported", name
        else:
            assert kind != "unsupported", name


def test_what_is_emulated_exists():
    assert set(EMULATED) <= make_api.facade_names()


def test_what_is_a_class_in_tensorflow_is_one_here():
    classes = {name for name, is_class in make_api.recorded().items() if is_class} & make_api.facade_names()
    assert len(classes) > 150
    value = lambda name: functools.reduce(getattr, name.split(".")[1:], tf)
    assert [name for name in sorted(classes) if not isinstance(value(name), type)] == []


@pytest.mark.peers
@pytest.mark.exhaustive  # They change with constraints-*.txt alone.
@pytest.mark.slow("loads TensorFlow and looks at each of its names")
def test_recorded_names_are_tensorflows(run_script):
    program = f"""
        import importlib.util
        spec = importlib.util.spec_from_file_location("make_api", {str(ROOT / "docs/make_api.py")!r})
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        print("\\n".join(module.tensorflow_names()))
    """
    ran = run_script(program)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == make_api.RECORD.read_text().splitlines()


def test_no_file_of_the_facade_is_long():
    lengths = {path: len(path.read_text().splitlines()) for path in (ROOT / "compat").rglob("*.py")}
    assert {str(path): length for path, length in lengths.items() if length > LONGEST} == {}
    assert len(lengths) > 100


def test_page_counts_what_it_lists():
    text = make_api.PAGE.read_text()
    (row,) = re.findall(r"^\| `tf.nn` \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    listed = re.search(r"^## tf\.nn\n\nNative: (.*)$", text, re.MULTILINE)
    assert listed is not None and len(listed[1].split(", ")) == int(row[0])
