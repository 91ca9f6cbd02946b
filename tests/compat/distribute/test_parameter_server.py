"""`ParameterServerStrategy` and its coordinator, with servers and workers in this process."""

import itertools
import json
import re
import threading
import time

import jax
import keras
import numpy as np
import pytest
from digits import DigitsTraining

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._program import BEFORE_RUN
from tfdist_jax.compat.tensorflow.distribute import _parameter_jobs
from tfdist_jax.compat.tensorflow.distribute._cluster_coordinator import ClosureInputError

LIMIT_S = 60
Simple = tf.distribute.cluster_resolver.SimpleClusterResolver


def test_plain_python_around_a_value_changes_variables_as_well(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        v = tf.Variable(0.0)

    @tf.function
    def step(iterator):
        x = next(iterator)
        for _ in range(3):
            v.assign_add(x)
        return float(x)

    iterator = iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(2.0).repeat()))
    results = [coordinator.schedule(step, args=(iterator,)) for _ in range(20)]
    coordinator.join()
    assert float(v) == 120 and [result.fetch() for result in results] == [2.0] * 20


@pytest.mark.parametrize("is_compiled", [True, False])
def test_metrics_count_all_that_workers_give_them(coordinate, is_compiled):
    strategy, coordinator = coordinate(workers=4)
    with strategy.scope():
        metrics = [keras.metrics.Mean(), keras.metrics.Sum(), keras.metrics.AUC(num_thresholds=5)]

    def update(x):
        for metric in metrics:
            metric.update_state(*([x > 3, x / 8] if isinstance(metric, keras.metrics.AUC) else [x]))

    @tf.function
    def step(iterator):
        if is_compiled:
            strategy.run(update, args=(next(iterator),))
        else:
            update(iterator.get_next_as_optional().get_value())  # With it the function runs as Python.

    data = tf.data.Dataset.from_tensors(np.arange(8, dtype="f4")).repeat()
    iterator = iter(coordinator.create_per_worker_dataset(data))
    for _ in range(100):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    mean, total, auc = metrics
    assert (float(mean.total), float(mean.count), float(total.total)) == (2800, 800, 2800)
    assert float(auc.true_positives[0] + auc.false_positives[0]) == 800
    mean.reset_state()
    assert float(mean.result()) == 0 and (coordinator.statistics.pushed_bytes > 0) == is_compiled


def test_workers_take_elements_of_their_own_iterators_for_one_program(coordinate):
    strategy, coordinator = coordinate(workers=3)
    with strategy.scope():
        v = tf.Variable(0, dtype=tf.int64)
    runs = []

    @tf.function
    def step(iterator):
        runs.append(1)
        v.assign_add(next(iterator))
        return iterator.get_next()

    made = coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(1000))
    iterator = iter(made)
    results = [coordinator.schedule(step, args=(iterator,)) for _ in range(60)]
    coordinator.join()
    second = [int(result.fetch()) for result in results]
    each = [second.count(n) for n in range(1, max(second) + 1, 2)]  # How many workers have come so far.
    assert len(runs) == 1 and set(second) == set(range(1, max(second) + 1, 2))
    assert each == sorted(each, reverse=True) and each[0] <= 3 and sum(each) == 60
    assert int(v) == sum(second) - 60


def test_rate_that_the_host_looks_up_is_the_one_of_the_run(coordinate):
    strategy, coordinator = coordinate(workers=1)
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0)

    class Looked(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return table.lookup(tf.constant("rate"))

    with strategy.scope():
        v = tf.Variable(0.0)
        optimizer = keras.optimizers.SGD(Looked())
        optimizer.build([v])

    @tf.function
    def step():
        optimizer.apply_gradients([(tf.constant(-1.0), v)])

    for rate in (1.0, 10.0):
        table.insert(tf.constant("rate"), tf.constant(rate))
        coordinator.schedule(step)
        coordinator.join()
    assert float(v) == 11


def test_worker_at_the_end_of_its_data_says_so_and_goes_on_with_other_data(coordinate):
    strategy, coordinator = coordinate(workers=1)
    with strategy.scope():
        v = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def step(iterator):
        v.assign_add(next(iterator))

    iterator = iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(4)))
    for _ in range(5):
        coordinator.schedule(step, args=(iterator,))
    with pytest.raises(tf.errors.OutOfRangeError):
        coordinator.join()
    coordinator.schedule(step, args=(iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(4))),))
    coordinator.join()
    assert int(v) == 6


