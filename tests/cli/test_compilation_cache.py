"""What `tfdist-jax run` keeps of its programs' compilation for later runs."""

import re

import pytest

PROGRAM = """
import sys
import jax, jax.numpy as jnp
from jax import monitoring
events = []
monitoring.register_event_listener(lambda event, **_: events.append(event))
{before}
jax.jit(lambda x: jnp.sin(x) @ x + {constant})(jnp.ones((4, 4))).block_until_ready()
print(*(events.count(f"/jax/compilation_cache/cache_{{name}}") for name in ("hits", "misses")))
"""


@pytest.fixture
def run_counted(run_script, tmp_path):
    """Run a program; return how many compiled programs it has loaded, how many it has kept, and what it says."""

    def run(*options, before="", constant=1, **env):
        env = {"TFDIST_COMPILATION_CACHE": "", "XDG_CACHE_HOME": str(tmp_path / "caches"), **env}
        program = PROGRAM.format(before=before, constant=constant)
        ran = run_script(program, runner=("-m", "tfdist_jax", "run", *options), env=env)
        assert ran.returncode == 0, ran.stderr
        return *map(int, ran.stdout.split()), ran.stderr

    return run


def programs_in(folder):
    return list(folder.rglob("jit_*-cache"))


@pytest.mark.slow("three runs, and a fourth process")
def test_the_second_run_compiles_nothing(run_counted, tmp_path):
    loaded, kept, said = run_counted()
    assert (loaded, said) == (0, "")
    assert kept == len(programs_in(tmp_path / "caches" / "tfdist_jax" / "programs")) > 0
    (probed,) = {path.parent for path in programs_in(tmp_path)}
    (probed / "reload_problem").write_text("")  # Whatever processor this is.
    assert run_counted() == (kept, 0, "")
    (probed / "reload_problem").write_text("This processor cannot.")
    assert run_counted() == (0, kept, "")
    assert len(programs_in(tmp_path)) == kept


@pytest.mark.slow("three runs")
def test_the_folder_can_be_moved_or_turned_off(run_counted, tmp_path):
    _, kept, _ = run_counted(TFDIST_COMPILATION_CACHE=str(tmp_path / "variable"))
    assert len(programs_in(tmp_path / "variable")) == kept > 0
    run_counted("--compilation-cache", "option", TFDIST_COMPILATION_CACHE="off")
    assert len(programs_in(tmp_path / "option")) == kept
    assert run_counted("--compilation-cache", "off", TFDIST_COMPILATION_CACHE=str(tmp_path / "no"))[0] == 0
    assert not (tmp_path / "no").exists()
    assert not (tmp_path / "caches").exists()


@pytest.mark.slow("three runs")
def test_what_the_user_has_set_for_jax_counts(run_counted, tmp_path):
    run_counted(JAX_COMPILATION_CACHE_DIR=str(tmp_path / "environment"))
    assert programs_in(tmp_path / "environment")
    run_counted(before="jax.config.update('jax_compilation_cache_dir', 'program')")
    assert programs_in(tmp_path / "program")
    assert run_counted(JAX_ENABLE_COMPILATION_CACHE="false")[:2] == (0, 0)
    assert not (tmp_path / "caches").exists()


def test_a_folder_that_cannot_be_written_is_told_once(run_counted, tmp_path):
    (tmp_path / "file").write_text("")
    loaded, _, said = run_counted("--compilation-cache", "file/folder")
    assert loaded == 0
    assert re.fullmatch(r"Compiled programs cannot be kept in .*/file/folder: Not a directory\..*\n", said), said


def test_programs_that_call_back_are_right_each_time(run_script, tmp_path):
    program = """
        import jax, numpy as np
        seen = []
        def note(x):
            seen.append(float(x))
            return np.float32(x + 1)
        def step(x):
            jax.debug.callback(note, x)
            return jax.pure_callback(note, jax.ShapeDtypeStruct((), "float32"), x) * 2
        print(jax.jit(step)(1.0), sorted(set(seen)))
    """
    for _ in range(2):
        ran = run_script(
            program, runner=("-m", "tfdist_jax", "run"), env={"TFDIST_COMPILATION_CACHE": str(tmp_path / "programs")}
        )
        assert ran.stdout == "4.0 [1.0]\n", ran.stderr


def test_spawned_processes_share_the_folder(run_script, tmp_path):
    program = """
        import multiprocessing

        def compiled(x):
            import jax
            return float(jax.jit(lambda x: x * 2 + 1)(x))

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(compiled, [1.0]))
    """
    ran = run_script(program, runner=("-m", "tfdist_jax", "run", "--compilation-cache", "programs"))
    assert ran.stdout == "[3.0]\n", ran.stderr
    assert programs_in(tmp_path / "programs")


def test_no_folder_is_refused(run_script):
    ran = run_script("", runner=("-m", "tfdist_jax", "run", "--compilation-cache", ""))
    assert ran.returncode == 2
    assert "needs a folder, or 'off', got nothing" in ran.stderr
