"""Processes that find each other, or say why not, and that end together."""

import json
import re
import time

import pytest
from environment import NEVER_S
from joining import JOIN, WORK

from tfdist_jax._cluster._peer_monitor import LOST_EXIT_CODE


def ended_with(worker, text):
    """Whether a process has ended with an error in time, after saying `text`."""
    assert worker.wait() not in (0, None)
    assert re.search(text, worker.log), worker.log
    return True


@pytest.mark.parametrize("size", [2, 4])
def test_processes_see_each_others_devices(cluster, size):
    workers = cluster(size, 2)
    workers.start(
        JOIN + "result('seen', [jax.process_index(), jax.device_count(), jax.local_device_count(), gather()])"
    )
    workers.succeed()
    assert workers.results("seen") == [[i, 2 * size, 2, list(range(size))] for i in range(size)]


def test_a_second_call_does_nothing(cluster):
    workers = cluster(2)
    workers.start(JOIN + "gather(); result('same', td.initialize() == mine)")
    workers.succeed()
    assert workers.results("same") == [True, True]


def test_explicit_arguments_need_no_environment(cluster):
    workers = cluster(2)
    program = f"""
        import jax, sys, os
        del os.environ["TF_CONFIG"]
        import tfdist_jax as td
        mine = td.initialize(td.Cluster.of_processes({workers.addresses[0]!r}, 2, int(os.environ["NUMBER"])))
        result("seen", [jax.process_index(), jax.process_count()])
    """
    workers.start(program, env=lambda index: {"NUMBER": str(index)})
    workers.succeed()
    assert workers.results("seen") == [[0, 2], [1, 2]]


def test_missing_processes_are_named_by_all_that_have_come(cluster):
    workers = cluster(4)
    present = workers.start(JOIN, indices=[0, 2], env={"TFDIST_START_TIMEOUT_S": "8"})
    first, third = [f"worker {i} ({workers.addresses[i]})" for i in (1, 3)]
    for worker in present:
        assert ended_with(worker, re.escape(f"{first}, {third}")), worker.log
        assert "MissingTasksError" in worker.log


def test_an_unknown_host_is_said_at_once(cluster):
    workers = cluster(3)
    workers.addresses[2] = "no-such-host.invalid:2222"
    (worker,) = workers.start(JOIN, indices=[0])
    worker.wait_for_log(
        r"waits for worker 2 \(no-such-host.invalid:2222\)\. The host 'no-such-host.invalid' is not known"
    )


def test_a_missing_first_process_is_named(cluster):
    workers = cluster(2)
    (present,) = workers.start(JOIN, indices=[1], env={"TFDIST_START_TIMEOUT_S": "4"})
    assert ended_with(present, re.escape(f"did not arrive: worker 0 ({workers.addresses[0]})"))
    assert "Connection refused" in present.log


def test_two_processes_with_index_0_say_that_the_port_is_taken(cluster):
    workers = cluster(2)
    program = JOIN.replace("td.initialize()", "td.initialize(timeouts=td.Timeouts(start_s=8))")
    workers.start(program, env=lambda index: {"TF_CONFIG": workers.config(0)})
    codes = workers.wait()
    logs = "".join(worker.log for worker in workers.workers)
    assert all(codes)
    assert re.search(r"worker 0 cannot listen on .*another process uses this port", logs), logs


def test_two_processes_with_the_same_index_are_told(cluster):
    workers = cluster(3)
    workers.start(JOIN, env=lambda index: {"TF_CONFIG": workers.config(min(index, 1)), "TFDIST_START_TIMEOUT_S": "8"})
    workers.wait()
    logs = [worker.log for worker in workers.workers]
    assert sum("worker 1 cannot take part: another process with this index is here already" in log for log in logs) == 1


def test_a_process_that_expects_another_number_is_told(cluster):
    workers = cluster(2)
    more = {"worker": [*workers.addresses, "127.0.0.1:9"]}
    env = lambda index: {"TF_CONFIG": workers.config(index, **(more if index else {})), "TFDIST_START_TIMEOUT_S": "6"}
    workers.start(JOIN, env=env)
    assert ended_with(workers.workers[1], "cannot take part: it has num_processes 3, but worker 0 has 2")


def test_a_process_with_another_version_is_told(cluster):
    workers = cluster(2)
    program = """
        import os
        from tfdist_jax._cluster import _rendezvous
        if os.environ["RESULTS"].endswith("1"):
            _rendezvous.versions = lambda: {"jax": "0.9"}
        import tfdist_jax
        tfdist_jax.initialize(timeouts=tfdist_jax.Timeouts(start_s=6))
    """
    workers.start(program)
    assert ended_with(workers.workers[1], "cannot take part: it has versions {'jax': '0.9'}, but worker 0 has")


