"""Distributed datasets and iterators: structures, specs, ends of data."""

import tensorflow as tf
from _facts import error, show

strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
local = lambda value: list(strategy.experimental_local_results(value))
dataset = tf.data.Dataset.from_tensor_slices({"x": tf.range(6), "y": (tf.range(6.0), tf.ones([6, 2]))}).batch(4)
distributed = strategy.experimental_distribute_dataset(dataset)
show("batches", [[local(b["x"]), [tuple(v.shape) for v in local(b["y"][1])]] for b in distributed])
show("again", len(list(distributed)))
iterator = iter(distributed)
show("get_next", local(iterator.get_next()["y"][0]))
show("next", local(next(iterator)["x"]))
error("get_next at the end", iterator.get_next)
error("next at the end", lambda: next(iterator))
iterator = iter(distributed)
found = []
for _ in range(3):
    optional = iterator.get_next_as_optional()
    has = optional.has_value()
    flags = [bool(v) for v in local(has)]
    found.append(flags)
    if all(flags):
        found.append(local(optional.get_value()["x"]))
show("optional", found)
plain = iter(tf.data.Dataset.range(1))
values = [plain.get_next_as_optional() for _ in range(2)]
show("optional of a plain iterator", [bool(v.has_value()) for v in values] + [int(values[0].get_value())])
error("no value", lambda: values[1].get_value())
made = tf.experimental.Optional.from_value(tf.constant(3.0))
show("made optional", [bool(made.has_value()), made.get_value()])
show("empty optional", bool(tf.experimental.Optional.empty(tf.TensorSpec([], tf.float32)).has_value()))


@tf.function
def consume(iterator):
    total, optional = tf.constant(0), iterator.get_next_as_optional()
    while optional.has_value():
        total += optional.get_value()
        optional = iterator.get_next_as_optional()
    return total


show("element_spec", str(iter(dataset).element_spec["x"]))
context = tf.distribute.InputContext(num_input_pipelines=2, input_pipeline_id=1, num_replicas_in_sync=4)
show(
    "input context",
    [
        context.num_input_pipelines,
        context.input_pipeline_id,
        context.num_replicas_in_sync,
        context.get_per_replica_batch_size(8),
    ],
)
error("does not divide", lambda: context.get_per_replica_batch_size(9))


def dataset_fn(context):
    size = context.get_per_replica_batch_size(4)
    return tf.data.Dataset.range(5).batch(size).shard(context.num_input_pipelines, context.input_pipeline_id)


per_replica = strategy.distribute_datasets_from_function(dataset_fn)
show("from a function", [[v.numpy().tolist() for v in local(b)] for b in per_replica])
options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
show("options", options.experimental_fetch_to_device)
host = strategy.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(4), options)
show("on the host", [[v.numpy().tolist() for v in local(b)] for b in host])
replicated = tf.distribute.InputOptions(
    experimental_fetch_to_device=True,
    experimental_replication_mode=tf.distribute.InputReplicationMode.PER_WORKER,
    experimental_per_replica_buffer_size=2,
)
show("mode", replicated.experimental_replication_mode.name)


def generator():
    for i in range(3):
        yield [i, i]


generated = tf.data.Dataset.from_generator(generator, output_signature=tf.TensorSpec([2], tf.int32)).batch(2)
show("generator", [[v.numpy().tolist() for v in local(b)] for b in strategy.experimental_distribute_dataset(generated)])
endless = iter(strategy.experimental_distribute_dataset(tf.data.Dataset.range(3).repeat().batch(2)))
show("endless", [[int(v[0]) for v in local(next(endless))] for _ in range(4)])
show(
    "sum over steps", strategy.reduce("SUM", strategy.run(lambda x: tf.reduce_sum(x), args=(next(endless),)), axis=None)
)
