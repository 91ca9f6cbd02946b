"""examples/transformer.py: one model and one loss, and over every mesh the losses of one device, also after a kill."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from tfdist_jax.testing import Moment

EXAMPLE = Path(__file__).parents[2] / "examples" / "transformer.py"
DENSE, EXPERTS = (), ("--experts", "8")
PIPELINE = ("--pipeline", "1f1b", "--stages", "4")
MESHES = {DENSE: ["data=2,fsdp=2,tensor=2"], PIPELINE: ["data=2"]}
MORE_MESHES = {
    DENSE: [
        *(
            "data=8",
            "data=2,sequence=4",
            "fsdp=8",
            "tensor=4",
            "tensor=8",
            "sequence=4",
            "data=2,fsdp=4",
            "data=2,tensor=4",
            "fsdp=2,tensor=4",
        ),
        *("fsdp=4,sequence=2", "data=2,sequence=2,tensor=2", "data=2,fsdp=2,sequence=2"),
    ],
    EXPERTS: [
        "fsdp=8",
        "expert=4",
        "data=2,expert=4",
        "data=2,fsdp=2,expert=2",
        "expert=2,tensor=4",
        "expert=2,sequence=2,tensor=2",
    ],
    PIPELINE: ["fsdp=2", "tensor=2"],
    ("--pipeline", "zb-h1"): ["data=2,fsdp=2"],
    ("--pipeline", "interleaved", *EXPERTS): ["data=2,expert=2"],
    ("--pipeline", "gpipe", "--sequence", "2"): ["data=2"],
}


def cases(meshes, marks):
    return [
        pytest.param(mesh, arguments, id=" ".join((mesh, *arguments)), marks=marks)
        for arguments, all_meshes in meshes.items()
        for mesh in all_meshes
    ]


def losses_in(output):
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss (\S+)", output)}


@pytest.fixture
def train(monkeypatch, capsys):
    """Run the example in this process, which has eight devices already, and return its losses by step."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["transformer.py", *arguments])
        runpy.run_path(str(EXAMPLE), run_name="__main__")
        return losses_in(capsys.readouterr().out)

    return run


@pytest.fixture(scope="module")
def losses_of_one_device():
    """What one device's losses are, by the example's arguments, as far as they have been asked for."""
    return {}


@pytest.mark.slow("compiles a transformer for each mesh, and for one device")
@pytest.mark.parametrize(("mesh", "arguments"), cases(MESHES, ()) + cases(MORE_MESHES, pytest.mark.exhaustive))
def test_losses_are_those_of_one_device(train, losses_of_one_device, mesh, arguments):
    model = EXPERTS if {*EXPERTS} <= {*arguments} else DENSE
    if model not in losses_of_one_device:
        losses_of_one_device[model] = train("--mesh", "data=1", "--steps", "15", *model)
    expected = losses_of_one_device[model]
    assert list(expected) == [5, 10, 15]
    assert expected[15] < expected[10] < expected[5]
    # A rounding may send a token, whose second and third gates are as good as equal, to another expert.
    rounding = 1e-4 if model is EXPERTS else 1e-5
    assert train("--mesh", mesh, "--steps", "15", *arguments) == pytest.approx(expected, rel=rounding)


@pytest.mark.exhaustive  # Four trainings; tests of checkpoints and of failures do the same with small models.
def test_losses_after_a_kill_and_over_another_mesh_are_those_of_an_undisturbed_training(train, chaos, tmp_path):
    arguments = ("--steps", "60", "--checkpoint", str(tmp_path / "saved"))
    training = chaos.launch(EXAMPLE, "--mesh", "data=2,fsdp=4", *arguments)
    chaos.strike(training, kinds=["kill"], at=[Moment("step (15|20|25|30) ", up_to=4)])
    assert training.wait() != 0
    before = losses_in(training.output_of())
    after = train("--mesh", "data=2,tensor=4", *arguments)
    expected = train("--mesh", "data=8", "--steps", "60")
    # The save of step 10 had waited for that of step 5.
    assert min(after) >= 10 and max(after) == 60
    assert before == pytest.approx({step: expected[step] for step in before}, rel=1e-5)
    assert after == pytest.approx({step: expected[step] for step in after}, rel=1e-5)


def test_the_example_stays_short():
    assert len(EXAMPLE.read_text().splitlines()) < 180
