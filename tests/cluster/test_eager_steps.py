"""Steps that look at values while they run, in replicas of several processes: what one process computes."""

import numpy as np

_STEPS = """
    import numpy as np, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    me, values = strategy.cluster_resolver.task_id, {}
    x = np.random.default_rng(0).normal(size=(22, 3)).astype("f4")
    with strategy.scope():
        weights = tf.Variable([[1.0], [2.0], [-1.0]])
        optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
        large = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
        steps = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
        own = tf.Variable(0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM)

    def step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((rows @ weights) ** 2) / 8.0
        # A value: no program can be made of it.
        large.assign_add(1.0 if float(loss) > 0.5 else 0.0)
        own.assign_add(loss)
        steps.assign_add(1)
        optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
        context = tf.distribute.get_replica_context()
        total = context.all_reduce("SUM", loss)
        numbers = context.all_gather(tf.reshape(context.replica_id_in_sync_group, [1]), 0)
        return {"loss": loss, "rows": rows[:, 0], "total": float(total), "numbers": numbers, "own": loss.numpy().item(), "n": len(rows)}

    losses = []
    for batch in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(x).batch(8)):
        out = strategy.run(step, args=(batch,))
        losses.append([float(strategy.reduce("SUM", out["loss"], axis=None)), out["total"],
                       float(strategy.reduce("SUM", out["own"], axis=None))])
        values["local"] = len(strategy.experimental_local_results(out["loss"]))
        gathered = strategy.gather(out["rows"], 0).numpy().tolist()
        numbers = strategy.experimental_local_results(out["numbers"])[0].numpy().tolist()
    values["sizes"] = [int(n) for n in strategy.experimental_local_results(out["n"])]
    values["out"] = [losses, gathered, numbers, weights.numpy().tolist(), float(large.numpy()), int(steps.numpy()),
                     float(own.read_value())]
    result("values", values)
"""


def test_steps_that_need_values_compute_what_one_process_does(cluster):
    (alone,) = cluster(1, devices_per_worker=4).start(_STEPS)
    first, second = cluster(2, devices_per_worker=2).start(_STEPS)
    codes = [worker.wait() for worker in (alone, first, second)]
    assert codes == [0, 0, 0], alone.log + first.log + second.log
    wanted, found = alone.result("values"), [worker.result("values") for worker in (first, second)]
    assert found[0]["out"] == found[1]["out"]
    for mine, theirs in zip(found[0]["out"], wanted["out"], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    assert [one["local"] for one in found] == [2, 2]
    assert [one["sizes"] for one in found] == [[2, 2], [2, 0]]
    assert wanted["sizes"] == [2, 2, 2, 0]
    assert "uncompiled" in first.log


def test_a_step_that_needs_values_in_one_process_only_runs_so_in_all(cluster):
    program = """
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    me = strategy.cluster_resolver.task_id
    def step():
        total = tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(2.0) + me)
        if me == 0:
            print("total", float(total))
        return total
    result("total", float(strategy.reduce("MEAN", strategy.run(step), axis=None)))
    def apart():
        context = tf.distribute.get_replica_context()
        value = float(context.all_reduce("SUM", tf.constant(1.0)))
        if me:
            raise ValueError("this one does not like it")
        return context.all_reduce("SUM", tf.constant(value))
    try:
        strategy.run(apart)
    except Exception as error:
        result("apart", f"{type(error).__name__}: {error}")
    def fewer():
        context = tf.distribute.get_replica_context()
        for _ in range(int(float(context.all_reduce("SUM", tf.constant(1.0)))) + me):
            context.all_reduce("SUM", tf.constant(1.0))
    try:
        strategy.run(fewer)
    except Exception as error:
        result("fewer", f"{type(error).__name__}: {error}")
    for name, parts in {"alike": [], "differ": [1, 2]}.items():
        try:
            strategy.run(lambda: parts if tf.distribute.get_replica_context().replica_id_in_sync_group.numpy() else [])
        except Exception as error:
            result(name, f"{type(error).__name__}: {error}")
    result("after", float(strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)))
    """
    workers = cluster(2).start(program)
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    assert [worker.result("total") for worker in workers] == [5.0, 5.0]
    assert "Process 1 has left the step with an error: ValueError: this one does not" in workers[0].result("apart")
    assert workers[1].result("apart") == "ValueError: this one does not like it"
    assert all("must make the same calls of all_reduce" in worker.result("fewer") for worker in workers)
    assert all("return different structures" in worker.result("differ") for worker in workers)
    assert [worker.result("after") for worker in workers] == [2.0, 2.0]
