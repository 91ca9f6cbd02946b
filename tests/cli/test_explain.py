"""`tfdist-jax explain`: programs that end where their training step would run."""

import re
from pathlib import Path

import forks
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "explain.md"

NATIVE = """
    import sys
    import jax.numpy as jnp, numpy as np
    import tfdist_jax as td

    strategy = td.FSDP(min_size=1)
    params = strategy.init(lambda: {"w": jnp.ones((8, 16))})

    def make_step(scale):
        @strategy.jit
        def step(params, x):
            loss_fn = lambda params, x: scale * ((x @ params["w"]) ** 2).mean()
            loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(params, x)
            return params, loss
        step.__name__ = f"step_{scale}"
        return step

    for scale in map(int, sys.argv[1:]):
        step = make_step(scale)
        for x in strategy.prefetch([np.ones((16, 8), np.float32)] * 2):
            params, loss = step(params, x)
            print("has run", scale)
"""


@pytest.fixture
def explain(run_script):
    """Returns a function that explains a program on four devices: `explain(program, *args, options=())`."""

    def run(program, *args, options=(), modules=forks.NATIVE):
        runner = ("-m", "tfdist_jax", "explain", "--devices", "4", *options)
        return run_script(program, *args, runner=runner, modules=modules)

    return run


def test_the_step_is_explained_and_does_not_run(explain, tmp_path):
    ran = explain(NATIVE, "3", options=("--html", str(tmp_path / "page.html")), modules=())
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("step_3, on 4 x cpu\n")
    assert re.search(r"^  w +\[8, 16\] +float32 +P\(None, 'data'\)", ran.stdout, re.MULTILINE)
    assert re.search(r"^  all-gather +data +1 .*script\.py:13 \(`loss, grads = strategy", ran.stdout, re.MULTILINE)
    assert "has run" not in ran.stdout
    assert "step_3, on 4 x cpu" in (tmp_path / "page.html").read_text()


def test_the_page_in_docs_shows_what_is_printed(explain, tmp_path):
    """But for temporary memory, of which XLA's versions take more or less."""
    program, report = re.search(r"```python\n(# train.py.*?)```.*?```\n(.*?)```", PAGE.read_text(), re.DOTALL).groups()
    (tmp_path / "train.py").write_text(program)
    ran = explain(tmp_path / "train.py", options=("--devices", "8"))
    assert ran.returncode == 0, ran.stderr
    lines_of = lambda text: [line for line in text.splitlines() if not line.startswith(("  temporary", "  Together"))]
    assert lines_of(ran.stdout.replace(f"{tmp_path}/", "")) == lines_of(report)


def test_another_step_is_explained_after_the_first_ones_have_run(explain):
    ran = explain(NATIVE, "3", "4", "5", options=("--step", "2"))
    assert ran.returncode == 0, ran.stderr
    before, _, explained = ran.stdout.partition("step_4, on 4 x cpu")
    assert before == "has run 3\n" * 2
    assert "Collectives" in explained


@pytest.mark.parametrize(
    ("program", "args", "code", "said"),
    [
        (NATIVE, ["1"], 1, "after 1 different training steps; step 2 is to be explained"),
        ("import sys; sys.exit()", [], 1, "after 0 different training steps"),
    ],
)
def test_a_program_that_ends_before_is_told_of(explain, program, args, code, said):
    ran = explain(program, *args, options=("--step", "2"))
    assert (ran.returncode, ran.stderr.startswith("tfdist-jax explain: the program has ended")) == (code, True)
    assert said in ran.stderr


def test_a_program_that_fails_before_ends_as_by_itself(explain):
    assert explain("import sys; sys.exit(7)").returncode == 7
    ran = explain("print(1 / 0)")
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")


def test_a_step_in_another_thread_is_explained_and_ends_the_program(explain):
    ran = explain("""
        import threading
        import jax.numpy as jnp
        import tfdist_jax as td

        strategy = td.Mirrored()
        step = strategy.jit(lambda state, x: (state + x, None))
        thread = threading.Thread(target=step, args=(strategy.init(lambda: jnp.ones(())), 2))
        thread.start()
        thread.join()
        print("has run")
    """)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("<lambda>, on 4 x cpu")
    assert "has run" not in ran.stdout


FIT = """
    import numpy as np, tensorflow as tf
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(16), tf.keras.layers.Dense(10)])
        model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.evaluate(np.ones((32, 8), "f"), np.zeros(32), verbose=0)
    model.fit(np.ones((32, 8), "f"), np.zeros(32), batch_size=32, verbose=0)
    print("has run")
"""
LOOP = """
    import tensorflow as tf
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        kernels = [tf.Variable(tf.ones((8, 16)), name="kernel"), tf.Variable(tf.ones((16, 10)), name="kernel")]
        optimizer = tf.keras.optimizers.SGD(0.1)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ kernels[0] @ kernels[1]) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, kernels), kernels))
        return loss

    for x in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(tf.ones((32, 8)))):
        strategy.run(step, (x,))
        print("has run")
"""
ALONE = FIT.replace("MirroredStrategy()", "get_strategy()")


