"""`tfdist-jax doctor` says what is wrong, and on which process."""

import json
import re
import socket

import pytest
from environment import NEVER_S

from tfdist_jax import _compilation_cache
from tfdist_jax.cli._tf_config_lint import problems_of_program


def config(workers, index=0, job="worker"):
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": job, "index": index}})


def test_a_healthy_cluster_has_no_problem(doctor, cluster):
    addresses = cluster(3).addresses
    started = [doctor("--timeout", NEVER_S, TF_CONFIG=config(addresses, i)) for i in range(3)]
    for i, one in enumerate(started):
        assert one.wait() == 0, one.log
        assert f"this is worker {i} ({addresses[i]}), process {i} of 3" in one.log
        assert "all 3 processes have met" in one.log
        assert "No problem found." in one.log


def test_a_process_that_never_comes_is_named(doctor, cluster):
    addresses = cluster(3).addresses
    started = [doctor("--timeout", "8", TF_CONFIG=config(addresses, i)) for i in (0, 2)]
    for one in started:
        assert one.wait() == 1
        assert re.search(rf"PROBLEM .*did not arrive: worker 1 \({addresses[1]}\)", one.log), one.log
        assert f"PROBLEM  worker 1 ({addresses[1]}) cannot be reached from here: nobody listens there" in one.log


def test_the_first_process_that_never_comes_is_named(doctor, cluster):
    addresses = cluster(2).addresses
    one = doctor("--timeout", "3", TF_CONFIG=config(addresses, 1))
    assert one.wait() == 1
    assert f"did not arrive: worker 0 ({addresses[0]})" in one.log


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{'cluster'", "TF_CONFIG is no JSON"),
        (config(["127.0.0.1:1", "127.0.0.1:2"], 2), "this process is worker 2, but its cluster has 2 task"),
        (config(["127.0.0.1:1", "127.0.0.1:1"]), "worker 0 and worker 1 the same address 127.0.0.1:1"),
        (config(["127.0.0.1:1", "no-such-host.invalid:2"]), "worker 1 .*'no-such-host.invalid' is not known"),
        (
            config(["192.0.2.1:2222", "127.0.0.1:2"]),
            "worker 0 cannot listen on .*it is no address of this machine.*index",
        ),
        (config(["127.0.0.1:1"], 0, "chief"), "this process is chief 0, but its cluster has only the jobs 'worker'"),
    ],
)
def test_a_wrong_tf_config_is_explained(doctor, text, problem):
    one = doctor(TF_CONFIG=text)
    assert one.wait() == 1, one.log
    assert re.search(f"PROBLEM  .*{problem}", one.log), one.log


def test_a_port_that_is_taken_is_said(doctor, cluster):
    addresses = cluster(2).addresses
    host, port = addresses[1].split(":")
    with socket.create_server((host, int(port))):
        one = doctor(TF_CONFIG=config(addresses, 1))
        assert one.wait() == 1
    assert re.search("worker 1 cannot listen on .*another process uses this port", one.log), one.log


@pytest.mark.exhaustive
def test_versions_that_differ_are_said(doctor, cluster):
    addresses = cluster(2).addresses
    program = "from tfdist_jax._cluster import _rendezvous; _rendezvous.versions = lambda: {'jax': '0.9'}"
    started = [doctor("--timeout", "6", TF_CONFIG=config(addresses, i), before=program if i else "") for i in range(2)]
    assert [one.wait() for one in started] == [1, 1]
    assert "PROBLEM  worker 1 cannot take part: it has versions {'jax': '0.9'}, but worker 0 has" in started[1].log


def test_hosts_may_be_named_instead(doctor, cluster):
    hosts = ",".join(cluster(2).addresses)
    started = [doctor("--hosts", hosts, "--index", str(i)) for i in range(2)]
    assert [one.wait() for one in started] == [0, 0], started[0].log


def test_without_a_cluster_programs_run_alone(doctor):
    one = doctor()
    assert one.wait() == 0
    assert "programs run alone here" in one.log


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"TFDIST_COMPILATION_CACHE": "/programs"}, "kept in /programs"),
        ({"TFDIST_COMPILATION_CACHE": "off"}, "not kept: TFDIST_COMPILATION_CACHE"),
        ({"JAX_COMPILATION_CACHE_DIR": "/own"}, "kept in /own: JAX_COMPILATION_CACHE_DIR says so"),
        ({"JAX_ENABLE_COMPILATION_CACHE": "false"}, "not kept: JAX's own settings say so"),
    ],
)
def test_where_compiled_programs_are_kept_is_said(doctor, setting, said):
    one = doctor(**setting)
    assert one.wait() == 0
    assert f"ok       compiled programs are {said}" in one.log


