"""How a task joins the Ray of its cluster, and what it is told if there is none."""

import contextlib
import importlib.util
import os
import subprocess
import sys
import types

import pytest

from tfdist_jax._servers import _ray_cluster, _ray_node

JOBS = {"ps": ["localhost:2222", "localhost:2223"], "worker": ["localhost:2224"], "chief": ["localhost:2225"]}


@pytest.fixture
def nodes(monkeypatch):
    """The nodes of Ray that have been started; each ends at once."""
    started = []

    class EndingNode:
        def __init__(self, host, head, *, is_head):
            started.append(is_head)

        def error(self):
            return RuntimeError("Ray has ended with the code 1: no.")

        def close(self):
            raise AssertionError("it has ended by itself")

    ray = types.SimpleNamespace(is_initialized=lambda: False, shutdown=lambda: None)
    monkeypatch.setattr(_ray_cluster, "import_ray", lambda: ray)
    monkeypatch.setattr(_ray_cluster, "Node", EndingNode)
    monkeypatch.setattr(_ray_cluster, "_SOON_S", 0.001)
    return started


def test_a_head_that_ends_again_and_again_is_an_error(nodes):
    with pytest.raises(RuntimeError, match="Ray has ended with the code 1: no"):
        _ray_cluster.RayCluster(JOBS, ("ps", 0))
    assert nodes == [True] * 5


def test_another_machines_node_is_started_as_long_as_the_head_may_come(nodes, monkeypatch):
    monkeypatch.setenv("TFDIST_START_TIMEOUT_S", "1")
    jobs = {**JOBS, "ps": ["192.0.2.1:2222"]}
    with pytest.raises(TimeoutError, match=r"cannot be reached at 192\.0\.2\.1:2222: Ray has ended"):
        _ray_cluster.RayCluster(jobs, ("chief", 0))
    assert len(nodes) > 5 and not any(nodes)


def test_trainings_that_share_a_ray_have_names_of_their_own(nodes, monkeypatch):
    joined = []
    ray = types.SimpleNamespace(is_initialized=lambda: False, init=lambda **how: joined.append(how["namespace"]))
    monkeypatch.setattr(_ray_cluster, "import_ray", lambda: ray)
    monkeypatch.setattr(
        _ray_cluster.socket, "create_connection", lambda *how: types.SimpleNamespace(close=lambda: None)
    )
    monkeypatch.setattr(_ray_cluster.atexit, "register", lambda end: None)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    others = {**JOBS, "ps": ["localhost:3333"]}
    for secret, jobs, task in (("a", JOBS, "ps"), ("a", JOBS, "chief"), ("b", JOBS, "ps"), ("a", others, "ps")):
        monkeypatch.setenv("TFDIST_CLUSTER_SECRET", secret)
        _ray_cluster.RayCluster(jobs, (task, 0))
    assert joined[0] == joined[1] and len(set(joined)) == 3 and not nodes


def test_the_address_of_rays_clients_is_refused(nodes, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "ray://127.0.0.1:10001")
    with pytest.raises(ValueError, match=r"RAY_ADDRESS is ray://127.0.0.1:10001: .* host:port of its head"):
        _ray_cluster.RayCluster(JOBS, ("chief", 0))


@pytest.fixture
def alone(monkeypatch):
    """An environment without what Ray has to know, and without Ray."""
    monkeypatch.delenv("TFDIST_CLUSTER_SECRET", raising=False)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    names = (
        "RAY_AUTH_TOKEN",
        "RAY_AUTH_MODE",
        "RAY_USAGE_STATS_ENABLED",
        "RAY_DEDUP_LOGS",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
    )
    for name in names:  # So that they are as before afterwards.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_nobody_takes_part_without_a_secret(alone):
    with pytest.raises(ValueError, match=r"TFDIST_CLUSTER_SECRET is not set\. Set it to the same text"):
        _ray_cluster.import_ray()
    assert "RAY_AUTH_MODE" not in os.environ


def test_ray_asks_for_a_token_that_is_made_of_the_secret(alone, monkeypatch):
    monkeypatch.setattr(importlib, "import_module", lambda name: types.SimpleNamespace(name=name))
    tokens = []
    for secret in ("a", "a", "b"):
        monkeypatch.setenv("TFDIST_CLUSTER_SECRET", secret)
        monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
        assert _ray_cluster.import_ray().name == "ray"
        assert os.environ["RAY_AUTH_MODE"] == "token"
        tokens.append(os.environ["RAY_AUTH_TOKEN"])
    assert tokens[0] == tokens[1] != tokens[2] and len(tokens[0]) == 64
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of another Ray")
    _ray_cluster.import_ray()
    assert os.environ["RAY_AUTH_TOKEN"] == "of another Ray"


def test_a_ray_that_asks_for_no_token_is_not_used(alone, monkeypatch):
    monkeypatch.setenv("TFDIST_CLUSTER_SECRET", "a")
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace())
    with pytest.raises(RuntimeError, match="Ray has been imported before the strategy was made"):
        _ray_cluster.import_ray()


def test_who_waits_for_a_task_says_so(nodes, monkeypatch, caplog):
    def find(name):
        raise ValueError(f"no actor {name}")

    monkeypatch.setenv("TFDIST_WARN_TIMEOUT_S", "0.01")
    monkeypatch.setenv("TFDIST_START_TIMEOUT_S", "0.1")
    ray = types.SimpleNamespace(is_initialized=lambda: True, shutdown=lambda: None, get_actor=find)
    monkeypatch.setattr(_ray_cluster, "import_ray", lambda: ray)
    cluster = _ray_cluster.RayCluster(JOBS, ("chief", 0))
    with (
        contextlib.closing(cluster),
        pytest.raises(TimeoutError, match="The task worker 0, at localhost:2224, has not come"),
    ):
        cluster.wait_for_peer("worker", 0)
    assert "Waiting for the task worker 0, at localhost:2224, for" in caplog.text


@pytest.mark.parametrize("has_clients", [True, False])
def test_ray_is_given_a_port_for_clients_where_it_could_serve_them(has_clients, monkeypatch):
    commands = []

    def start(command, **options):
        commands.append(command)
        return types.SimpleNamespace(pid=None, poll=lambda: 0, wait=lambda timeout=None: 0)

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(_ray_node.os, "killpg", lambda pid, signal: None)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: has_clients or None if name == "grpc" else find_spec(name)
    )
    _ray_node.Node("127.0.0.1", "127.0.0.1:2222", is_head=True).close()
    assert any(option.startswith("--ray-client-server-port=") for option in commands[0]) == has_clients