def test_a_value_that_was_assigned_is_what_the_next_change_begins_with(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        v = tf.Variable(3.0)

    @tf.function
    def step():
        before = v.read_value()
        v.assign(before * 2.0)
        v.assign_add(1.0)
        middle = v.read_value()
        v.assign_add(10.0)
        return before, middle, v.read_value()

    assert [float(x) for x in coordinator.schedule(step).fetch()] == [3, 7, 17] and float(v) == 17
    assert coordinator.statistics.staleness == {0: 2}


def test_numbers_that_are_none_do_not_reach_the_servers(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        v = tf.Variable(1.0)

    @tf.function
    def step(x):
        v.assign_add(x / x)

    tf.debugging.enable_check_numerics()
    try:
        coordinator.schedule(step, args=(tf.constant(1.0),)).fetch()
        coordinator.schedule(step, args=(tf.constant(0.0),))
        with pytest.raises(tf.errors.InvalidArgumentError):
            coordinator.join()
    finally:
        tf.debugging.disable_check_numerics()
    assert float(v) == 2


OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "Adam, clipped": lambda: keras.optimizers.Adam(0.05, global_clipnorm=0.5),
    "EMA": lambda: keras.optimizers.RMSprop(0.01, use_ema=True, ema_momentum=0.5),
    "accumulating": lambda: keras.optimizers.Adam(0.05, gradient_accumulation_steps=2),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
}


def train(strategy, run, optimizer, count=12):
    random = np.random.RandomState(0)
    with strategy.scope():
        weights = [keras.Variable(random.randn(4, 3).astype("f4")), keras.Variable(np.zeros(3, "f4"))]
        optimizer = optimizer()

    @tf.function
    def step(x):
        def replica(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.tanh(x @ weights[0] + weights[1]) - 0.5) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return loss

        return strategy.run(replica, args=(x,))

    batches = [random.randn(5, 4).astype("f4") for _ in range(count)]
    losses = run(step, batches)
    return losses, [np.asarray(v) for v in [*weights, *optimizer.variables]]


def test_the_coordinator_trains_variables_of_either_kind(coordinate):
    with coordinate()[0].scope():
        variables = [tf.Variable([1.0, 2.0]), keras.Variable([1.0, 2.0])]
        keras.optimizers.SGD(0.5).apply_gradients([(tf.constant([1.0, 2.0]), v) for v in variables])
    assert [v.numpy().tolist() for v in variables] == [[0.5, 1.0]] * 2


def test_what_a_function_has_read_of_a_metric_concerns_no_later_one(coordinate):
    strategy, coordinator = coordinate(workers=1)
    with strategy.scope():
        metric = keras.metrics.Mean()

    @tf.function
    def read():
        return float(metric.result())

    @tf.function
    def reset():
        float(tf.constant(1.0))  # So it runs as Python.
        metric.reset_state()

    metric.update_state([2.0])
    assert coordinator.schedule(read).fetch() == 2
    metric.update_state([10.0])
    coordinator.schedule(reset).fetch()
    assert (float(metric.total), float(metric.count)) == (0, 0)


def test_per_worker_datasets_give_the_same_each_time_without_staleness(coordinate):
    def run():
        _, coordinator = coordinate(workers=3, max_staleness=0)
        iterator = iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(100)))
        results = [coordinator.schedule(tf.function(next), args=(iterator,)) for _ in range(7)]
        return [int(result.fetch()) for result in results]

    assert run() == run() == [0, 0, 0, 1, 1, 1, 2]


