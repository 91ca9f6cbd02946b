"""Modules that Keras loads and few programs use are run when they are used."""

import importlib
import sys
import threading

import pytest

from tfdist_jax.compat import _deferred_module


@pytest.fixture
def deferred(tmp_path, monkeypatch):
    """Write modules and defer those named, of which `sys.ran` lists what has been run."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "ran", [], raising=False)
    before = set(sys.modules)

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name in _deferred_module.DEFERRED:
                return _deferred_module.defer(importlib.machinery.PathFinder.find_spec(name, path, target))
            return None

    def write(names, sources):
        for name, source in sources.items():
            file = tmp_path / f"{name}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"import sys\nsys.ran.append(__name__)\n{source}\n")
        monkeypatch.setattr(_deferred_module, "DEFERRED", frozenset(names))
        return sys.ran

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_module_is_run_once_when_something_of_it_is_used(deferred):
    ran = deferred(["later_a"], {"later_a": "value = 3"})
    import later_a

    assert later_a.__name__ == "later_a"
    assert later_a.__file__.endswith("later_a.py")
    assert getattr(later_a, "__warningregistry__", None) is None
    assert ran == []
    assert later_a.value == 3
    assert type(later_a) is type(sys)
    from later_a import value

    assert value == 3
    assert ran == ["later_a"]
    with pytest.raises(AttributeError, match="'later_a' has no attribute 'missing'"):
        _ = later_a.missing
    importlib.reload(later_a)
    assert ran == ["later_a"] * 2


@pytest.mark.parametrize("use", [dir, lambda module: module.__all__, lambda module: hasattr(module, "value")])
def test_whoever_asks_what_there_is_runs_it(deferred, use):
    ran = deferred(["later_b"], {"later_b": "__all__ = ['value']\nvalue = 3"})
    import later_b

    assert use(later_b)
    assert ran == ["later_b"]


def test_modules_of_a_deferred_package_are_deferred_and_run_after_it(deferred):
    ran = deferred(
        ["later_c", "later_c.part"],
        {
            "later_c/__init__": "from later_c.part import value",
            "later_c/part": "from later_c import other\nvalue = other.value",
            "later_c/other": "value = 5",
        },
    )
    from later_c import part

    assert ran == []
    assert part.value == 5
    assert ran == ["later_c", "later_c.part", "later_c.other"]


def test_an_error_comes_where_the_module_is_used_each_time(deferred):
    ran = deferred(["later_d"], {"later_d": "import nothing_of_this_name"})
    import later_d

    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
            _ = later_d.value
    assert ran == ["later_d"] * 2


def test_threads_see_a_module_that_has_been_run(deferred):
    source = "import threading\nfirst = 1\nsys.begun.set()\nsys.go_on.wait(60)\nlast = 2"
    ran = deferred(["later_e"], {"later_e": source})
    import later_e

    sys.begun, sys.go_on = threading.Event(), threading.Event()
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(later_e.last)) for _ in range(3)]
    try:
        threads[0].start()
        assert sys.begun.wait(60)
        for thread in threads[1:]:
            thread.start()
        assert seen == []
        sys.go_on.set()
        for thread in threads:
            thread.join(60)
    finally:
        del sys.begun, sys.go_on
    assert seen == [2, 2, 2]
    assert ran == ["later_e"]


def test_keras_starts_without_what_few_programs_use(run_program):
    program = """
        import gc, sys
        import tensorflow as tf, keras
        tf.keras.Sequential([tf.keras.layers.Dense(1)]).build((None, 2))
        heavy = ("sklearn", "matplotlib.pyplot", "scipy.sparse", "tensorboardX")
        print([name for name in heavy if name in sys.modules], gc.isenabled(), gc.get_freeze_count())
        print(keras.visualization.plot_image_gallery.__name__, tf.keras.wrappers.SKLearnClassifier.__name__)
        print([name for name in heavy if name in sys.modules])
        from keras.src.backend.jax import nn
        print(nn.splash_attention_mask.CausalMask.__name__, nn.splash_attention_kernel.SegmentIds.__name__)
        from jax.experimental import sparse
        print(sparse.linalg.spsolve.__name__)
    """
    ran = run_program(program)
    assert ran.stdout.splitlines() == [
        "[] True 0",
        "plot_image_gallery SKLearnClassifier",
        "['sklearn', 'matplotlib.pyplot', 'scipy.sparse']",
        "CausalMask SegmentIds",
        "spsolve",
    ], ran.stderr


def test_a_program_that_has_the_collector_off_keeps_it_off(run_program):
    ran = run_program("import gc\ngc.disable()\nimport keras, tensorflow as tf\nprint(gc.isenabled())")
    assert ran.stdout == "False\n", ran.stderr