def test_a_process_that_comes_late_is_waited_for(cluster):
    workers = cluster(2)
    workers.start(JOIN + "result('done', gather())", indices=[1])
    time.sleep(4)
    workers.start(JOIN + "result('done', gather())", indices=[0])
    workers.succeed()
    assert workers.results("done") == [[0, 1], [0, 1]]


def test_one_process_starts_alone(cluster):
    workers = cluster(1)
    workers.start(
        "import jax, tfdist_jax as td; c = td.initialize(); result('n', [c.num_processes, jax.process_count()])"
    )
    workers.succeed()
    assert workers.results("n") == [[1, 1]]


def test_the_evaluator_starts_alone(cluster):
    workers = cluster(2)
    config = json.loads(workers.config(0, evaluator=["127.0.0.1:9"]))
    config["task"]["type"] = "evaluator"
    program = "import jax, tfdist_jax as td; c = td.initialize(); result('n', [c.trains, jax.process_count()])"
    workers.start(program, indices=[0], env={"TF_CONFIG": json.dumps(config)})
    workers.succeed()
    assert workers.results("n") == [[False, 1]]


def test_parameter_servers_are_refused_with_the_alternative(cluster):
    workers = cluster(2)
    config = workers.config(0, ps=["127.0.0.1:9"])
    workers.start("import tfdist_jax as td; td.initialize()", indices=[0], env={"TF_CONFIG": config})
    assert ended_with(workers.workers[0], "NotImplementedError: TF_CONFIG has parameter servers .*use workers only")


def test_a_call_after_jax_has_started_says_what_to_do(cluster):
    workers = cluster(2)
    workers.start("import jax, tfdist_jax as td; jax.devices(); td.initialize()", indices=[0])
    assert ended_with(workers.workers[0], "JAX has already started, alone.*before the first tensor")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("late", [0, 1])
def test_a_process_may_end_long_after_the_others(cluster, late):
    workers = cluster(2)
    began = time.monotonic()
    workers.start(JOIN + f"gather()\nif mine.process_id == {late}: time.sleep(7)")
    workers.succeed()
    assert time.monotonic() - began > 7


def test_a_process_that_never_uses_jax_ends(cluster):
    first, other = cluster(2).start("import tfdist_jax as td\nif td.initialize().process_id == 0: hold()")
    assert other.wait() == 0
    first.release()
    assert first.wait() == 0


def test_steps_in_flight_finish_before_a_process_ends(cluster):
    workers = cluster(2)
    program = (
        JOIN
        + """
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(jax.devices(), "d")
x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("d")), np.ones((1, 4), "f4"))
step = jax.jit(lambda x: x + x.sum(), out_shardings=NamedSharding(mesh, P("d")))
if mine.process_id == 0:
    time.sleep(3)
for _ in range(20):
    x = step(x)
if mine.process_id == 0:
    result("done", bool(jnp.isfinite(x.addressable_data(0)).all()))
"""
    )
    workers.start(program)
    workers.succeed()


@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_the_others_end_and_say_who_is_gone(cluster, victim, how):
    workers = cluster(3)
    running = workers.start(WORK, env={"TFDIST_HEARTBEAT_TIMEOUT_S": NEVER_S})
    for worker in running:
        worker.wait_for_result("works")
    getattr(running[victim], how)()
    for i, worker in enumerate(running):
        assert i == victim or ended_with(worker, f"worker {victim} is gone|Terminating process because")
    logs = "".join(worker.log for worker in running)
    assert f"worker {victim} is gone: it has ended without a word" in logs


def test_a_process_whose_exit_handlers_take_long_notices_that_another_one_is_gone(cluster):
    # From Python 3.12 on no thread can be started then.
    program = "import atexit\ngather()\nresult('works', 1)\nif mine.process_id: time.sleep(600)\natexit.register(time.sleep, 600)"
    first, other = cluster(2).start(JOIN + program, env={"TFDIST_HEARTBEAT_TIMEOUT_S": NEVER_S})
    first.wait_for_result("works")
    other.wait_for_result("works")
    other.kill()
    assert first.wait() == LOST_EXIT_CODE
    assert "worker 1 is gone: it has ended without a word" in first.log


@pytest.mark.parametrize("victim", [0, 1])
def test_an_error_in_one_process_reaches_the_others(cluster, victim):
    workers = cluster(3)
    workers.start(
        JOIN
        + f"""
gather()
if mine.process_id == {victim}:
    raise KeyError("no such column")
gather()
""",
        env={"TFDIST_HEARTBEAT_TIMEOUT_S": NEVER_S},
    )
    codes = workers.wait()
    assert codes[victim] == 1
    assert all(codes)
    others = [worker.log for i, worker in enumerate(workers.workers) if i != victim]
    assert any(f"worker {victim} is gone: KeyError: 'no such column'" in log for log in others), others
    assert set(codes) <= {1, LOST_EXIT_CODE, -6}


