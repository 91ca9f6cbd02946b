"""The files in examples/cluster: right by Kubernetes's schema, and run here with stand-ins for the schedulers."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from environment import LIMIT_S

FOLDER = Path(__file__).parents[2] / "examples/cluster"

PROGRAM = """
import json, os, sys
import numpy as np
import tfdist_jax as td
mine = td.initialize()
from jax.experimental import multihost_utils
found = multihost_utils.process_allgather(np.array([mine.process_id]))[:, 0].tolist()
with open(f"{mine.process_id}.txt", "w") as file:
    json.dump([found, sys.argv[1:]], file)
"""

# The part of Kubernetes's API that is used: a field's type, the fields of its objects, or a list of one of these.
_METADATA = {"name": str}
_SERVICE = {
    "apiVersion": str,
    "kind": str,
    "metadata": _METADATA,
    "spec": {
        "clusterIP": str,
        "publishNotReadyAddresses": bool,
        "selector": {"batch.kubernetes.io/job-name": str},
        "ports": [{"name": str, "port": int}],
    },
}
_CONTAINER = {
    "name": str,
    "image": str,
    "command": [str],
    "args": [str],
    "env": [{"name": str, "value": str}],
    "ports": [{"containerPort": int}],
    "resources": {"requests": {"cpu": str, "memory": str}, "limits": {"memory": str}},
}
_JOB = {
    "apiVersion": str,
    "kind": str,
    "metadata": _METADATA,
    "spec": {
        "completions": int,
        "parallelism": int,
        "completionMode": str,
        "backoffLimit": int,
        "template": {
            "spec": {
                "subdomain": str,
                "restartPolicy": str,
                "terminationGracePeriodSeconds": int,
                "containers": [_CONTAINER],
            }
        },
    },
}


def fits(value, schema, path="$"):
    """Whether a value has just the schema's fields, of its types."""
    if isinstance(schema, dict):
        assert isinstance(value, dict), path
        assert set(value) == set(schema), path
        return all(fits(value[name], part, f"{path}.{name}") for name, part in schema.items())
    if isinstance(schema, list):
        assert isinstance(value, list), path
        return all(fits(item, schema[0], f"{path}[{i}]") for i, item in enumerate(value))
    assert type(value) is schema, f"{path}: {value!r} is no {schema.__name__}"
    return True


@pytest.fixture
def manifest():
    service, job = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    return service, job


@pytest.fixture
def tools(tmp_path):
    """A folder for commands that stand in for a scheduler's, with `tfdist-jax` in it."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def add(name, text):
        path = folder / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    add("tfdist-jax", f'exec {sys.executable} -m tfdist_jax "$@"')
    (tmp_path / "train.py").write_text(PROGRAM)
    return add


def run(command, folder, **env):
    kept = {name: os.environ[name] for name in ("HOME", "PYTHONPATH") if name in os.environ}
    path = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**kept, **path, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_the_manifest_fits_kubernetes(manifest):
    service, job = manifest
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert fits(service, _SERVICE)
    assert fits(job, _JOB)


def test_the_manifests_parts_belong_together(manifest):
    service, job = manifest
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    name = job["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"]
    assert env["HOSTS"].split(",") == [f"{name}-{i}.{pod['subdomain']}" for i in range(spec["completions"])]
    ports = {service["spec"]["ports"][0]["port"], container["ports"][0]["containerPort"]}
    assert ports == {2222}
    (stop,) = re.findall(r"--stop-timeout (\d+)", container["args"][0])
    assert int(stop) < pod["terminationGracePeriodSeconds"]


def test_the_manifests_command_runs(manifest, tools, cluster, tmp_path):
    (container,) = manifest[1]["spec"]["template"]["spec"]["containers"]
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    env |= {"HOSTS": ",".join(cluster(2).addresses), "PROGRAM": str(tmp_path / "train.py")}
    command = [part.replace("/tmp/logs", "logs") for part in (*container["command"], *container["args"])]
    pods = [run(command, tmp_path, JOB_COMPLETION_INDEX=str(i), **env) for i in range(2)]
    said = [pod.communicate(timeout=LIMIT_S)[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], said
    assert [(tmp_path / f"{i}.txt").read_text() for i in range(2)] == ["[[0, 1], []]"] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="One machine stands for two by its loopback addresses.")
def test_the_slurm_script_runs(tools, tmp_path):
    assert shutil.which("bash")
    tools("scontrol", '[ "$*" = "show hostnames nodes[1-2]" ] && printf "127.0.0.1\\n127.0.0.2\\n"')
    tools(
        "srun",
        'shift\nfor i in 0 1; do SLURM_PROCID=$i "$@" & jobs[$i]=$!; done\nfor j in "${jobs[@]}"; do wait $j || exit; done',
    )
    job = run(
        [str(FOLDER / "slurm.sh"), "train.py", "--its", "a b"],
        tmp_path,
        SLURM_JOB_ID=str(os.getpid()),
        SLURM_JOB_NODELIST="nodes[1-2]",
    )
    said = job.communicate(timeout=LIMIT_S)[0]
    assert job.returncode == 0, said
    assert [(tmp_path / f"{i}.txt").read_text() for i in range(2)] == ['[[0, 1], ["--its", "a b"]]'] * 2


def test_the_slurm_script_asks_for_what_it_uses():
    text = (FOLDER / "slurm.sh").read_text()
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", text, re.MULTILINE))
    assert options["ntasks-per-node"] == "1"
    assert int(options["nodes"]) > 1
    assert options["signal"] == "TERM@120"
    (stop,) = re.findall(r"--stop-timeout (\d+)", text)
    assert int(stop) < 120
