"""A chief before the workers and an evaluator beside them, under `tfdist-jax launch`."""

import signal

import pytest

ROLE = """
import sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
role, attempt = task["type"], int(os.environ["TFDIST_JAX_RESTART"])
result(f"pid_{role}{task['index']}_{attempt}", os.getpid())
started = lambda name: (pathlib.Path(os.environ["RESULTS"]) / name).exists()
def until(name):
    while not started(name):
        time.sleep(0.02)
"""


def pids(launcher):
    return sorted(path.name for path in launcher.results.glob("pid*"))


def test_training_and_evaluation_beside_it(launch):
    program = """
    import time
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver, folder = strategy.cluster_resolver, os.environ["RESULTS"] + "/files"
    role = resolver.task_type
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = tf.ones([8, 1])
    if role == "evaluator":
        while (latest := tf.train.latest_checkpoint(folder + "/chief0")) is None:
            time.sleep(0.05)
        tf.train.Checkpoint(model=model).restore(latest).expect_partial()
        result("evaluated", [latest[-6:], model.evaluate(x, 2 * x, verbose=0), strategy.num_replicas_in_sync])
    else:
        model.fit(x, 2 * x, batch_size=4, epochs=3, verbose=0)
        tf.train.Checkpoint(model=model).save(f"{folder}/{role}{resolver.task_id}/ckpt")
        result(f"{role}{resolver.task_id}", [model.evaluate(x, 2 * x, verbose=0), strategy.num_replicas_in_sync])
    """
    launcher = launch(program, "--workers", "1", "--chief", "--evaluator")
    assert launcher.wait() == 0, launcher.log
    loss, replicas = launcher.result("chief0")
    assert launcher.result("worker0") == [loss, replicas] and replicas == 2
    assert launcher.result("evaluated") == ["ckpt-1", pytest.approx(loss, rel=1e-5), 1]
    assert (launcher.results / "tfdist_logs/evaluator_0.log").exists()


def test_a_sidecar_evaluates_what_the_workers_save_until_the_last_checkpoint(launch):
    program = """
    import tensorflow as tf
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    folder, x = os.environ["RESULTS"] + "/files", tf.ones([8, 1])
    def make_model():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model
    class Last(tf.keras.callbacks.Callback):
        def on_test_end(self, logs=None):
            self.found = [int(self.model.optimizer.iterations), logs["loss"]]
    if resolver.task_type == "evaluator":
        last, data = Last(), tf.data.Dataset.from_tensors((x, 2 * x))
        tf.keras.utils.SidecarEvaluator(make_model(), data, folder, max_evaluations=3, callbacks=[last]).start()
        result("evaluated", last.found)
    else:
        with tf.distribute.MultiWorkerMirroredStrategy().scope():
            model = make_model()
        save = tf.keras.callbacks.ModelCheckpoint(folder + "/ckpt-{epoch}", save_weights_only=True)
        model.fit(x, 2 * x, batch_size=4, epochs=3, verbose=0, callbacks=[save])
        result(f"{resolver.task_type}{resolver.task_id}", model.evaluate(x, 2 * x, verbose=0))
    """
    launcher = launch(program, "--workers", "2", "--evaluator")
    assert launcher.wait() == 0, launcher.log
    assert launcher.result("evaluated") == [6, pytest.approx(launcher.result("worker0"), rel=1e-5)]


def test_an_evaluator_that_fails_starts_again_alone(launch):
    program = f"""{ROLE}
if role == "evaluator":
    sys.exit(0 if attempt == 2 else 3)
until("pid_evaluator0_2")
"""
    launcher = launch(program, "--workers", "2", "--evaluator", "--max-restarts", "2")
    assert launcher.wait() == 0, launcher.log
    evaluators = [f"pid_evaluator0_{attempt}" for attempt in range(3)]
    assert pids(launcher) == [*evaluators, "pid_worker0_0", "pid_worker1_0"]
    assert "evaluator 0 has ended with exit code 3" in launcher.log


@pytest.mark.exhaustive
def test_training_starts_again_without_the_evaluator(launch):
    program = f"""{ROLE}
if role == "evaluator":
    until("end")
    result("evaluated", True)
elif attempt == 0:
    until("pid_evaluator0_0")
    sys.exit(5 if role == "chief" else 0)
else:
    result("end", True)
"""
    launcher = launch(program, "--workers", "1", "--chief", "--evaluator", "--max-restarts", "1")
    assert launcher.wait() == 0, launcher.log
    assert launcher.result("evaluated")
    attempts = [f"pid_{role}0_{attempt}" for role in ("chief", "worker") for attempt in (0, 1)]
    assert pids(launcher) == sorted([*attempts, "pid_evaluator0_0"])


def test_an_evaluator_that_stays_away_does_not_stop_training_but_is_told_of(launch):
    program = f"""{ROLE}
if role == "evaluator":
    sys.exit(3)
until("pid_evaluator0_0")
time.sleep(0.5)
result(f"trained{{task['index']}}", True)
"""
    launcher = launch(program, "--workers", "2", "--evaluator")
    assert launcher.wait() == 3, launcher.log
    assert launcher.result("trained0") and launcher.result("trained1")
    assert "stays away; the training goes on" in launcher.log


def test_an_evaluator_without_an_end_is_ended_after_training(launch):
    program = f"""{ROLE}
if role == "evaluator":
    time.sleep(600)
until("pid_evaluator0_0")
"""
    launcher = launch(program, "--workers", "1", "--evaluator", "--stop-timeout", "1")
    assert launcher.wait() == 0, launcher.log
    assert "the training has ended; evaluator 0 has 1 s to end by itself" in launcher.log


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_evaluator_too(number, launch):
    program = f"""{ROLE}
import signal
def leave(number, frame):
    result(f"left_{{role}}{{task['index']}}", number)
    sys.exit(1)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGINT, leave)
result(f"ready_{{role}}{{task['index']}}", True)
time.sleep(600)
"""
    launcher = launch(program, "--workers", "1", "--evaluator")
    launcher.wait_for_result("ready_worker0")
    launcher.wait_for_result("ready_evaluator0")
    launcher._send(number)
    assert launcher.wait() == 1
    assert launcher.result("left_worker0") == launcher.result("left_evaluator0") == number


@pytest.mark.exhaustive
def test_a_signal_after_training_lets_the_evaluator_clean_up(launch):
    program = f"""{ROLE}
import signal
if role == "evaluator":
    def leave(number, frame):
        time.sleep(0.5)
        result("left", number)
        sys.exit(1)
    signal.signal(signal.SIGINT, leave)
    result("ready", True)
    time.sleep(600)
until("ready")
"""
    launcher = launch(program, "--workers", "1", "--evaluator")
    launcher.wait_for_result("ready")
    launcher.wait_for_log("the training has ended")
    launcher._send(signal.SIGINT)
    assert launcher.wait() == 0, launcher.log
    assert launcher.result("left") == signal.SIGINT


def test_roles_are_for_one_machine(launch):
    launcher = launch("", "--hosts", "a,b", "--index", "0", "--chief")
    assert launcher.wait() == 2
    assert "give each process its TF_CONFIG" in launcher.log
