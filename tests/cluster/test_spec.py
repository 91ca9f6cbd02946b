"""TF_CONFIG: what it says, and what is said about one that is wrong."""

import json
import socket

import pytest

import tfdist_jax as td
from tfdist_jax._cluster import _addresses


def config(cluster, task=("worker", 0)):
    return json.dumps({"cluster": cluster, "task": {"type": task[0], "index": task[1]}})


WORKERS = {"worker": ["a:1", "b:2"]}


def test_the_chief_is_process_0_and_the_workers_follow():
    found = td.Cluster.of_tf_config(config({"worker": ["a:1", "b:1"], "chief": ["c:1"]}, ("worker", 1)))
    assert found is not None
    assert [str(task) for task in found.training] == ["chief 0", "worker 0", "worker 1"]
    assert (found.process_id, found.num_processes, found.coordinator) == (2, 3, "c:1")


def test_the_evaluator_is_alone():
    found = td.Cluster.of_tf_config(config({**WORKERS, "evaluator": ["e:1"]}, ("evaluator", 0)))
    assert found is not None
    assert not found.trains
    assert (found.process_id, found.num_processes) == (0, 1)
    assert td.Cluster.of_tf_config(config(WORKERS, ("evaluator", 0))) is not None  # It need not be listed.


@pytest.mark.parametrize("text", ["{}", '{"cluster": {}}', '{"task": {"type": "worker", "index": 0}}'])
def test_without_a_cluster_there_is_none(text):
    assert td.Cluster.of_tf_config(text) is None


def test_a_config_says_the_same_when_it_is_written_again():
    text = config({"chief": ["c:1"], "worker": ["a:1", "b:2"], "evaluator": ["e:1"]}, ("worker", 1))
    found = td.Cluster.of_tf_config(text)
    assert found is not None
    assert json.loads(found.to_tf_config()) == json.loads(text)


@pytest.mark.parametrize(
    ("address", "full"),
    [("a:80", "a:80"), ("a", "a:2222"), ("10.0.0.1", "10.0.0.1:2222"), ("[::1]:80", "[::1]:80"), ("::1", "[::1]:2222")],
)
def test_an_address_without_a_port_gets_the_default_one(address, full):
    assert _addresses.full_address(address) == full


@pytest.mark.parametrize("address", ["", ":80", "a:", "a:b", "a:0", "a:70000", "a b:80", "grpc://a:80", "a:80:90"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ValueError, match="address"):
        td.Cluster.of_tf_config(config({"worker": [address, "b:1"]}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'cluster': {}}", "is no JSON .* double quotes"),
        ('{"cluster"', 'is no JSON .*It is: {"cluster"'),
        ("[1]", "must be an object"),
        ('{"cluster": ["a:1"]}', "an object from jobs to addresses"),
        ('{"cluster": {"worker": "a:1"}}', "a list of \"host:port\" for the job 'worker', got 'a:1'"),
        (json.dumps({"cluster": WORKERS}), "does not say which process this is"),
        (json.dumps({"cluster": WORKERS, "task": {"type": "worker"}}), "does not say which process this is"),
        (config(WORKERS, ("worker", 2)), r"this process is worker 2, but its cluster has 2 task\(s\).*0 to 1"),
        (config(WORKERS, ("worker", -1)), "a number from 0 on as the task's 'index', got -1"),
        (config(WORKERS, ("worker", "x")), "a number from 0 on as the task's 'index', got 'x'"),
        (config(WORKERS, ("chief", 0)), "this process is chief 0, but its cluster has only the jobs 'worker'"),
        (config({"trainer": ["a:1"]}), "names the job 'trainer'; there are chief, worker, evaluator, ps"),
        (config({"worker": ["a:1", "b:1", "a:1"]}), "worker 0 and worker 2 the same address a:1"),
        (config({"worker": ["a", "a:2222"]}), "worker 0 and worker 1 the same address a:2222"),
        (config({"chief": ["a:1", "b:1"]}, ("chief", 0)), "2 tasks in the job 'chief', which can have one only"),
    ],
)
def test_a_wrong_config_says_what_is_wrong(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        td.Cluster.of_tf_config(text)
    assert str(caught.value).startswith("TF_CONFIG")


def test_an_index_may_be_written_as_text():
    found = td.Cluster.of_tf_config(config(WORKERS, ("worker", "1")))
    assert found is not None
    assert found.process_id == 1


def test_processes_are_workers_of_which_the_first_has_an_address():
    found = td.Cluster.of_processes("host:1234", 3, 2)
    assert [task.with_address for task in found.tasks] == ["worker 0 (host:1234)", "worker 1", "worker 2"]
    assert (found.process_id, found.num_processes) == (2, 3)
    with pytest.raises(ValueError, match=r"this process is worker 3.*indices 0 to 2"):
        td.Cluster.of_processes("host:1234", 3, 3)


def test_the_coordinator_listens_on_its_own_address_only():
    assert _addresses.address_to_bind("127.0.0.1:80", ["127.0.0.1:81"]) == "127.0.0.1:80"
    assert _addresses.address_to_bind("localhost:80", ["localhost:81"]) == "127.0.0.1:80"
    assert _addresses.address_to_bind("[::1]:80", []) == "[::1]:80"


def test_a_name_with_a_loopback_address_is_not_used_when_others_are_elsewhere(monkeypatch):
    monkeypatch.setattr(_addresses, "resolve", {"me": "127.0.1.1", "peer": "10.1.2.3"}.__getitem__)
    monkeypatch.setattr(_addresses, "_towards", {"10.1.2.3": "10.1.2.9"}.__getitem__)
    assert _addresses.address_to_bind("me:80", ["peer:80"]) == "10.1.2.9:80"


def test_an_unknown_host_is_named():
    with pytest.raises(OSError, match=r"'no-such-host.invalid' is not known on this machine"):
        _addresses.address_to_bind("no-such-host.invalid:80", [])


def test_a_connection_that_meets_itself_is_none():
    with socket.socket() as alone:
        alone.bind(("127.0.0.1", 0))
        port = alone.getsockname()[1]
        alone.connect(("127.0.0.1", port))
        with pytest.MonkeyPatch.context() as patch, pytest.raises(ConnectionRefusedError, match="nobody listens"):
            patch.setattr(socket, "create_connection", lambda *_, **__: alone)
            _addresses.connection_to(f"127.0.0.1:{port}", 1)