@pytest.mark.parametrize(
    "options", [{"max_staleness": -1}, {"max_staleness": True}, {"report_every_s": "x"}, {"report_every_s": 0}]
)
def test_options_are_checked_when_the_strategy_is_made(options):
    with pytest.raises(ValueError, match="is a number of"):
        tf.distribute.ParameterServerStrategy(**options)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("engine", ["threads", "messages"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_without_staleness_training_is_synchronous_bit_for_bit(coordinate, optimizer):
    def train_on(workers, **options):
        strategy, coordinator = coordinate(workers=workers, **options)

        def schedule(step, batches):
            remote = [coordinator.schedule(step, args=(tf.constant(x),)) for x in batches]
            coordinator.join()
            assert set(coordinator.statistics.staleness) == {0}
            return [float(value.fetch()) for value in remote]

        return train(strategy, schedule, optimizer)

    losses, weights = train_on(3, max_staleness=0)
    one_after_another, expected_weights = train_on(1)
    assert losses == one_after_another
    one = lambda step, batches: [float(step(tf.constant(x))) for x in batches]
    expected, same_weights = train(tf.distribute.OneDeviceStrategy("/cpu:0"), one, optimizer)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    for found, exact, near in zip(weights, expected_weights, same_weights, strict=True):
        np.testing.assert_array_equal(found, exact)
        np.testing.assert_allclose(found, near, rtol=1e-5, atol=1e-6)


def test_what_happens_is_logged_now_and_then(coordinate, caplog):
    caplog.set_level("INFO", "tfdist_jax")
    strategy, coordinator = coordinate(report_every_s=0.01)
    with strategy.scope():
        total = tf.Variable(0.0)
    for _ in range(3):
        coordinator.schedule(tf.function(lambda: total.assign_add(1.0)))
    coordinator.join()
    end = time.monotonic() + LIMIT_S
    while "3 closures in" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert re.search(r"3 closures in .* a second; .*2 workers; pulled .*, pushed .*; staleness ", caplog.text)


@pytest.mark.parametrize("engine", ["threads", "messages"])
def test_functions_use_what_each_worker_has(coordinate, engine):
    _, coordinator = coordinate()

    def make_table():
        keys, values = tf.constant([1, 2], tf.int64), tf.constant([10.0, 20.0])
        return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1.0)

    table = coordinator.create_per_worker_resource(make_table)
    look_up = tf.function(lambda table, key: table.lookup(key))
    found = [coordinator.schedule(look_up, args=(table, tf.constant(key, tf.int64))) for key in (1, 2, 3) * 4]
    coordinator.join()
    assert [float(value.fetch()) for value in found] == [10.0, 20.0, -1.0] * 4


def test_digits_are_learned_asynchronously(coordinate):
    strategy, coordinator = coordinate(workers=4)
    digits = DigitsTraining(strategy, 2e-3)

    @tf.function
    def step(iterator):
        strategy.run(digits.train, args=next(iterator))

    iterator = digits.make_iterators(coordinator, 32)
    for _ in range(650):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    assert digits.evaluate(coordinator) >= 0.95
    told = coordinator.statistics
    # Each row is counted once, whichever workers count at the same time.
    assert int(digits.accuracy.count) == 297
    assert int(digits.optimizer.iterations) == 650
    assert told.closures == 659 and max(told.staleness) > 0 and "staleness" in str(told)
    # A step reads and sends the model's parameters, and a few numbers.
    parameters = sum(v.numpy().nbytes for v in digits.model.trainable_variables)
    assert 650 * parameters <= told.pushed_bytes <= 660 * (parameters + 4000)


def test_workers_compute_on_devices_of_their_own(coordinate):
    strategy, coordinator = coordinate(workers=3)
    with strategy.scope():
        v = tf.Variable(1.0)
    where = [worker.device for worker in strategy.workers]
    assert where == jax.devices()[:3]
    meeting = threading.Barrier(3, timeout=LIMIT_S)

    @tf.function
    def step(x):
        tf.numpy_function(meeting.wait, [], tf.int64)
        return x * v

    remote = [coordinator.schedule(step, args=(tf.constant(2.0),)) for _ in range(3)]
    assert {next(iter(value.get().devices())) for value in remote} == {*where}
    assert v.device == "/job:ps/replica:0/task:0/device:CPU:0"


def test_statistics_are_written_for_tensorboard(coordinate, tmp_path):
    strategy, coordinator = coordinate()
    with strategy.scope():
        v = tf.Variable(tf.zeros([256]))
    for _ in range(4):
        coordinator.schedule(tf.function(lambda: v.assign_add(v + 1.0)))
    coordinator.join()
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        coordinator.write_statistics(step=7)
    writer.close()
    (file,) = tmp_path.iterdir()
    text = file.read_bytes()
    for name in (*coordinator.statistics.scalars, "staleness"):
        assert b"parameter_server/" + name.encode() in text
    assert coordinator.statistics.pulled_bytes == 4 * 1024 == coordinator.statistics.pushed_bytes


@pytest.mark.parametrize("clipped", [False, True])
def test_what_is_told_of_a_step_before_it_runs_is_what_is_counted_then(coordinate, clipped):
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    strategy, coordinator = coordinate(partitioner=partitioner, max_staleness=3)
    with strategy.scope():
        table, scale = tf.Variable(tf.ones((100, 8)), name="table"), tf.Variable(tf.ones((8, 1)), name="scale")
        optimizer = keras.optimizers.SGD(0.1, global_clipnorm=1.0 if clipped else None)
    variables = [*table.variables, *scale.variables]
    optimizer.build(variables)

    @tf.function
    def look(ids):
        return tf.nn.embedding_lookup(table, ids)

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) @ tf.convert_to_tensor(scale))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    told = []
    before = BEFORE_RUN.set(lambda step, mesh, args: told.append(step))
    try:
        coordinator.schedule(look, args=(tf.range(4),)).fetch()  # It changes nothing.
        so_far = coordinator.statistics
        for _ in range(2):
            coordinator.schedule(step, args=(tf.range(4),)).fetch()
    finally:
        BEFORE_RUN.reset(before)
    (explanation,) = told
    counted = coordinator.statistics
    assert 2 * sum(explanation.pulled.values()) == counted.pulled_bytes - so_far.pulled_bytes
    sent = counted.pushed_bytes - so_far.pushed_bytes
    # What is clipped by the norm of all gradients is needed on both servers, and counted once.
    assert 2 * sum(explanation.pushed.values()) == sent or (clipped and 2 * max(explanation.pushed.values()) == sent)
    assert list(explanation.pulled) == list(strategy.parameter_devices) and (explanation.name, explanation.workers) == (
        "step",
        2,
    )
    assert [name for name, *_ in explanation.rows] == ["table/part_0", "table/part_1"]
    assert "at most 3 other(s) end" in str(explanation)


