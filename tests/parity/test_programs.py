"""Every program prints under `tfdist-jax run` what was recorded from real TensorFlow."""

import subprocess
import sys

import pytest
import recording
from environment import LIMIT_S

PROGRAMS = recording.programs()
# One of each kind: what is recorded stays what TensorFlow prints.
AFRESH = sorted({name.partition("_")[0]: name for name in PROGRAMS}.values())


# Encoders of images, with which `tensorflow_datasets` prepares a dataset, are TensorFlow's; to read it takes none.
BESIDE_TENSORFLOW = ["data_prepared"]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.peers if name in BESIDE_TENSORFLOW else ()) for name in PROGRAMS]
)
def test_program_prints_what_it_prints_under_tensorflow(name, run_prepared):
    ran = run_prepared(PROGRAMS[name], devices=recording.DEVICES)
    assert ran.returncode == 0, ran.stderr
    different = recording.differences(ran.stdout, recording.recorded(name).read_text())
    assert not different, "\n".join(["-TensorFlow +here", *different])


def test_program_for_tpus_prints_the_same_on_an_emulated_one(run_prepared):
    ran = run_prepared(PROGRAMS["guide_tpu"], devices=4, option="--emulate-tpu")
    assert ran.returncode == 0 and "Emulating a TPU" in ran.stderr, ran.stderr
    assert not recording.differences(ran.stdout, recording.recorded("guide_tpu").read_text())


@pytest.mark.peers
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", AFRESH)
def test_recording_is_what_tensorflow_prints(name, tmp_path):
    ran = subprocess.run(
        recording.tensorflow_command(name), capture_output=True, text=True, timeout=LIMIT_S, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert not recording.differences(ran.stdout, recording.recorded(name).read_text())


def test_comparison_of_outputs_sees_what_differs():
    wanted = "a: float32[2] [1.0, 2e-3]\nb: 3\nc: None"
    assert not recording.differences("a:  float32[2] [1.000001, 0.002]\nb: 3\nc: None", wanted)
    assert recording.differences(wanted.replace("b: 3", "b: 4"), wanted) == ["-b: 3", "+b: 4"]
    assert recording.differences(wanted.replace("1.0", "1.1"), wanted)
    assert recording.differences(wanted.replace("[2]", "[1]"), wanted)
    assert recording.differences(wanted.replace("None", "nan"), wanted)
    assert recording.differences(wanted.replace("\nc: None", ""), wanted) == ["-c: None"]
    assert len(PROGRAMS) >= 1 and sys.executable in recording.tensorflow_command(next(iter(PROGRAMS)))