@pytest.mark.parametrize("victim", [0, 1])
def test_an_exit_code_in_one_process_reaches_the_others(cluster, victim):
    workers = cluster(2)
    workers.start(JOIN + f"gather()\nif mine.process_id == {victim}: sys.exit(7)\ngather()")
    codes = workers.wait()
    assert codes[victim] == 7
    assert codes[1 - victim] == LOST_EXIT_CODE
    assert f"worker {victim} is gone: it exits with 7" in workers.workers[1 - victim].log


def test_an_exit_without_an_error_in_the_middle_reaches_the_others(cluster):
    workers = cluster(2)
    workers.start(JOIN + "gather()\nif mine.process_id == 1: sys.exit()\ngather()")
    codes = workers.wait()
    assert codes[1] == 0
    # A socket that closes with bytes unread resets its connection: which of the two it is hangs on the moment.
    assert re.search("Connection (closed|reset) by peer", workers.workers[0].log)
    assert codes[0]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_frozen_process_counts_as_dead_after_the_heartbeat(cluster, victim):
    workers = cluster(2)
    running = workers.start(WORK)
    for worker in running:
        worker.wait_for_result("works")
    running[victim].freeze()
    assert ended_with(running[1 - victim], "Terminating process because|is gone")


@pytest.mark.slow("one of two processes runs half of the time")
def test_a_slow_process_is_no_dead_one(cluster):
    workers = cluster(2)
    running = workers.start(JOIN + "for _ in range(150): gather(); time.sleep(0.01)\nresult('done', True)")
    with running[1].slowed():
        workers.succeed()


def test_wrong_timeouts_are_refused(monkeypatch):
    from tfdist_jax._cluster import Timeouts

    monkeypatch.setenv("TFDIST_HEARTBEAT_TIMEOUT_S", "soon")
    with pytest.raises(ValueError, match="TFDIST_HEARTBEAT_TIMEOUT_S must hold a number of seconds, got 'soon'"):
        Timeouts.of_environment()
    monkeypatch.delenv("TFDIST_HEARTBEAT_TIMEOUT_S")
    with pytest.raises(ValueError, match="`start_s` must be positive, got -1"):
        Timeouts(start_s=-1)
    with pytest.raises(ValueError, match="`end_s` must have an end, got inf"):
        Timeouts(end_s=float("inf"))
    monkeypatch.setenv("TFDIST_WAIT_TIMEOUT_S", "nan")
    with pytest.raises(ValueError, match="`wait_s` must be positive, got nan"):
        Timeouts.of_environment()


def test_what_jax_detects_is_used(monkeypatch):
    """Slurm's variables, as `srun` sets them."""
    from tfdist_jax._cluster import detect_cluster

    values = {"JOB_ID": "8", "STEP_NODELIST": "node[007-009],x", "NTASKS": "4", "PROCID": "2", "LOCALID": "1"}
    for name in ("TF_CONFIG", "TFDIST_JAX_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    assert detect_cluster() is None
    for name, value in values.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    found = detect_cluster()
    assert found is not None
    assert (found.source, found.process_id, found.num_processes) == ("SlurmCluster", 2, 4)
    assert found.coordinator == "node007:61448"
    assert found.local_device_ids == (1,)


def test_tf_config_counts_before_what_jax_detects(monkeypatch):
    from tfdist_jax._cluster import detect_cluster

    for name, value in {"hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911"}.items():
        monkeypatch.setenv(f"OMPI_MCA_orte_{name}", value)
    for name, value in {"SIZE": "3", "RANK": "1", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    found = detect_cluster()
    assert found is not None
    assert (found.source, found.process_id, found.num_processes) == ("OmpiCluster", 1, 3)
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": 0}}')
    found = detect_cluster()
    assert found is not None
    assert (found.source, found.num_processes) == ("TF_CONFIG", 2)


def test_a_process_stays_until_its_part_of_a_step_is_done_that_it_does_not_look_at(cluster, tmp_path):
    """Left alone, the others' devices would wait for ever, and JAX at their end."""
    program = """
    import atexit, pathlib, sys, time
    import jax, numpy as np
    import tfdist_jax as td
    from jax.sharding import NamedSharding, PartitionSpec as P
    begun = pathlib.Path(sys.argv[1]) / "begun"
    atexit.register(lambda: result("left", begun.exists()))
    index = td.initialize().process_id
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("process", "device"))
    rows = jax.device_put(np.arange(4.0, dtype="f4").reshape(2, 2), NamedSharding(mesh, P("process")))
    if index == 0:
        time.sleep(2)
        begun.touch()
    everything = jax.jit(lambda rows: rows + 1, out_shardings=NamedSharding(mesh, P()))(rows)
    if index == 0:
        result("seen", [np.asarray(shard.data).tolist() for shard in everything.addressable_shards])
    del everything
    """
    group = cluster(2, devices_per_worker=2)
    group.start(program, str(tmp_path))
    first, second = group.succeed()
    assert first.result("seen") == [[[1, 2], [3, 4]]] * 2
    assert second.result("left")
