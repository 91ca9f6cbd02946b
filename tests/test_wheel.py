"""The wheel, built from the source distribution, works in an environment that has never seen the repository."""

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from environment import LIMIT_S

ROOT = Path(__file__).parents[1]
SHIPPED = ("pyproject.toml", "README.md", "LICENSE", "tfdist_jax", "compat")

PROGRAM = """
import sys
import tensorflow as tf
from tensorflow.keras.layers import Dense

print(tf.distribute.MirroredStrategy().num_replicas_in_sync, sys.argv[1:])
"""

SAVING_AND_SERVED = """
import sys
import tensorflow as tf

class Line(tf.Module):
    def __init__(self):
        self.slope = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def __call__(self, x):
        return self.slope * x

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0)
add = tf.function(lambda x: total.assign_add(x))
for i in range(10):
    coordinator.schedule(add, args=(tf.constant(float(i)),))
coordinator.join()
tf.saved_model.save(Line(), sys.argv[1])
print(float(total), tf.saved_model.load(sys.argv[1])(tf.constant([1.0, 2.0])).numpy())
"""


def run(*command, cwd):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build in a copy: setuptools writes into the folder that it builds."""
    source = tmp_path_factory.mktemp("source")
    for name in SHIPPED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, source)
    run(sys.executable, "-m", "build", "--no-isolation", cwd=source)
    return next((source / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def clean_python(wheel, tmp_path_factory):
    """A new environment with the wheel, and with the dependencies that are installed here, read in place."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--no-index",
        str(wheel),
        cwd=folder,
    )
    site = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    # A plain path: unlike a site folder's, its own .pth files, which name the repository, are not followed.
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def test_wheel_holds_the_facade_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"tfdist_jax"}
    assert {"tfdist_jax/compat/tensorflow/__init__.py", "tfdist_jax/py.typed"} <= set(names)


def test_wheel_holds_every_module(wheel):
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "tfdist_jax").rglob("*.py")}
    sources |= {
        f"tfdist_jax/{path.relative_to(ROOT)}"
        for path in (ROOT / "compat").rglob("*.py*")
        if path.suffix in (".py", ".pyi")
    }
    assert sources <= set(zipfile.ZipFile(wheel).namelist())


def test_installed_wheel_is_used_from_another_folder(clean_python, run_script):
    ran = run_script(
        "import tfdist_jax, tfdist_jax.compat.tensorflow as tf\nprint(tfdist_jax.__file__, tf.__file__, sep='\\n')",
        python=str(clean_python),
        env={"PYTHONPATH": ""},
    )
    environment = str(clean_python.parents[1])
    assert ran.returncode == 0, ran.stderr
    assert all(line.startswith(environment) for line in ran.stdout.split())


def test_installed_command_runs_a_program(clean_python, run_script):
    command = clean_python.with_name("tfdist-jax")
    ran = run_script(
        PROGRAM,
        "--epochs",
        "2",
        runner=(str(command), "run", "--devices", "2"),
        python=str(clean_python),
        env={"PYTHONPATH": ""},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "2 ['--epochs', '2']\n"


@pytest.mark.exhaustive
@pytest.mark.slow("installs all dependencies, and starts Ray")
def test_a_new_environment_has_what_programs_need(wheel, tmp_path, run_script):
    """Other tests find what the dependencies of other extras, and of TensorFlow, happen to install."""
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    constraints = ROOT / f"constraints-py{sys.version_info[0]}{sys.version_info[1]}.txt"
    uv = Path(sys.executable).with_name("uv")
    install = (uv, "pip", "install", "--python", python, f"{wheel}[ps]", "--constraint", constraints)
    run(*map(str, install), cwd=tmp_path)
    launch = (str(python.with_name("tfdist-jax")), "launch", "--workers", "1", "--parameter-servers", "1")
    ran = run_script(
        SAVING_AND_SERVED, str(tmp_path / "saved"), runner=launch, python=str(python), env={"PYTHONPATH": ""}
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "45.0 [2. 4.]\n"
