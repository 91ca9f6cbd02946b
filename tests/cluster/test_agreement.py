"""Before a step the processes compare what they are about to do."""

import pytest
from environment import NEVER_S

from tfdist_jax._cluster._agreement import agree

JOIN = """
import sys, time
import jax, jax.numpy as jnp, numpy as np
import tfdist_jax as td
from tfdist_jax._cluster import DisagreementError, agree, step_fields
mine = td.initialize()
me = mine.process_id
def meet(what="train step", **fields):
    try:
        agree(what, step_fields((), **fields) if "args" not in fields else step_fields(**fields))
    except DisagreementError as error:
        result("error", str(error))
    else:
        result("error", "")
"""


def errors(workers):
    workers.succeed()
    return workers.results("error")


def test_the_same_step_is_agreed_on(cluster):
    workers = cluster(2)
    workers.start(
        JOIN + "x = jnp.zeros([4, 2])\nmeet(args={'x': x}, program=jax.jit(jnp.sin).lower(x).as_text(), steps=3)"
    )
    assert errors(workers) == ["", ""]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            "meet(args={'x': jnp.zeros([4 + (me == 2), 2])})",
            "worker 2 has (5, 2) as ['x'] shape, worker 0 has (4, 2).",
        ),
        (
            "meet(args=[np.zeros(2, 'i4' if me == 2 else 'f4')])",
            "worker 2 has int32 as [0] dtype, worker 0 has float32.",
        ),
        ("meet(steps_per_epoch=10 if me else 11)", "worker 1 has 10 as steps_per_epoch, worker 0 has 11."),
        (
            "meet('evaluation' if me == 1 else 'training')",
            "worker 1 has evaluation as what comes next, worker 0 has training.",
        ),
        ("meet(**({'extra': 1} if me == 2 else {}))", "worker 2 has 1 as extra, worker 0 has nothing."),
    ],
)
def test_what_differs_is_named_in_all_processes(cluster, call, message):
    workers = cluster(3)
    workers.start(JOIN + call)
    for error in errors(workers):
        assert message in error
        assert "program.py:" in error


def test_another_program_is_noticed(cluster):
    workers = cluster(2)
    workers.start(JOIN + "fn = jnp.sin if me else jnp.cos\nmeet(args=[], program=jax.jit(fn).lower(1.0).as_text())")
    for error in errors(workers):
        assert "worker 1 has module @jit_sin" in error
        assert "as program, worker 0 has module @jit_cos" in error


def test_another_sharding_is_noticed(cluster):
    workers = cluster(2, 2)
    workers.start(
        JOIN
        + """
mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
spec = jax.sharding.PartitionSpec("data") if me else jax.sharding.PartitionSpec()
sharding = jax.sharding.NamedSharding(mesh, spec)
meet(args=[jax.ShapeDtypeStruct((4, 2), jnp.float32, sharding=sharding)])
"""
    )
    assert all(
        "has P('data',) on {'data': 4} as [0] sharding, worker 0 has whole on" in error for error in errors(workers)
    )


def test_points_belong_together_by_their_order(cluster):
    workers = cluster(2)
    workers.start(JOIN + "for i in range(50): agree('step', {'number': str(i)})\nmeet(number=me)")
    assert all("as number, worker 0 has 0" in error for error in errors(workers))


def test_a_process_that_dies_before_the_point_is_noticed(cluster):
    workers = cluster(2)
    workers.start(JOIN + "if me: os.kill(os.getpid(), 9)\nmeet()", env={"TFDIST_HEARTBEAT_TIMEOUT_S": NEVER_S})
    assert all(workers.wait())
    assert "worker 1 is gone" in workers.workers[0].log


def test_one_process_agrees_with_itself():
    agree("step", {"x": "1"})
