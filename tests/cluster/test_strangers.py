"""Where processes meet, others are refused."""

import importlib.metadata
import json
import os
import socket
import time
from pathlib import Path

import pytest
from environment import LIMIT_S
from joining import JOIN, WORK


def test_the_coordinator_does_not_listen_elsewhere(cluster):
    workers = cluster(2)
    workers.start(WORK)
    workers.workers[0].wait_for_result("works")
    port = workers.addresses[0].rsplit(":")[1]
    table = Path("/proc/net/tcp")
    rows = [row.split() for row in table.read_text().splitlines()[1:]] if table.exists() else []
    listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{int(port):04X}")]
    assert listening in ([], [f"0100007F:{int(port):04X}"])
    with pytest.raises(OSError), socket.create_connection(("::1", int(port)), timeout=5):
        pass


def test_strangers_do_not_disturb(cluster):
    workers = cluster(2)
    workers.start(JOIN + "result('done', gather())", indices=[0])
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"[1, 2]\n", b'{"greeting": "x"}\n', b"", b"\xff" * 100000):
        with connect(workers.addresses[0]) as connection:
            connection.sendall(said)
    workers.start(JOIN + "result('done', gather())", indices=[1])
    workers.succeed()


def connect(address):
    """Connect to process 0 as soon as it listens."""
    host, port = address.split(":")
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=5)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def hello(**fields):
    versions = {name: importlib.metadata.version(name) for name in ("tfdist-jax", "jax", "jaxlib")}
    about = {"greeting": "tfdist-jax rendezvous", "process_id": 1, "num_processes": 2, "versions": versions, "who": "x"}
    return json.dumps({**about, "nonce": "1", **fields}).encode() + b"\n"


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"[" * 60_000 + b"\n", id="deep"),
        pytest.param(hello(process_id=1.0), id="float"),
        pytest.param(hello(process_id="1"), id="text"),
        pytest.param(hello(process_id=None), id="none"),
        pytest.param(hello(process_id=True), id="bool"),
        pytest.param(hello(who=["a"], process_id=-1), id="list"),
    ],
)
def test_what_is_no_process_of_the_program_takes_nobodys_place(cluster, said):
    workers = cluster(2)
    workers.start(JOIN + "result('done', gather())", indices=[0])
    with connect(workers.addresses[0]) as connection:
        connection.sendall(said)
        workers.start(JOIN + "result('done', gather())", indices=[1])
        workers.succeed()
    assert "Exception in thread" not in workers.workers[0].log


def test_hundreds_of_idle_connections_keep_nobody_away(cluster):
    workers = cluster(2)
    workers.start(JOIN + "result('done', gather())", indices=[0], env={"TFDIST_START_TIMEOUT_S": "60"})
    idle = [connect(workers.addresses[0]) for _ in range(300)]
    workers.start(JOIN + "result('done', gather())", indices=[1])
    workers.succeed()
    for connection in idle:
        connection.close()


def test_who_does_not_know_the_secret_is_refused_and_the_real_process_is_not(cluster):
    workers, secret = cluster(2), {"TFDIST_CLUSTER_SECRET": "known to both"}
    workers.start(JOIN + "result('done', gather())", indices=[0], env=secret)
    with connect(workers.addresses[0]) as connection, connection.makefile("rb") as lines:
        connection.sendall(hello())
        asked = json.loads(lines.readline())
        connection.sendall(json.dumps({"proof": asked["proof"]}).encode() + b"\n")  # What has been overheard.
        assert "it does not know the secret" in json.loads(lines.readline())["refusal"]
        assert set(asked) == {"nonce", "proof"} and "known to both" not in str(asked)
        workers.start(JOIN + "result('done', gather())", indices=[1], env=secret)
        workers.succeed()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        (("one", "other"), ("", "who listens there does not know the secret in TFDIST_CLUSTER_SECRET")),
        (
            ("one", ""),
            ("", "cannot take part: process 0 asks for the secret in TFDIST_CLUSTER_SECRET. Set it here, too"),
        ),
        (("", "one"), ("", "who listens there does not know the secret in TFDIST_CLUSTER_SECRET")),
    ],
)
def test_processes_with_different_secrets_are_told(cluster, secrets, said):
    workers = cluster(2)
    program = JOIN.replace("td.initialize()", "td.initialize(timeouts=td.Timeouts(start_s=8))")
    workers.start(program, env=lambda index: {"TFDIST_CLUSTER_SECRET": secrets[index]})
    assert all(workers.wait())
    for worker, words in zip(workers.workers, said, strict=True):
        assert words in worker.log, worker.log


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's table of sockets")
def test_collectives_listen_on_the_tasks_own_address_only(cluster):
    workers = cluster(2)
    workers.addresses[1] = workers.addresses[1].replace("127.0.0.1", "127.0.0.2")
    workers.start(WORK)
    for worker in workers.workers:
        worker.wait_for_result("works")
    hosts = [{host for host, _ in sockets(worker.pid)} for worker in workers.workers]
    assert hosts == [{"127.0.0.1"}, {"127.0.0.2"}]


def sockets(pid):
    """The addresses at which a process listens."""
    links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.exists() or path.is_symlink()]
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    found = set()
    for name in ("tcp", "tcp6"):
        for row in Path("/proc/net", name).read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and fields[9] in own:
                host, port = fields[1].split(":")
                number = bytes.fromhex(host)[-4:] if name == "tcp6" else bytes.fromhex(host)
                found.add((socket.inet_ntoa(number[::-1]), int(port, 16)))
    return found
