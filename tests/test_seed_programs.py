"""Example programs of five published guides, run as they are from the folder where they lie, and counted."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("TFDIST_SEED_PROGRAMS", ROOT.parent / "shared" / "seed_programs"))

# What each prints when it has done its work.
RUNS = {
    "s0_cifar10": r"Test loss: \d+\.\d+, Test accuracy: 0\.\d+",
    "s0_compare_strategies": r"\{'MirroredStrategy': \d+\.\d+, 'OneDeviceStrategy': \d+\.\d+\}",
    "s0_gradient_accumulation": r"^\d+\.\d+$",
    "s0_mirrored_fit": r"Number of devices: 2\n(.|\n)*Epoch 2/2(.|\n)* loss: ",
    "s0_mixed_precision": r"Epoch 2/2(.|\n)* loss: ",
    "s0_model_parallel": r" loss: ",
    "s0_workers": r"Epoch 2/2(.|\n)* loss: ",
    "s0_parameter_server": r"Epoch 2/2(.|\n)* loss: ",
    "s0_tpu": r"Number of TPU cores: 2\n(.|\n)*Epoch 2/2(.|\n)* loss: ",
    "s1_resnet_central_storage": r"Epoch 2/2(.|\n)* val_loss: ",
    "s1_resnet_parameter_server": r"Epoch 2/2(.|\n)* val_loss: ",
    "s1_resnet_mirrored": r"Epoch 2/2(.|\n)* val_loss: ",
    "s1_resnet_workers": r"Epoch 2/2(.|\n)* val_loss: ",
    "s2_custom_loop": r"Number of devices: 2\n(.|\n)*Epoch 2/2(.|\n)*^\d+\.\d+$",
    "s3_keras": r"Epoch 2/2(.|\n)* loss: ",
    "s3_other_strategies": r"^\d+\n\d+$",
    "s4_keras_guide": r"Number of devices: 2\n(.|\n)*Restoring from ./ckpt/ckpt-1.keras\n(.|\n)* val_loss: ",
}
LAUNCHED = ("s0_workers", "s1_resnet_workers")
SERVED = ("s0_parameter_server", "s1_resnet_parameter_server")
LONG = ("s1_resnet_central_storage", "s1_resnet_mirrored", "s1_resnet_parameter_server", "s1_resnet_workers")
OPTIONS = {"s0_tpu": "--emulate-tpu"}
LATER = (
    "s3_estimator",
    "s3_session_loop",
)
NEVER = ()

needs_programs = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"The programs are not in {FOLDER}: set TFDIST_SEED_PROGRAMS."
)


@needs_programs
@pytest.mark.slow("ResNets and guides, as published")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name in LONG)) for name in RUNS])
def test_program_runs(run_script, run_prepared, name):
    if name in LAUNCHED:
        ran = run_script(FOLDER / f"{name}.py", runner=("-m", "tfdist_jax", "launch", "--workers", "2"))
    else:
        ran = run_prepared(FOLDER / f"{name}.py", option=OPTIONS.get(name, "--devices"))
    assert ran.returncode == 0, ran.stderr
    assert re.search(RUNS[name], ran.stdout, re.MULTILINE), ran.stdout
    assert "nan" not in ran.stdout


@needs_programs
@pytest.mark.exhaustive
@pytest.mark.slow("ResNets and guides, as published, in five processes")
@pytest.mark.parametrize("name", SERVED)
def test_program_runs_with_servers_and_workers_in_processes(run_script, name):
    runner = ("-m", "tfdist_jax", "launch", "--workers", "2", "--parameter-servers", "2")
    ran = run_script(FOLDER / f"{name}.py", runner=runner)
    assert ran.returncode == 0, ran.stderr
    assert re.search(RUNS[name], ran.stdout, re.MULTILINE), ran.stdout
    assert "nan" not in ran.stdout


@needs_programs
@pytest.mark.parametrize("name", LATER)
def test_program_of_later_says_what_is_missing(run_prepared, name):
    """A program that starts to run moves to `RUNS`, and the README counts it."""
    ran = run_prepared(FOLDER / f"{name}.py")
    assert ran.returncode == 1
    assert re.search(r"`tf\.[\w.]+` is not there \(yet\)|NotImplementedError: .* are not there", ran.stderr), ran.stderr


@needs_programs
def test_every_program_is_counted():
    assert {path.stem for path in FOLDER.glob("s[0-9]_*.py")} == {*RUNS, *LATER, *NEVER}


def test_readme_counts_the_programs():
    counts = f"of {len(RUNS) + len(LATER) + len(NEVER)}, {len(RUNS)} run, {len(LATER)} come later"
    assert counts in " ".join((ROOT / "README.md").read_text().split())
