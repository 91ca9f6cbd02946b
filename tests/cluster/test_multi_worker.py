"""`MultiWorkerMirroredStrategy` with real processes: what several workers compute is what one computes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf

ROOT = Path(__file__).parents[2]


def run(command, *arguments, cwd, env=None, timeout_s=LIMIT_S):
    """Run `tfdist-jax command arguments` and return what it did."""
    ran = subprocess.run(
        [sys.executable, "-m", "tfdist_jax", *command, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


@pytest.mark.slow("the example under two workers and alone, started afresh")
def test_two_workers_have_the_losses_of_one_process_with_all_their_devices(tmp_path):
    example = ROOT / "examples" / "multi_worker.py"
    common = ("--epochs", "2", "--losses")
    run(["launch", "--workers", "2", "--devices-per-worker", "2"], example, *common, "two.json", cwd=tmp_path)
    run(["run", "--devices", "4"], example, *common, "one.json", "--folder", "alone", cwd=tmp_path)
    two, one = (json.loads((tmp_path / name).read_text()) for name in ("two.json", "one.json"))
    assert two.keys() == one.keys()
    for name, (losses, accuracies) in one.items():
        np.testing.assert_allclose(two[name][0], losses, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(two[name][1], accuracies, rtol=1e-5, err_msg=name)
        assert accuracies[-1] > 0.85


def test_workers_begin_alike_and_train_on_every_row_once(cluster):
    """Initial values and orders differ from process to process until the strategy makes them alike."""
    program = """
    import numpy as np, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    x = np.arange(22.0, dtype="f4")[:, None]
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(3), tf.keras.layers.Dropout(0.5),
                                     tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
        total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
    model.optimizer.learning_rate = 1e-4
    result("begin", [w.tolist() for w in model.get_weights()])
    history = model.fit(x, x, batch_size=8, epochs=2, verbose=0, shuffle=True, validation_split=0.25).history
    result("history", history)
    result("end", [w.tolist() for w in model.get_weights()])
    result("predict", model.predict(x, batch_size=8, verbose=0).tolist())

    @tf.function
    def count(batch):
        strategy.run(lambda rows: total.assign_add(tf.reduce_sum(rows)), args=(batch,))
    for batch in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(x).shuffle(22).batch(8)):
        count(batch)
    result("total", float(total.numpy()))
    """
    first, second = cluster(2, devices_per_worker=2).start(program)
    first.wait(), second.wait()
    assert first.returncode == second.returncode == 0, first.log + second.log
    for name in ("begin", "history", "end", "predict"):
        assert first.result(name) == second.result(name)
    assert np.shape(first.result("predict")) == (22, 1)
    assert first.result("total") == second.result("total") == sum(range(22))


def test_workers_with_data_of_their_own_take_part_until_all_have_none(cluster):
    program = """
    import numpy as np, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    me = strategy.cluster_resolver.task_id
    counts = [13, 4, 0]
    def make(context):
        result("context", [context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync])
        rows = tf.data.Dataset.range(counts[me]).map(lambda i: tf.cast(i, tf.float32) + 100.0 * me)
        return rows.batch(context.get_per_replica_batch_size(6))
    def step(rows):
        return tf.reduce_sum(rows), tf.shape(rows)[0]
    @tf.function
    def both(rows):
        sums, sizes = strategy.run(step, args=(rows,))
        return strategy.reduce("SUM", sums, axis=None), strategy.reduce("SUM", sizes, axis=None)
    steps = [[float(value) for value in both(rows)] for rows in strategy.distribute_datasets_from_function(make)]
    result("steps", steps)

    off = tf.data.Options()
    off.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    y = np.arange(counts[me], dtype="f4")[:, None] + 10 * me
    data = tf.data.Dataset.from_tensor_slices((y, y)).batch(6).with_options(off)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1, kernel_initializer="zeros")])
        model.compile(tf.keras.optimizers.SGD(0.0), "mse", metrics=["mae"])
    result("history", model.fit(data, epochs=2, verbose=0).history)
    result("evaluate", model.evaluate(data, verbose=0))
    """
    counts, workers = [13, 4, 0], cluster(3, devices_per_worker=1).start(program)
    assert [worker.wait() for worker in workers] == [0, 0, 0], "".join(worker.log for worker in workers)
    assert [worker.result("context") for worker in workers] == [[3, i, 3] for i in range(3)]
    steps = workers[0].result("steps")
    assert all(worker.result("steps") == steps for worker in workers)
    assert sum(rows for _, rows in steps) == 17
    assert sum(total for total, _ in steps) == sum(100 * i + j for i, count in enumerate(counts) for j in range(count))
    everything = np.concatenate([np.arange(count) + 10 * i for i, count in enumerate(counts)])
    for worker in workers:
        np.testing.assert_allclose(worker.result("history")["loss"], [np.mean(everything**2)] * 2, rtol=1e-6)
        np.testing.assert_allclose(worker.result("evaluate")[1], np.mean(everything), rtol=1e-6)


def test_workers_that_a_resolver_describes_know_their_roles(cluster):
    program = """
    import sys
    import tensorflow as tf
    jobs, role = json.loads(sys.argv[1]), os.environ["ROLE"]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(jobs), task_type=role, task_id=0)
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=1 << 20, timeout_seconds=60)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver, communication_options=options)
    extended = strategy.extended
    def step():
        context = tf.distribute.get_replica_context()
        return context.all_reduce("SUM", tf.constant(1.0) + float(context.replica_id_in_sync_group))
    result("facts", [strategy.cluster_resolver is resolver, extended.worker_devices, extended.should_checkpoint,
                     extended.should_save_summary, strategy.num_replicas_in_sync,
                     float(strategy.experimental_local_results(strategy.run(step))[0])])
    with strategy.scope():
        variable = tf.Variable(1.0)
        total = tf.Variable(1.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM)
    summed = strategy.reduce("SUM", strategy.run(lambda: variable + 1), axis=None)
    result("first", [tensor.device for tensor in (tf.constant(1.0), tf.constant("text"), summed, variable, tf.Variable(1.0))])
    with tf.device("/cpu:1"):
        result("second", [tensor.device for tensor in (tf.constant(1.0), tf.Variable(1.0), total.values[1])])
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    logical = [device.name for device in tf.config.list_logical_devices("CPU")]
    result("devices", [list(mirrored.extended.worker_devices), logical])
    try:
        with tf.device(logical[3]):
            pass
    except tf.errors.InvalidArgumentError as error:
        result("elsewhere", error.message)
    """
    group = cluster(2, devices_per_worker=2)
    jobs = {"chief": group.addresses[:1], "worker": group.addresses[1:]}
    roles = ("chief", "worker")
    group.start(program, json.dumps(jobs), env=lambda i: {"TF_CONFIG": "", "ROLE": roles[i]})
    for role, worker in zip(roles, group.succeed(), strict=True):
        devices = [f"/job:{role}/replica:0/task:0/device:CPU:{i}" for i in (0, 1)]
        assert worker.result("facts") == [True, devices, role == "chief", role == "chief", 4, 10.0]
        assert worker.result("first") == devices[:1] * 5
        assert worker.result("second") == devices[1:] * 3
        others = [name.replace(role, roles[role == "chief"]) for name in devices]
        assert worker.result("devices") == [devices, devices + others]
        assert worker.result("elsewhere").startswith(f"{others[1]} is a device of another process")


@pytest.mark.parametrize(
    ("difference", "message"),
    [
        ("x = x[: 16 - 8 * me]", "no more batches where process 0 has one"),
        ("x = x.astype('f8' if me else 'f4')", "differ in their types"),
        ("batch = 8 - 2 * me", "differ in their sizes"),
    ],
)
def test_workers_whose_batches_do_not_fit_together_are_told_so(difference, message, cluster):
    program = f"""
    import numpy as np, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    me, batch, x = strategy.cluster_resolver.task_id, 8, np.ones((16, 1), "f4")
    {difference}
    for rows in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(x).batch(batch)):
        strategy.run(lambda part: part * 2, args=(rows,))
    """
    workers = cluster(2).start(program)
    assert all(worker.wait() for worker in workers)
    assert any(re.search(message, worker.log) for worker in workers), workers[0].log + workers[1].log


def test_workers_that_make_different_variables_are_told_so(cluster):
    program = """
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        tf.Variable([1.0] * (2 + strategy.cluster_resolver.task_id))
    """
    workers = cluster(2).start(program)
    assert all(worker.wait() for worker in workers)
    assert any("same variables in the same order" in worker.log for worker in workers), workers[0].log + workers[1].log


def test_files_are_written_by_the_first_worker_and_read_by_all(cluster, tmp_path):
    program = """
    import os, sys
    import numpy as np, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    folder, me = sys.argv[1], strategy.cluster_resolver.task_id
    x = np.random.default_rng(0).normal(size=(24, 4)).astype("f4")
    def make():
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(4), tf.keras.layers.Dropout(0.3),
                                         tf.keras.layers.Dense(1)])
            model.compile("adam", "mse")
        return model
    def same(a, b):
        return all(np.array_equal(v, w) for v, w in zip(a.get_weights(), b.get_weights(), strict=True))
    callbacks = tf.keras.callbacks
    model = make()
    writers = [callbacks.ModelCheckpoint(folder + "/best.keras"), callbacks.CSVLogger(folder + "/log.csv"),
               callbacks.TensorBoard(folder + "/board"), callbacks.BackupAndRestore(folder + "/backup", delete_checkpoint=False)]
    model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0, callbacks=writers)
    # The others read nothing: the first one gives them what it has read.
    backup = folder + "/backup" if me == 0 else folder + "/nowhere"
    again = make()
    history = again.fit(x, x[:, :1], batch_size=8, epochs=3, verbose=0, callbacks=[callbacks.BackupAndRestore(backup)])
    result("resumed", [history.epoch, history.history["loss"]])

    # The chief saves for all, the others into folders that they remove; or all of them into one place.
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=again), f"{folder}/kept{me or ''}", max_to_keep=1)
    path = manager.save()
    if me:
        tf.io.gfile.rmtree(os.path.dirname(path))
    tf.train.Checkpoint(model=again).save(folder + "/same/of_all")
    restored = make()
    tf.train.Checkpoint(model=restored).restore(tf.train.latest_checkpoint(folder + "/same")).expect_partial()
    again.save(folder + "/model.keras")
    with strategy.scope():
        loaded = tf.keras.models.load_model(folder + "/model.keras")
    result("same", [same(again, restored), same(again, loaded)])
    """
    first, second = cluster(2).start(program, str(tmp_path / "files"))
    assert [first.wait(), second.wait()] == [0, 0], first.log + second.log
    assert first.result("resumed") == second.result("resumed")
    assert first.result("resumed")[0] == [2]
    assert first.result("same") == second.result("same") == [True, True]
    assert (tmp_path / "files" / "log.csv").read_text().count("\n") == 3
    assert sorted(path.name for path in (tmp_path / "files").iterdir()) == [
        "best.keras",
        "board",
        "kept",
        "log.csv",
        "model.keras",
        "same",
    ]


@pytest.mark.parametrize("kind", ["orbax", "tensorflow"])
def test_checkpoints_go_from_one_process_to_several_and_back(cluster, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("TFDIST_CHECKPOINT_FORMAT", kind)
    values = {"half": tf.constant([1.5, -2.0], tf.bfloat16), "count": tf.constant(7, tf.int64), "rows": tf.ones([3, 2])}

    def variables(scale=1):
        return {name: tf.Variable(value * scale) for name, value in values.items()}

    tf.train.Checkpoint(**variables()).write(str(tmp_path / "of_one"))
    program = """
    import os, sys
    import tensorflow as tf
    os.environ["TFDIST_CHECKPOINT_FORMAT"] = sys.argv[2]
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        variables = {"half": tf.Variable(tf.zeros([2], tf.bfloat16)), "count": tf.Variable(tf.constant(0, tf.int64)),
                     "rows": tf.Variable(tf.zeros([3, 2]))}
    tf.train.Checkpoint(**variables).read(sys.argv[1] + "/of_one").assert_consumed()
    result("read", [variable.numpy().astype(float).tolist() for variable in variables.values()])
    checkpoint = tf.train.Checkpoint(**variables)
    checkpoint.write(sys.argv[1] + "/of_two", tf.train.CheckpointOptions(enable_async=True))
    for variable in variables.values():
        variable.assign_add(tf.ones_like(variable))
    checkpoint.sync()
    """
    workers = cluster(2).start(program, str(tmp_path), kind)
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    assert (tmp_path / "of_two.index").exists() == (kind == "tensorflow")
    wanted = [[1.5, -2.0], 7.0, [[1.0, 1.0]] * 3]
    assert [worker.result("read") for worker in workers] == [wanted, wanted]
    back = variables(scale=0)
    tf.train.Checkpoint(**back).read(str(tmp_path / "of_two")).assert_consumed()
    assert [variable.numpy().astype(float).tolist() for variable in back.values()] == wanted
    assert back["half"].dtype == tf.bfloat16


def test_workers_send_compressed_gradients_and_save_what_is_still_to_be_sent(cluster, tmp_path):
    """In `fit`, and in a custom loop whose batches are of different sizes; one process goes on with what two have kept."""
    program = """
        import sys
        import keras, numpy as np
        import tensorflow as tf
        options = tf.distribute.experimental.CommunicationOptions(compression="int8")
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
        keras.utils.set_random_seed(0)
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((32,)), keras.layers.Dense(64), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.1), "mse")
        x = np.random.default_rng(0).normal(size=(36, 32)).astype(np.float32)
        model.fit(x, x[:, :1], batch_size=16, epochs=2, verbose=0)

        def replica(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(x) ** 2) / 13
            weights = model.trainable_variables
            model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))

        batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(x).batch(13).take(1))
        for batch in batches:
            tf.function(lambda batch: strategy.run(replica, (batch,)))(batch)
        saved = tf.train.Checkpoint(optimizer=model.optimizer).save(sys.argv[1] + "/saved")
        residual = model.optimizer._gradient_memory["0"]["residual"]
        result("weights", [weight.numpy().tolist() for weight in model.weights])
        result("kept", residual.numpy().tolist())
        result("saved", saved)
        """
    workers = cluster(2, devices_per_worker=2).start(program, str(tmp_path))
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    for name in ("weights", "kept"):
        assert workers[0].result(name) == workers[1].result(name)
    kept = np.asarray(workers[0].result("kept"))
    assert np.abs(kept).max() > 0
    name = "optimizer/_gradient_memory/0/residual/.ATTRIBUTES/VARIABLE_VALUE"
    saved = tf.train.load_variable(workers[0].result("saved"), name)
    np.testing.assert_allclose(saved, kept, rtol=1e-6, atol=1e-9)


def test_an_evaluator_works_beside_the_training(cluster, tmp_path):
    program = """
    import sys, time
    import numpy as np, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    role, folder, x = strategy.cluster_resolver.task_type, sys.argv[1], np.ones((8, 1), "f4")
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    if role == "worker":
        model.fit(x, 2 * x, batch_size=4, epochs=3, verbose=0)
        tf.train.Checkpoint(model=model).save(f"{folder}/{strategy.cluster_resolver.task_id}/ckpt")
    else:
        while (latest := tf.train.latest_checkpoint(folder + "/0")) is None:
            time.sleep(0.05)
        tf.train.Checkpoint(model=model).restore(latest).expect_partial()
    result("role", [role, strategy.num_replicas_in_sync, model.evaluate(x, 2 * x, verbose=0)])
    """
    group = cluster(2)
    evaluator = {
        "TF_CONFIG": json.dumps({"cluster": {"worker": group.addresses}, "task": {"type": "evaluator", "index": 0}})
    }
    group.start(program, str(tmp_path / "files"))
    (*_, judge) = group.start(program, str(tmp_path / "files"), indices=[2], env=evaluator)
    assert group.wait() == [0, 0, 0], "".join(worker.log for worker in group.workers)
    roles = [worker.result("role") for worker in group.workers]
    assert [role[:2] for role in roles] == [["worker", 2], ["worker", 2], ["evaluator", 1]]
    assert judge.result("role")[2] == pytest.approx(roles[0][2], rel=1e-5)


def test_a_tpu_strategy_is_no_strategy_for_several_hosts(cluster):
    program = """
    import tfdist_jax
    tfdist_jax.initialize()
    import tensorflow as tf
    tf.distribute.TPUStrategy()
    """
    workers = cluster(2).start(program, env={"TFDIST_EMULATED_TPU_CORES": "1"})
    assert all(worker.wait() for worker in workers)
    assert any("use tf.distribute.MultiWorkerMirroredStrategy()" in worker.log for worker in workers), workers[0].log