def test_a_processor_that_cannot_load_its_programs_is_said(doctor, tmp_path):
    cache = _compilation_cache.CompilationCache(tmp_path)
    cache._folder.mkdir()
    cache._problem_file.write_text("The machine type does not match.\nAnd more.")
    one = doctor(TFDIST_COMPILATION_CACHE=str(tmp_path))
    assert one.wait() == 0
    assert "this processor cannot load them. The machine type does not match.\n" in one.log


def test_a_proxy_in_the_way_is_mentioned(doctor, cluster):
    addresses = cluster(2).addresses
    one = doctor("--timeout", "1", TF_CONFIG=config(addresses), http_proxy="http://proxy:3128", no_proxy="localhost")
    one.wait()
    assert "http_proxy is set" in one.log
    assert "Add 127.0.0.1 to no_proxy" in one.log


LATE = """
import os, json
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
os.environ["TF_CONFIG"] = make()
"""

FIXED = """
import os, json
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
"""

RIGHT = """
import os, json, sys
import tensorflow as tf
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": int(sys.argv[1])}})
strategy = tf.distribute.MultiWorkerMirroredStrategy()
"""


def test_a_program_that_sets_tf_config_too_late_or_for_all_is_told(doctor, tmp_path):
    assert problems_of_program(RIGHT, "p.py") == []
    assert problems_of_program("import tensorflow", "p.py") == []
    (late,) = problems_of_program(LATE, "p.py")
    assert late.startswith("p.py:5 sets TF_CONFIG after line 4 has made the strategy")
    (fixed,) = problems_of_program(FIXED, "p.py")
    assert fixed.startswith("p.py:3 gives every process that runs it the same index")
    program = tmp_path / "late.py"
    program.write_text(LATE)
    one = doctor(str(program))
    assert one.wait() == 1
    assert "late.py:5 sets TF_CONFIG after line 4" in one.log


def test_a_program_that_cannot_be_read_is_a_problem(doctor, tmp_path):
    (tmp_path / "broken.py").write_text("def")
    for name in ("broken.py", "nowhere.py"):
        one = doctor(str(tmp_path / name))
        assert one.wait() == 1
        assert f"{name} cannot be read" in one.log


def servers(addresses, job, index):
    jobs = {"chief": addresses[:1], "worker": addresses[1:2], "ps": addresses[2:]}
    return json.dumps({"cluster": jobs, "task": {"type": job, "index": index}})


def test_parameter_servers_that_are_processes_are_tried_out(doctor, cluster):
    addresses = cluster(4).addresses
    tasks = [("chief", 0), ("worker", 0), ("ps", 0), ("ps", 1)]
    settings = {"TFDIST_PARAMETER_SERVERS": "processes", "TFDIST_CLUSTER_SECRET": "a text that nobody else knows"}
    started = [doctor("--timeout", NEVER_S, TF_CONFIG=servers(addresses, *task), **settings) for task in tasks]
    for (job, index), address, one in zip(tasks, addresses, started, strict=True):
        assert one.wait() == 0, one.log
        assert f"this is {job} {index} ({address}) of a cluster with parameter servers" in one.log
        assert re.search(r"which Ray [\d.]+ joins", one.log) and "all 4 tasks can be reached" in one.log


def test_what_parameter_servers_lack_is_told(doctor, cluster):
    addresses = cluster(3).addresses
    one = doctor("--timeout", "3", TF_CONFIG=servers(addresses, "chief", 0), TFDIST_PARAMETER_SERVERS="processes")
    assert one.wait() == 1
    assert "PROBLEM  TFDIST_CLUSTER_SECRET is not set" in one.log
    for task in (f"worker 0 ({addresses[1]})", f"ps 0 ({addresses[2]})"):
        assert f"PROBLEM  {task} cannot be reached from here: nobody listens there" in one.log
    wrong = doctor(TF_CONFIG=servers(addresses, "ps", 0), TFDIST_PARAMETER_SERVERS="process")
    assert wrong.wait() == 1 and '"threads" or "processes"' in wrong.log
    far = ["192.0.2.1:1", "192.0.2.2:2", "192.0.2.3:3"]
    wrong = doctor(TF_CONFIG=servers(far, "chief", 0), TFDIST_PARAMETER_SERVERS="threads")
    assert wrong.wait() == 1 and "192.0.2.1:1 is on another machine" in wrong.log


def test_parameter_servers_that_are_threads_need_nothing(doctor, cluster):
    one = doctor(TF_CONFIG=servers(cluster(3).addresses, "chief", 0))
    assert one.wait() == 0, one.log
    assert "servers and workers are threads of the process that makes the strategy" in one.log