def test_what_a_step_that_the_coordinator_runs_itself_reads_and_sends_is_told(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        v = tf.Variable(tf.zeros(256))

    @tf.function
    def step():
        v.assign_add(tf.ones(256))

    told = []
    before = BEFORE_RUN.set(lambda step, mesh, args: told.append(step))
    try:
        step()
        coordinator.schedule(step).fetch()
    finally:
        BEFORE_RUN.reset(before)
    alone, scheduled = told
    assert (alone.workers, scheduled.workers) == (None, 2)
    assert "step, by the coordinator with variables on 1 server(s)" in str(alone)
    assert "The coordinator runs this step itself." in str(alone) and alone.pushed == scheduled.pushed
    kept = coordinator._native.make_on_each(BEFORE_RUN.get)
    assert [value.result() for value in kept] == [None, None]  # Workers' threads forget who has asked.


def test_inputs_that_could_not_be_made_fail_what_uses_them(coordinate):
    _, coordinator = coordinate()

    def broken():
        raise ValueError("no such file")

    iterator = iter(coordinator.create_per_worker_dataset(broken))
    failed = coordinator.schedule(tf.function(next), args=(iterator,))
    with pytest.raises(Exception, match=r"Input has an error.*no such file"):
        coordinator.join()
    with pytest.raises(Exception, match=r"Input has an error.*no such file"):
        failed.fetch()
    coordinator.join()


def test_a_function_that_waits_for_itself_is_refused(coordinate):
    _, coordinator = coordinate(workers=1)
    own, is_known = [], threading.Event()

    @tf.function
    def step(iterator):
        next(iterator)
        assert is_known.wait(LIMIT_S)
        own[0].fetch()

    iterator = iter(coordinator.create_per_worker_dataset(tf.data.Dataset.range(9)))
    own.append(coordinator.schedule(step, args=(iterator,)))
    is_known.set()
    with pytest.raises(RuntimeError, match="would wait for itself"):
        coordinator.join()


def test_a_conditional_that_changes_variables_runs_uncompiled(coordinate, caplog):
    strategy, coordinator = coordinate()
    with strategy.scope():
        v = tf.Variable(0.0)

    @tf.function
    def step(x):
        if x > 1.0:
            v.assign_add(x)
        for _ in tf.range(2):
            v.assign_add(1.0)

    for i in range(20):
        coordinator.schedule(step, args=(tf.constant(float(i % 4)),))
    coordinator.join()
    assert float(v) == 5 * (2 + 3) + 40
    assert "step runs" in caplog.text and "changes variables on servers in a conditional or a loop" in caplog.text


def test_each_step_of_a_loop_is_compiled(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        v = tf.Variable(0.0)
    traces = itertools.count()

    def step(x):
        next(traces)
        v.assign_add(x)

    @tf.function
    def steps(iterator):
        for _ in tf.range(3):
            strategy.run(step, args=(next(iterator),))

    iterator = iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(1.0).repeat()))
    for _ in range(4):
        coordinator.schedule(steps, args=(iterator,))
    coordinator.join()
    assert float(v) == 12 and next(traces) == 1


