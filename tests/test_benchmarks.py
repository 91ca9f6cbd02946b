"""The benchmark for GPUs runs on the CPU too, with small models, and says what a GPU's figures would be."""

import argparse
import json
import sys
from pathlib import Path

import pytest
from environment import LIMIT_S

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import bench_gpu


@pytest.mark.exhaustive
@pytest.mark.slow("starts five programs that train in turn")
@pytest.mark.parametrize("model", ["encoder", "resnet50"])
def test_the_benchmark_for_gpus_runs_on_the_cpu(model, run_script, tmp_path):
    arguments = [model, "--small", "--devices", "2", "--rounds", "2", "--seconds", "0.01", "--out", str(tmp_path)]
    ran = run_script(Path(bench_gpu.__file__), *arguments, timeout_s=3 * LIMIT_S)
    assert ran.returncode == 0, ran.stderr
    result = json.loads((tmp_path / f"gpu_{model}_2.json").read_text())
    assert json.loads(ran.stdout) == result
    names = {"hand-written", "custom loop", "hand-written, fed", "fit", "keras"}
    assert set(result["ms_per_step"]) == set(result["speed_of_hand_written"]) == names
    assert all(times["median"] > 0 for times in result["ms_per_step"].values())
    assert result["left_out"] == {"pytorch": "takes part on one GPU only"}


def test_the_benchmark_for_gpus_says_that_there_is_none(run_script):
    ran = run_script(Path(bench_gpu.__file__), env={"CUDA_VISIBLE_DEVICES": ""})
    assert ran.returncode == 2
    assert "no NVIDIA GPU that CUDA would use. `--small`" in ran.stderr


def test_utilization_is_of_all_gpus_and_three_forward_passes():
    times = {name: [0.1, 0.1] for name in ("hand-written", "hand-written, fed", "custom loop", "fit", "keras")}
    args = argparse.Namespace(small=False, devices=2)
    result = bench_gpu.summarize("encoder", times, args, "NVIDIA H100 80GB HBM3")
    # 12 layers of 12 * 768 ** 2 weights and of attention among 512 tokens, on 2 * 32 rows of 512 tokens in a tenth of a second.
    flops = 3 * 2 * 12 * (12 * 768**2 + 2 * 512 * 768) * 2 * 32 * 512
    assert result["mfu"]["fit"] == pytest.approx(flops / 0.1 / (2 * 989e12), abs=1e-3)
    assert result["tokens_per_second"]["fit"] == 2 * 32 * 512 * 10
    assert bench_gpu.summarize("encoder", times, args, "a GPU of tomorrow")["mfu"] == {}
