"""Python's garbage collector waits while modules are imported and programs traced, and collects again afterwards."""

import gc
import os
import subprocess
import sys

import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._garbage_collection import importing_modules, pausing_garbage_collection


def test_garbage_waits_while_a_program_is_traced():
    seen = []

    @tf.function
    def fn(x):
        seen.append(gc.isenabled())
        if len(seen) > 1:
            raise ValueError("on purpose")
        return x + tf.function(lambda y: y * 2)(x)

    fn(1.0)
    assert gc.isenabled()
    with pytest.raises(ValueError, match="on purpose"):
        fn(tf.ones(3))
    assert gc.isenabled()
    assert seen == [False, False]
    with pausing_garbage_collection(), pausing_garbage_collection():
        assert not gc.isenabled()
    gc.disable()
    try:
        tf.function(lambda x: x)(1.0)
        assert not gc.isenabled(), "as the user has set it"
    finally:
        gc.enable()


def test_garbage_is_collected_again_when_the_last_of_several_threads_has_traced():
    first, second = pausing_garbage_collection(), pausing_garbage_collection()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX forks")
def test_a_child_that_is_forked_while_another_thread_traces_collects_its_garbage():
    assert run_python("""
import gc, os
from tfdist_jax._garbage_collection import pausing_garbage_collection
with pausing_garbage_collection():
    if not (child := os.fork()):
        os._exit(7 if gc.isenabled() else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), gc.isenabled())
""") == ["7", "False"]


@pytest.mark.parametrize("module", ["tfdist_jax", "keras"])
def test_what_modules_make_is_not_looked_through_while_they_are_imported(module):
    frozen, is_enabled, *generations = run_python(f"""
import gc
if {module!r} == "keras":
    import tfdist_jax.compat.tensorflow
generations = []
gc.callbacks.append(lambda phase, info: generations.append(info["generation"]))
import {module}
print(gc.get_freeze_count(), gc.isenabled(), *generations)
""")
    assert (frozen, is_enabled) == ("0", "True")
    assert "2" not in generations and len(generations) < 10, "of several hundred otherwise"


def test_what_an_import_has_made_is_old_when_it_ends():
    assert run_python("""
import gc
from tfdist_jax._garbage_collection import importing_modules
begun = []
gc.callbacks.append(lambda phase, info: begun.append(info))
with importing_modules():
    made = [[] for _ in range(100_000)]
few = [[] for _ in range(100)]
print(len(begun), gc.get_freeze_count())
gc.freeze()
with importing_modules():
    made = [[] for _ in range(100)]
print(gc.get_freeze_count() > 100_000)  # The user's own.
""") == ["0", "0", "True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX forks")
def test_a_child_that_is_forked_inside_a_pause_pauses_again():
    assert run_python("""
import gc, os
from tfdist_jax._garbage_collection import pausing_garbage_collection
with pausing_garbage_collection():
    child = os.fork()
seen = [gc.isenabled()]
with pausing_garbage_collection():
    seen.append(gc.isenabled())
seen.append(gc.isenabled())
if not child:
    os._exit(seen != [True, False, True])
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), *seen)
""") == ["0", "True", "False", "True"]


def test_imports_leave_a_collector_as_the_user_has_set_it():
    gc.disable()
    try:
        with importing_modules():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(ImportError, match="on purpose"), importing_modules():
        raise ImportError("on purpose")
    assert gc.isenabled()


def run_python(code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout.split()