def test_one_worker_and_no_cluster(monkeypatch, caplog):
    strategy = tf.distribute.experimental.ParameterServerStrategy()
    assert len(strategy.workers) >= 2 and len(strategy.parameter_devices) == 1
    monkeypatch.setenv(
        "TF_CONFIG",
        '{"cluster": {"worker": ["localhost:1"], "ps": ["localhost:2", "127.0.0.1:3"]}, "task": {"type": "worker", "index": 0}}',
    )
    strategy = tf.distribute.experimental.ParameterServerStrategy()
    assert (len(strategy.workers), len(strategy.parameter_devices)) == (1, 2)
    assert "task worker 0" in caplog.text and "each trains for itself" in caplog.text


@pytest.mark.parametrize(
    ("jobs", "error", "text"),
    [
        ({"worker": ["localhost:1"]}, ValueError, "at least one ps"),
        ({"ps": ["localhost:1"]}, ValueError, "at least one worker"),
        ({}, ValueError, "must be non-empty"),
        (
            {"worker": ["localhost:1"], "ps": ["localhost:2"], "boss": ["localhost:3"]},
            ValueError,
            "Disallowed task type 'boss'",
        ),
        (
            {"worker": ["localhost:1"], "ps": ["localhost:2"], "chief": ["localhost:3", "localhost:4"]},
            ValueError,
            "at most one 'chief'",
        ),
        ({"ps": ["localhost:1"], "worker": ["worker0.example.com:1"]}, ValueError, "in several processes"),
    ],
)
def test_clusters_that_cannot_be_are_refused(jobs, error, text):
    with pytest.raises(error, match=text):
        tf.distribute.ParameterServerStrategy(Simple(tf.train.ClusterSpec(jobs)))


@pytest.mark.parametrize(
    ("task", "text"),
    [
        (("boss", 0), "Unrecognized task_type 'boss'"),
        (("chief", 0), "`task_type` 'chief' is not in the cluster spec"),
        (("worker", 1), "`task_id` 1 exceeds the maximum id of 'worker', 0"),
    ],
)
def test_tasks_that_cannot_be_are_refused(task, text):
    spec = tf.train.ClusterSpec({"worker": ["localhost:1"], "ps": ["localhost:2"]})
    with pytest.raises(ValueError, match=text):
        tf.distribute.ParameterServerStrategy(Simple(spec, task_type=task[0], task_id=task[1]))


