"""Programs under `tfdist-jax run`, each in a process of its own."""

import os
import signal
import subprocess
import sys

import pytest
from environment import LIMIT_S


def test_program_sees_its_arguments_and_is_main(run_program):
    ran = run_program(
        """
        import sys
        print(__name__, sys.argv, __file__ == sys.argv[0])
        """,
        "--devices",
        "3",
        "-m",
        "x y",
    )
    assert ran.returncode == 0, ran.stderr
    name, shown = ran.stdout.split(maxsplit=1)
    assert name == "__main__"
    assert shown.endswith("script.py', '--devices', '3', '-m', 'x y'] True\n")


def test_program_imports_modules_beside_it(run_prepared, tmp_path):
    folder = tmp_path / "somewhere"
    folder.mkdir()
    (folder / "neighbour.py").write_text("import tensorflow as tf\nDTYPE = tf.float32")
    (folder / "train.py").write_text("import neighbour, tensorflow as tf\nprint(neighbour.DTYPE is tf.float32)")
    assert run_prepared(folder / "train.py").stdout == "True\n"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "statement", ["from ._arguments import positive_int", "from . import other", "from .other import x"]
)
def test_a_script_has_no_package_to_import_from(run_prepared, statement):
    ran = run_prepared(
        f"try:\n    {statement}\nexcept ImportError as error:\n    print(error, __package__, __spec__.parent == '')"
    )
    assert ran.stdout == "attempted relative import with no known parent package None True\n", ran.stderr


def test_processor_is_split_into_the_wanted_devices(run_program):
    assert run_program("import jax; print(jax.device_count())", devices=3).stdout == "3\n"


def test_processor_is_one_device_by_default(run_prepared):
    assert run_prepared("import jax; print(jax.device_count())", devices=None).stdout == "1\n"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("pass", 0),
        ("import sys; sys.exit(7)", 7),
        ("raise SystemExit", 0),
        ("raise SystemExit('no data')", 1),
        ("1 / 0", 1),
        ("import os; os._exit(5)", 5),
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_exit_code_is_that_of_python(run_prepared, program, code):
    assert run_prepared(program).returncode == code


def test_exit_message_goes_to_stderr(run_prepared):
    assert run_prepared("raise SystemExit('no data')").stderr == "no data\n"


FAILING = """
def train(steps):
    # a comment
    return steps / 0

try:
    train(1)
except ZeroDivisionError as error:
    raise RuntimeError("training failed") from error
"""


def test_traceback_is_that_of_python(run_program, run_script):
    expected = run_script(FAILING)
    ran = run_program(FAILING)
    assert "return steps / 0" in ran.stderr
    assert ran.stderr == expected.stderr


def test_traceback_of_a_failing_import_is_that_of_python(run_prepared, run_script, tmp_path):
    (tmp_path / "first.py").write_text("import second")
    (tmp_path / "second.py").write_text("import missing_module")
    program = "try:\n    import first\nexcept ImportError as error:\n    raise RuntimeError('no data') from error"
    expected = run_script(program)
    ran = run_prepared(program)
    assert "import missing_module" in ran.stderr
    assert ran.stderr == expected.stderr


def test_syntax_error_is_shown_as_by_python(run_prepared, run_script):
    program = "import os\nif True print('x')\n"
    expected = run_script(program)
    ran = run_prepared(program)
    assert (ran.returncode, ran.stderr) == (1, expected.stderr)


def test_own_hook_for_exceptions_is_called(run_prepared):
    program = """
        import sys
        sys.excepthook = lambda kind, error, frames: print(kind.__name__, frames.tb_frame.f_code.co_name)
        raise KeyError("x")
    """
    assert run_prepared(program).stdout == "KeyError <module>\n"


def test_functions_of_the_program_can_be_read(run_prepared):
    program = """
        import inspect, os
        def step(x):
            return x + 1
        os.chdir("/")
        print(inspect.getsource(step))
    """
    assert "return x + 1" in run_prepared(program).stdout


def test_missing_program_is_an_error(run_prepared, tmp_path):
    ran = run_prepared(tmp_path / "absent.py")
    assert ran.returncode == 2
    assert "absent.py" in ran.stderr
    assert "Name a Python file" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_folder_is_no_program(run_prepared, tmp_path):
    ran = run_prepared(tmp_path)
    assert ran.returncode == 2
    assert "is a folder" in ran.stderr


@pytest.mark.one_in(3)
@pytest.mark.parametrize("devices", ["0", "-1", "two"])
def test_number_of_devices_is_checked(run_prepared, devices):
    ran = run_prepared("pass", devices=devices)
    assert ran.returncode == 2
    assert "1 or more" in ran.stderr


def test_module_runs_with_its_package(run_script, tmp_path):
    package = tmp_path / "research"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "layers.py").write_text("from tensorflow.keras.layers import Dense")
    (package / "train.py").write_text(
        "import sys\nfrom .layers import Dense\nprint(__name__, sys.argv[1:], Dense.__name__)"
    )
    command = ("-m", "tfdist_jax", "run", "-m")
    ran = run_script("", runner=(*command, "research.train"))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"__main__ ['{tmp_path / 'script.py'}'] Dense\n"