@pytest.mark.parametrize(
    ("program", "begins", "arrays", "line"),
    [
        (
            FIT,
            "train_step, on 4 x cpu",
            ["sequential/dense/kernel", "sequential/dense_1/kernel"],
            r"script\.py:8 \(`model\.fit",
        ),
        (LOOP, "step, on 4 x cpu", ["kernel:0", r"kernel:0 \(\d\)"], r"script\.py:12 \(`optimizer\.apply_gradients"),
        (
            ALONE,
            "train_step, on 1 x cpu",
            ["sequential/dense/kernel", "sequential/dense_1/kernel"],
            "None: devices do not",
        ),
    ],
    ids=["fit", "loop", "fit without a strategy"],
)
def test_steps_of_tensorflow_programs_are_explained(run_prepared, program, begins, arrays, line):
    ran = run_prepared(program, command="explain", devices=4)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert begins in ran.stdout.splitlines()[0]
    for array, shape in zip(arrays, (r"\[8, 16\]", r"\[16, 10\]"), strict=True):
        assert re.search(rf"^  {array} +{shape} +float32", ran.stdout, re.MULTILINE), ran.stdout
    assert re.search(line, ran.stdout)
    # Two products forward, and three backward: of the input there is no gradient.
    rows = 32 if program is ALONE else 8
    flops = 2 * rows * (2 * 8 * 16 + 3 * 16 * 10)
    assert f"{flops / 1000:.4g} kFLOP a step" in ran.stdout
    assert "has run" not in ran.stdout


STAGES = """
    import sys
    import jax, jax.numpy as jnp, numpy as np
    import tfdist_jax as td

    strategy = td.Pipeline(4, 8)
    loss = td.Staged(lambda p, x: x, lambda w, x, batch: jnp.tanh(x @ w), lambda p, x, batch: (x**2).mean())
    params = strategy.init(lambda: {"blocks": jnp.ones((4, 8, 8))})

    @strategy.jit
    def step(params, x):
        return params, strategy.value_and_grad(loss, has_aux=False)(params, x)

    step(params, strategy.put(np.ones((16, 8), np.float32)))
    print("has run")
"""
STAGES_OF_KERAS = FIT.replace("MirroredStrategy()", "experimental.PipelineStrategy(2, 8)")


@pytest.mark.parametrize(("program", "devices"), [(STAGES, 4), (STAGES_OF_KERAS, 2)], ids=["native", "fit"])
def test_the_schedule_of_a_pipeline_is_drawn(explain, program, devices, tmp_path):
    page = tmp_path / "page.html"
    ran = explain(program, options=("--html", str(page)))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.search(
        rf"^Pipeline\n  0  F0 F1(?s:.*)'1f1b': {devices} devices along 'stage', 8 micro", ran.stdout, re.MULTILINE
    )
    assert "has run" not in ran.stdout and "<svg" in page.read_text()


def test_variables_in_one_place_are_on_devices_only_while_a_step_uses_them(run_prepared):
    program = LOOP.replace(
        "MirroredStrategy()", 'experimental.CentralStorageStrategy(parameter_device="/cpu:0")'
    ).replace(
        "optimizer =",
        "unused, scale = tf.Variable(tf.ones((512, 512))), tf.Variable(tf.ones((512, 1024)))\n        optimizer =",
    )
    ran = run_prepared(
        program.replace("kernels[1]) ** 2", "kernels[1]) ** 2 * scale[0, 0]"), command="explain", devices=2
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    # It reads `scale`, of 2 MiB, and writes the kernels, of a thousandth.
    assert re.search(
        r"lie on \S+CPU:0, once\. It copies 2\.00 MiB from there to each device, and brings 0\.001 MiB back", ran.stdout
    )
    assert "unused" not in ran.stdout and "stay there" in ran.stdout


SERVERS = """
    import sys
    import numpy as np, tensorflow as tf
    jobs = {"worker": ["localhost:1", "localhost:2"], "ps": ["localhost:3", "localhost:4"]}
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(jobs))
    strategy = tf.distribute.ParameterServerStrategy(resolver, max_staleness=0)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1024, use_bias=False), tf.keras.layers.Dense(512, use_bias=False)])
        model.compile("sgd", "mse")
    x, y = np.ones((32, 256), "f"), np.ones((32, 512), "f")
    if sys.argv[1] == "fit":
        model.fit(x, y, batch_size=32, verbose=0)
    else:
        with strategy.scope():
            model.build(x.shape)

        @tf.function
        def step(iterator):
            def replica(x, y):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((model(x) - y) ** 2)
                model.optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
            strategy.run(replica, args=next(iterator))

        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        iterator = iter(coordinator.create_per_worker_dataset(tf.data.Dataset.from_tensors((x, y)).repeat()))
        coordinator.schedule(step, args=(iterator,)).fetch()
    print("has run")
"""


@pytest.mark.parametrize("how", ["fit", "loop"])
def test_steps_with_parameter_servers_tell_what_is_read_and_sent(run_prepared, how, tmp_path):
    ran = run_prepared(SERVERS, how, command="explain", devices=2)
    assert ran.returncode == 0, ran.stderr
    assert re.match(r"\w+, by 2 worker\(s\) with variables on 2 server\(s\)\n", ran.stdout)
    server = "/job:ps/replica:0/task:{}/device:CPU:0"
    assert re.search(rf"^  {server.format(0)} +1\.00 +1\.00$", ran.stdout, re.MULTILINE), ran.stdout
    assert re.search(rf"^  {server.format(1)} +2\.00 +2\.00$", ran.stdout, re.MULTILINE), ran.stdout
    assert "one after another, as they are scheduled (`max_staleness=0`)" in ran.stdout
    assert "has run" not in ran.stdout