@pytest.mark.parametrize(
    ("job", "remedy"), [("worker", "join"), ("ps", r"Server\(...\).join\(\)"), ("evaluator", "SidecarEvaluator")]
)
def test_other_tasks_than_the_coordinator_are_told_or_refused(job, remedy, caplog, monkeypatch):
    spec = tf.train.ClusterSpec({"worker": ["localhost:1"], "ps": ["localhost:2"]})
    resolver = Simple(spec, task_type=job, task_id=0)
    tf.distribute.ParameterServerStrategy(resolver)
    (told,) = [record.getMessage() for record in caplog.records if f"is the task {job} 0" in record.getMessage()]
    assert "it is the coordinator" in told and re.search(remedy, told)
    monkeypatch.setenv("TFDIST_PARAMETER_SERVERS", "processes")
    with pytest.raises(RuntimeError, match=f"is the task {job} 0 .*which only the chief may.*{remedy}"):
        tf.distribute.ParameterServerStrategy(resolver)


@pytest.mark.parametrize("job", ["worker", "ps"])
def test_tasks_of_the_launcher_serve_though_the_program_does_not_ask_which_it_is(job, caplog, monkeypatch):
    served = []

    def serve(jobs, task, index):
        served.append((jobs["ps"], jobs["worker"], task, index))
        raise SystemExit(0)

    monkeypatch.setattr(_parameter_jobs, "serve", serve)
    monkeypatch.setenv("TFDIST_PARAMETER_SERVERS", "processes")
    cluster = {"chief": ["localhost:3"], "worker": ["localhost:1"], "ps": ["localhost:2"]}
    monkeypatch.setenv("TFDIST_JAX_CLUSTER", json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}}))
    with pytest.raises(SystemExit):
        tf.distribute.ParameterServerStrategy()
    assert served == [(["localhost:2"], ["localhost:1"], job, 0)]
    assert "it serves from here on" in caplog.text


@pytest.mark.parametrize("name", ["MirroredStrategy", "experimental.CentralStorageStrategy"])
@pytest.mark.parametrize(
    ("jobs", "task", "times"),
    [(["worker", "ps"], "worker", 1), (["worker"], "worker", 0), (["worker", "ps", "evaluator"], "evaluator", 0)],
)
def test_strategies_of_one_process_tell_that_they_use_no_servers(name, jobs, task, times, caplog, monkeypatch):
    config = {"cluster": {job: ["localhost:1"] for job in jobs}, "task": {"type": task, "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    kind = tf.distribute
    for part in name.split("."):
        kind = getattr(kind, part)
    kind(["/cpu:0"])
    told = [record.getMessage() for record in caplog.records if "has parameter servers" in record.getMessage()]
    assert len(told) == times and all(f"`{kind.__name__}` uses" in text for text in told)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"args": 5}, r"`args` must be a list or tuple .* got 5. Write `args=\(x,\)`"),
        ({"args": tf.constant(1.0)}, "`args` must be a list or tuple"),
        ({"kwargs": [1]}, r"`kwargs` must be a dictionary .* got \[1\]"),
    ],
)
def test_arguments_must_be_given_in_a_tuple_and_a_dictionary(coordinate, given, text):
    _, coordinator = coordinate()
    with pytest.raises(TypeError, match=text):
        coordinator.schedule(tf.function(lambda x: x), **given)
    coordinator.join()


def test_what_makes_a_workers_dataset_takes_nothing(coordinate):
    _, coordinator = coordinate()
    for function in (lambda context: tf.data.Dataset.range(3), tf.function(lambda context: tf.data.Dataset.range(3))):
        with pytest.raises(
            TypeError, match=r"missing a required argument: 'context'.*distribute_datasets_from_function"
        ):
            coordinator.create_per_worker_dataset(function)


@pytest.mark.parametrize("made", [3, None, [tf.constant(1.0)]])
def test_what_makes_a_workers_dataset_must_return_one(coordinate, made):
    _, coordinator = coordinate()
    iterator = iter(coordinator.create_per_worker_dataset(lambda: made))
    coordinator.schedule(tf.function(next), args=(iterator,))
    with pytest.raises(ClosureInputError, match=r"must return a `tf.data.Dataset`"):
        coordinator.join()


def test_other_strategies_have_no_coordinator():
    with pytest.raises(ValueError, match="is supported to work with"):
        tf.distribute.coordinator.ClusterCoordinator(tf.distribute.MirroredStrategy(["/cpu:0"]))