def test_missing_module_is_an_error(run_script):
    ran = run_script("", runner=("-m", "tfdist_jax", "run", "-m", "no_such_package.train"))
    assert ran.returncode == 2
    assert "no_such_package" in ran.stderr


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_processes_see_the_facade(run_program, method):
    program = f"""
        import multiprocessing
        import tensorflow as tf

        def double(x):
            return int(tf.constant(x) * 2), __name__

        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
    """
    ran = run_program(program)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "[(2, '__mp_main__'), (4, '__mp_main__')]\n"


# Where the tests run in the background, the shell has them ignore interrupts, and so the programs they start.
INTERRUPTIBLE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture
def start_program(tmp_path):
    """Start a program and leave it running until the test ends."""
    running = []

    def start(source):
        (tmp_path / "script.py").write_text(source)
        command = [sys.executable, "-c", INTERRUPTIBLE, "-m", "tfdist_jax", "run", "script.py"]
        running.append(
            subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return running[-1]

    yield start
    for process in running:
        with process:
            process.kill()


def test_interrupt_ends_the_program(start_program):
    process = start_program("import time\nprint('started', flush=True)\ntime.sleep(100)")
    assert process.stdout.readline() == "started\n"
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "KeyboardInterrupt"


def test_reader_may_stop_reading(start_program):
    process = start_program("for i in range(100_000): print(i)")
    assert process.stdout.readline() == "0\n"
    process.stdout.close()
    assert "BrokenPipeError" in process.stderr.read()
    assert process.wait(timeout=LIMIT_S) != 0


def test_a_program_written_for_jax_keeps_its_arrays(run_program):
    """The facade, which gives arrays TensorFlow's looks, is loaded by what asks for TensorFlow or Keras."""
    program = """
    import sys
    import jax.numpy as jnp
    ones = jnp.ones((2, 3))
    print(type(ones.shape).__name__, str(ones), "tfdist_jax.compat.tensorflow" in sys.modules)
    import keras
    print(keras.backend.backend(), "tfdist_jax.compat.tensorflow" in sys.modules)
    """
    ran = run_program(program, env={"KERAS_BACKEND": "tensorflow"})
    assert ran.stdout == "tuple [[1. 1. 1.]\n [1. 1. 1.]] False\njax True\n", ran.stderr


@pytest.mark.parametrize("filtering", [None, "quiet_remove_frames"])
def test_the_last_line_of_a_traceback_is_the_error(run_program, filtering):
    program = """
        import jax, jax.numpy as jnp
        jax.jit(lambda x: x + jnp.ones(3))(jnp.ones(2))
        """
    ran = run_program(program, env={"JAX_TRACEBACK_FILTERING": filtering} if filtering else {})
    assert ran.returncode == 1 and ("removed its internal frames" in ran.stderr) == bool(filtering)
    assert filtering or ran.stderr.splitlines()[-1].startswith("TypeError: add got incompatible shapes")


@pytest.fixture
def library(tmp_path):
    """A folder of installed packages, in which `layers_for_tf` and `one_file` import TensorFlow."""
    folder = tmp_path / "site-packages"
    (folder / "layers_for_tf").mkdir(parents=True)
    code = "import tensorflow as tf\n@tf.function\ndef halve(x):\n    while tf.reduce_max(x) > 1:\n        x /= 2\n    return x\n"
    (folder / "layers_for_tf" / "__init__.py").write_text("from layers_for_tf.inside import halve")
    (folder / "layers_for_tf" / "inside.py").write_text(code)
    (folder / "one_file.py").write_text(code)
    return folder


@pytest.mark.parametrize("given", ["option", "variable"])
def test_a_named_library_gets_the_facade(run_script, library, given):
    ran = run_script(
        """
        import tensorflow as tf, layers_for_tf, one_file
        print(layers_for_tf.inside.tf is tf, one_file.tf is tf, layers_for_tf.halve(tf.constant([4.0, 1.0])).numpy().tolist())
        """,
        runner=("-m", "tfdist_jax", "run", *(("--alias-for", "layers_for_tf, one_file") if given == "option" else ())),
        env={"PYTHONPATH": str(library)}
        | ({"TFDIST_ALIAS_FOR": "layers_for_tf,one_file"} if given == "variable" else {}),
    )
    assert ran.stdout == "True True [1.0, 0.25]\n", ran.stderr


def test_a_library_that_is_not_named_does_not_get_the_facade(run_script, library):
    ran = run_script(
        """
        import sys, tensorflow as tf
        try:
            import one_file
        except ModuleNotFoundError as error:
            print(error.name)
        else:
            print(one_file.tf is tf)
        """,
        runner=("-m", "tfdist_jax", "run"),
        env={"PYTHONPATH": str(library)},
    )
    assert ran.stdout in ("tensorflow\n", "False\n"), ran.stderr


def test_a_library_that_is_not_there_is_said_so(run_prepared):
    ran = run_prepared("pass", env={"TFDIST_ALIAS_FOR": "no_such_library"})
    assert (
        ran.returncode == 2 and "No module named 'no_such_library', which TFDIST_ALIAS_FOR or --alias-for" in ran.stderr
    )
