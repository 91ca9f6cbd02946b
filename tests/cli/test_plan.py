"""`tfdist-jax plan`: programs that end where their training step would run, planned for on other devices."""

import forks
import pytest

PROGRAM = """
    import sys
    import jax, jax.numpy as jnp, numpy as np, optax
    import tfdist_jax as td

    P, tx = jax.sharding.PartitionSpec, optax.adam(0.1)
    rules = {"up": P(None, "tensor"), "down": P("tensor")}
    strategy = {"sharded": td.Sharded({"data": 2, "tensor": 2}, rules), "mirrored": td.Mirrored()}[sys.argv[1]]

    def make_state():
        params = {"up": jnp.ones((64, 128)), "down": jnp.ones((128, 64))}
        return {"opt": tx.init(params), "params": params}

    def loss_fn(params, x, scale):
        return scale * ((jax.nn.relu(x @ params["up"]) @ params["down"]) ** 2).mean(), {"rows": len(x)}

    @strategy.jit
    def step(state, x):
        params = jax.tree.map(jnp.asarray, state["params"]) if sys.argv[2] == "state" else {"up": state["params"]["up"]}
        if sys.argv[2] == "none":
            return state, x.sum()
        (loss, aux), grads = strategy.value_and_grad(loss_fn if sys.argv[2] == "state" else up_only)(params, x, 2.0)
        return state, loss

    def up_only(params, x, scale):
        return (x @ params["up"].astype(x.dtype) * scale).mean(), {}

    state = strategy.init(make_state)
    for x in strategy.prefetch([np.ones((int(sys.argv[3]), 64), np.float32)]):
        step(state, x)
        print("has run")
"""


@pytest.fixture
def plan(run_script):
    """Returns a function that plans for a program of four devices: `plan(*args, options=())`."""

    def run(
        *args,
        program=PROGRAM,
        options=("--for", "6", "--hardware", "tpu-v6e", "--programs", "3"),
        modules=forks.NATIVE,
    ):
        runner = ("-m", "tfdist_jax", "plan", "--devices", "4", *options)
        return run_script(program, *args, runner=runner, modules=modules)

    return run


def test_a_program_is_planned_for_and_does_not_run(plan):
    ran = plan("sharded", "state", "24", modules=())
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert lines[0].endswith("meshes of 6 x tpu-v6e, 29.8 GiB each, 90 % of which can be used")
    assert {"data=6", "data=3,tensor=2"} <= {line.split()[0] for line in lines[3:]}
    assert "has run" not in ran.stdout


def test_a_strategy_without_rules_has_no_tensor_axis_and_rows_that_fill_up_do_not_count(plan):
    ran = plan("mirrored", "state", "6", options=("--for", "3", "--hardware", "a100-80gb-sxm", "--top", "1"))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[0].startswith("2 meshes of 3 x a100-80gb-sxm")
    assert "tensor" not in ran.stdout
    assert ran.stdout.splitlines()[4] == "  And 1 more."


@pytest.mark.parametrize(
    ("args", "options", "code", "said"),
    [
        (("mirrored", "none", "24"), None, 1, "'step' differentiates no loss by `strategy.value_and_grad`"),
        (("mirrored", "part", "24"), None, 1, "is not differentiated by a part of the step's state"),
        (
            ("mirrored", "state", "24"),
            ("--for", "7", "--hardware", "cpu"),
            1,
            "No mesh of 7 devices is possible for batches of 24 rows",
        ),
        (("mirrored", "state", "24"), ("--for", "7", "--hardware", "abacus"), 2, "invalid choice: 'abacus'"),
        (("mirrored", "state", "24"), ("--hardware", "cpu"), 2, "the following arguments are required: --for"),
    ],
)
def test_what_cannot_be_planned_for_is_told(plan, args, options, code, said):
    ran = plan(*args) if options is None else plan(*args, options=options)
    assert ran.returncode == code
    assert said in ran.stderr
    assert "has run" not in ran.stdout


def test_a_tensorflow_program_has_no_loss_to_plan_for(plan):
    ran = plan(
        program="""
        import tensorflow as tf

        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(tf.ones((8, 2)), tf.ones((8, 1)), verbose=0)
        """
    )
    assert ran.returncode == 1
    assert "differentiates no loss by `strategy.value_and_grad`" in ran.stderr
