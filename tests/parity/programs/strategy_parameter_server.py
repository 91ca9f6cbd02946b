import os
import sys

import tensorflow as tf
from _clusters import make_cluster
from _facts import error, show

Simple = tf.distribute.cluster_resolver.SimpleClusterResolver
Strategy = tf.distribute.ParameterServerStrategy
error("no servers", lambda: Strategy(Simple(tf.train.ClusterSpec({"worker": ["localhost:1"]}))))
error("no workers", lambda: Strategy(Simple(tf.train.ClusterSpec({"ps": ["localhost:1"]}))))
error("empty cluster", lambda: Strategy(Simple(tf.train.ClusterSpec({}))))
PAIR = {"worker": ["localhost:1"], "ps": ["localhost:2"]}
for label, more in (
    ("boss", {"boss": ["a:1"]}),
    ("two chiefs", {"chief": ["a:1", "b:1"]}),
    ("two evaluators", {"evaluator": ["a:1", "b:1"]}),
):
    error(label, lambda more=more: Strategy(Simple(tf.train.ClusterSpec({**PAIR, **more}))))
for task, index in (("boss", 0), ("chief", 0), ("worker", 1), ("ps", 3)):
    error(
        f"task {task} {index}",
        lambda task=task, index=index: Strategy(Simple(tf.train.ClusterSpec(PAIR), task_type=task, task_id=index)),
    )
error("no such task", lambda: tf.distribute.Server({"ps": ["localhost:1"]}, job_name="ps", task_index=3))
error("no such job", lambda: tf.distribute.Server({"ps": ["localhost:1"]}, job_name="worker", task_index=0))

strategy = Strategy(make_cluster(workers=2, servers=2))
Coordinator = tf.distribute.coordinator.ClusterCoordinator
coordinator = Coordinator(strategy)
show("the same one", coordinator is Coordinator(strategy) and coordinator.strategy is strategy)
show("experimental name", tf.distribute.experimental.coordinator.ClusterCoordinator is Coordinator)
show("replicas", strategy.num_replicas_in_sync)

with strategy.scope():
    variables = [tf.Variable([float(i), 1.0], name=f"v{i}") for i in range(5)]
    total = tf.Variable(0, dtype=tf.int64)
    read = tf.Variable(1.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM)
show("variables are on", [v.device for v in variables])
show("strategy of variables", strategy.extended.variable_created_in_scope(variables[0]))


@tf.function
def add(x):
    total.assign_add(x)


for i in range(20):
    coordinator.schedule(add, args=(tf.constant(i, tf.int64),))
coordinator.join()
show("sum", total)
show("done", coordinator.done())


@tf.function
def compute(x, factor=2.0):
    return {"twice": x * factor, "pair": (x, tf.reduce_sum(variables[1]))}


remote = coordinator.schedule(compute, args=(tf.constant([1.0, 2.0]),), kwargs={"factor": tf.constant(3.0)})
show("fetched", remote.fetch())
show("types fetched", [type(x).__name__ for x in tf.nest.flatten(remote.fetch())])
show("fetched by the coordinator", coordinator.fetch([remote, 5])[0]["twice"])
show("got", remote.get()["twice"])
show("is remote", isinstance(remote, tf.distribute.coordinator.RemoteValue))
error("no function", lambda: coordinator.schedule(lambda: 1))
error("no tuple of arguments", lambda: coordinator.schedule(add, args=5))
error("no dictionary of arguments", lambda: coordinator.schedule(add, kwargs=[1]))
error("remote value as argument", lambda: coordinator.schedule(compute, args=(remote,)))


@tf.function
def replica_step(x):
    return strategy.run(lambda y: y + 1.0, args=(x,))


show("run", coordinator.schedule(replica_step, args=(tf.constant(1.0),)).fetch())


@tf.function
def reduced(x):
    return strategy.reduce("SUM", strategy.run(lambda y: y * 2.0, args=(x,)), axis=None)


show("reduced", coordinator.schedule(reduced, args=(tf.constant([1.0, 3.0]),)).fetch())


@tf.function
def fail(x):
    tf.debugging.assert_less(x, 3.0)
    return x


def schedule_failing():
    for i in range(5):
        coordinator.schedule(fail, args=(tf.constant(float(i)),))
    coordinator.join()


error("failing", schedule_failing)
show("cleared", coordinator.done())
coordinator.join()
show("goes on", coordinator.schedule(fail, args=(tf.constant(2.0),)).fetch())
failed = coordinator.schedule(fail, args=(tf.constant(9.0),))
error("fetch of what failed", failed.fetch)
error("join after it", coordinator.join)


def dataset_fn():
    return tf.data.Dataset.range(3).map(lambda x: x * 10)


per_worker = coordinator.create_per_worker_dataset(dataset_fn)
show("element", per_worker.element_spec.dtype.name)
iterators = iter(per_worker)
show("per worker", isinstance(iterators, tf.distribute.coordinator.PerWorkerValue))
error("next of all", lambda: next(iterators))


@tf.function
def take(iterator):
    return next(iterator)


taken = [coordinator.schedule(take, args=(iterators,)) for _ in range(2)]
coordinator.join()
show("taken from one or two workers", sorted(int(x.fetch()) for x in taken) in ([0, 0], [0, 10]))


def exhaust():
    for _ in range(8):
        coordinator.schedule(take, args=(iterators,))
    coordinator.join()


error("exhausted", exhaust)


def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.from_tensors(
            (context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync)
        ).repeat()
    )


own = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
show("input context", [int(x) for x in coordinator.schedule(take, args=(own,)).fetch()])
given = iter(coordinator.create_per_worker_dataset(tf.data.Dataset.range(7).batch(4)))
show("of a dataset", coordinator.schedule(take, args=(given,)).fetch())
error("no dataset", lambda: coordinator.create_per_worker_dataset(3))
error("a list", lambda: coordinator.create_per_worker_dataset([1, 2]))
error("a function of a context", lambda: iter(coordinator.create_per_worker_dataset(lambda context: given)))


@tf.function
def which():
    return tf.distribute.coordinator.experimental_get_current_worker_index()


indices = {int(coordinator.schedule(which).fetch()) for _ in range(20)}
show("worker indices", indices <= {0, 1})
error("index outside", tf.distribute.coordinator.experimental_get_current_worker_index)

with strategy.scope():
    weights = tf.Variable([[1.0], [2.0]])
    losses = tf.Variable(0.0)


@tf.function
def train(x):
    def replica(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        losses.assign_add(loss)
        return loss

    return strategy.run(replica, args=(x,))


for i in range(4):
    show("loss", coordinator.schedule(train, args=(tf.constant([[1.0, float(i)]]),)).fetch())
show("weights", weights)
show("losses", losses)
show("read in the coordinator", read)
variables[0].assign([7.0, 8.0])
variables[0].assign_add([1.0, 1.0])
show("assigned in the coordinator", variables[0])

path = tf.train.Checkpoint(weights=weights, losses=losses).save("parameters")
weights.assign([[0.0], [0.0]])
tf.train.Checkpoint(weights=weights, losses=losses).restore(path).assert_consumed()
show("restored", weights)
show("restored on", weights.device)
sys.stdout.flush()
os._exit(0)  # TensorFlow's servers in this process would wait.
