"""The examples, as a user runs them."""

import json
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow("trains two models")
def test_the_demo_reaches_its_accuracy_and_draws_a_picture(run_prepared, tmp_path):
    ran = run_prepared(EXAMPLES / "digits.py", devices=8)
    assert ran.returncode == 0, ran.stderr
    accuracies = [float(a) for a in re.findall(r"test accuracy (\d\.\d+) after", ran.stdout)]
    assert len(accuracies) == 2
    assert min(accuracies) >= 0.96
    assert "8 replicas on" in ran.stdout
    assert "A batch lies on" in ran.stdout
    assert (tmp_path / "digits.png").stat().st_size > 10_000


@pytest.mark.slow("trains two models")
def test_digits_are_learned_with_parameter_servers_in_one_process(run_prepared, tmp_path):
    ran = run_prepared(EXAMPLES / "parameter_server.py", "--folder", str(tmp_path / "saved"), devices=2)
    assert ran.returncode == 0, ran.stderr
    accuracies = re.findall(
        r"custom loop: test accuracy (\S+) as the coordinator, (\S+) as the workers find it", ran.stdout
    )
    fitted = re.findall(r"after step 132: test accuracy (\S+)", ran.stdout)
    assert min(map(float, (*accuracies[0], *fitted))) > 0.9
    assert "([544, 16], '/job:ps/replica:0/task:1/device:CPU:0')" in ran.stdout
    assert "AutoGraph" not in ran.stderr


@pytest.mark.exhaustive
@pytest.mark.slow("trains two models, and evaluates in a process more")
def test_parameter_servers_and_an_evaluator_are_what_tf_config_says(run_program, tmp_path):
    jobs = {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}
    cluster = {job: [f"localhost:{2222 + i}" for i in range(count)] for job, count in jobs.items()}
    printed = []
    for job in ("chief", "evaluator"):
        config = json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}})
        program = (EXAMPLES / "parameter_server.py", "--epochs", "2", "--folder", str(tmp_path / "saved"))
        ran = run_program(*program, devices=2, env={"TF_CONFIG": config})
        assert ran.returncode == 0, ran.stderr
        printed.append(ran.stdout)
    assert "Epoch 2/2" in printed[0] and "after step" not in printed[0]
    assert "after step 44: test accuracy" in printed[1]
    program = (EXAMPLES / "parameter_server.py", "--epochs", "3", "--folder", str(tmp_path / "saved"))
    config = json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
    again = run_program(*program, devices=2, env={"TF_CONFIG": config})
    assert again.returncode == 1 and "has a training that is finished" in again.stderr
    (tmp_path / "saved" / "finished").unlink()
    resumed = run_program(*program, devices=2, env={"TF_CONFIG": config})
    assert resumed.returncode == 0, resumed.stderr
    assert re.findall(r"epoch (\d)/3", resumed.stdout) == ["3"]


@pytest.mark.exhaustive
@pytest.mark.slow("trains two models in five processes, and evaluates in a sixth")
def test_digits_are_learned_with_parameter_servers_in_processes(run_script, tmp_path):
    runner = ("-m", "tfdist_jax", "launch", "--workers", "2", "--parameter-servers", "2", "--evaluator", "--verbose")
    ran = run_script(EXAMPLES / "parameter_server.py", "--folder", str(tmp_path / "saved"), runner=runner)
    assert ran.returncode == 0, ran.stderr
    accuracies = re.findall(
        r"custom loop: test accuracy (\S+) as the coordinator, (\S+) as the workers find it", ran.stdout
    )
    fitted = re.findall(r"after step 132: test accuracy (\S+)", ran.stdout)
    assert min(map(float, (*accuracies[0], *fitted))) > 0.9, ran.stdout
    assert "AutoGraph" not in ran.stderr


@pytest.mark.exhaustive
@pytest.mark.slow("trains under three strategies")
def test_flax_losses_are_the_same_under_all_strategies(run_script):
    losses = {}
    for strategy in ("single", "mirrored", "fsdp"):
        ran = run_script(EXAMPLES / "flax_digits.py", "--strategy", strategy, "--epochs", "4")
        assert ran.returncode == 0, ran.stderr
        losses[strategy] = [float(loss) for loss in re.findall(r"loss (\d\.\d+)", ran.stdout)]
        assert float(ran.stdout.split()[-1]) > 0.88
    assert len(losses["single"]) == 4
    assert losses["mirrored"] == pytest.approx(losses["single"], abs=2e-4)
    assert losses["fsdp"] == pytest.approx(losses["single"], abs=2e-4)


def test_the_flax_example_stays_short():
    assert len((EXAMPLES / "flax_digits.py").read_text().splitlines()) < 80
