"""The guide to distributed input: datasets, iterators, element specs, generators, values from functions."""

import numpy as np
import tensorflow as tf
from _facts import error, show, text

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])


def local(value):
    """Values of the replicas, on the host."""
    return [np.asarray(part) for part in strategy.experimental_local_results(value)]


def rows(count):
    return tf.data.Dataset.range(count).map(lambda i: tf.cast(i, tf.float32)[tf.newaxis])


global_batch_size = 16
dataset = tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(40).batch(global_batch_size)
dist_dataset = strategy.experimental_distribute_dataset(dataset)


@tf.function
def train_step(inputs):
    features, labels = inputs
    return labels - 0.3 * features


for batch in dist_dataset:
    sizes = [[part.shape[0] for part in local(component)] for component in batch]
    show("rows", sizes)
    results = strategy.run(train_step, args=(batch,))
    show("sum", strategy.reduce("SUM", results, axis=0))

dataset = rows(6).batch(4)
show("rebatched", [local(batch) for batch in strategy.experimental_distribute_dataset(dataset)])
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
dataset = rows(16).batch(8).with_options(options)
show("policy", dataset.options().experimental_distribute.auto_shard_policy.name)
show("sharded by data", [local(batch) for batch in strategy.experimental_distribute_dataset(dataset)])
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
show("not sharded", [local(b) for b in strategy.experimental_distribute_dataset(dataset.with_options(options))])


def dataset_fn(input_context):
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    show("context", [input_context.num_input_pipelines, input_context.input_pipeline_id, batch_size])
    dataset = rows(40).shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(batch_size).prefetch(2)


by_function = strategy.distribute_datasets_from_function(dataset_fn)
for batch in by_function:
    show("by a function", local(batch))
error("does not divide", lambda: tf.distribute.InputContext(1, 0, 3).get_per_replica_batch_size(16))

for epoch in range(2):
    dist_iterator = iter(by_function)
    for step in range(2):
        show(f"epoch {epoch}, step {step}", strategy.reduce("SUM", next(dist_iterator), axis=0))

steps_per_loop, seen = 5, []
dist_iterator = iter(strategy.experimental_distribute_dataset(rows(20).batch(8)))


@tf.function
def train_fn(iterator):
    for _ in tf.range(steps_per_loop):
        optional_data = iterator.get_next_as_optional()
        if not optional_data.has_value():
            break
        results = strategy.run(lambda x: tf.reduce_sum(x), args=(optional_data.get_value(),))
        total.assign_add(strategy.reduce("SUM", results, axis=None))


total = tf.Variable(0.0)
train_fn(dist_iterator)
show("until there is no data", total)
dist_iterator = iter(strategy.experimental_distribute_dataset(rows(20).batch(8)))
while True:
    optional_data = dist_iterator.get_next_as_optional()
    if not optional_data.has_value():
        break
    seen.append(strategy.reduce("SUM", optional_data.get_value(), axis=0))
show("outside of a function", seen)
error("no value", lambda: optional_data.get_value())
error("at the end", lambda: next(dist_iterator))
error("get_next at the end", lambda: dist_iterator.get_next())


@tf.function
def in_function(dataset):
    total = tf.zeros([1])
    for batch in dataset:
        total += strategy.reduce("SUM", batch, axis=0)
    return total


show("a loop in a function", in_function(strategy.experimental_distribute_dataset(rows(20).batch(8))))

dist_dataset = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(100).batch(global_batch_size)
)


@tf.function(input_signature=[dist_dataset.element_spec])
def with_signature(per_replica_inputs):
    def step_fn(inputs):
        return 2 * inputs[0] + inputs[1]

    return strategy.run(step_fn, args=(per_replica_inputs,))


for _ in range(2):
    iterator = iter(dist_dataset)
    for _ in range(7):
        output = with_signature(next(iterator))
    show("last batch", [part.shape[0] for part in local(output)])
show("traces", with_signature.experimental_get_tracing_count() <= 2)
print("spec:", dist_dataset.element_spec)
fixed = rows(16).batch(8, drop_remainder=True)
print("of known size:", strategy.experimental_distribute_dataset(fixed).element_spec)
print("made per replica:", strategy.distribute_datasets_from_function(lambda _: fixed).element_spec)
concrete = with_signature.get_concrete_function()
show("concrete", strategy.reduce("SUM", concrete(next(iter(dist_dataset))), axis=0))
error("another structure", lambda: with_signature(tf.ones([4, 1])))


@tf.function
def next_of(iterator):
    return strategy.reduce("SUM", next(iterator), axis=0)


iterator = iter(strategy.experimental_distribute_dataset(fixed))
show("next in a function", [next_of(iterator), next_of(iterator)])
error("at the end, in a function", lambda: next_of(iterator))

preprocess = tf.keras.layers.Rescaling(1 / 2)
scaled = strategy.experimental_distribute_dataset(rows(8).batch(8).map(preprocess))
show("a layer in the pipeline", local(next(iter(scaled))))

values = strategy.experimental_distribute_values_from_function(lambda context: context.replica_id_in_sync_group)
show("values", [int(part) for part in strategy.experimental_local_results(values)])
counts = strategy.experimental_distribute_values_from_function(
    lambda context: tf.constant(context.num_replicas_in_sync)
)
show("counts", strategy.reduce("SUM", counts, axis=None))
arrays = strategy.experimental_distribute_values_from_function(
    lambda context: {"x": np.full([2], context.replica_id_in_sync_group, np.float32)}
)
show("arrays into run", local(strategy.run(lambda values: values["x"] * 2, args=(arrays,))))


def input_gen():
    i = 0
    while True:
        yield np.arange(4, dtype=np.float32) + i
        i += 4


generated = tf.data.Dataset.from_generator(input_gen, output_types=(tf.float32), output_shapes=tf.TensorShape([4]))
iterator = iter(strategy.experimental_distribute_dataset(generated))
for _ in range(3):
    show("generated", local(strategy.run(lambda x: x, args=(next(iterator),))))

dataset_size, batch_size = 24, 6
enumerated = tf.data.Dataset.range(dataset_size).enumerate().batch(batch_size)


def predict(index, inputs):
    return index, 2 * inputs


result = {}
for index, inputs in strategy.experimental_distribute_dataset(enumerated):
    output_index, outputs = strategy.run(predict, args=(index, inputs))
    indices = [i for part in strategy.experimental_local_results(output_index) for i in part.numpy().tolist()]
    numbers = [o for part in strategy.experimental_local_results(outputs) for o in part.numpy().tolist()]
    result.update(zip(indices, numbers))
show("in order", [result[i] for i in range(dataset_size)])
show("one replica's part is", text(output_index.values[0]))

for per_replica in (tf.distribute.InputReplicationMode.PER_WORKER,):
    input_options = tf.distribute.InputOptions(
        experimental_fetch_to_device=True,
        experimental_replication_mode=per_replica,
        experimental_place_dataset_on_device=False,
    )
    placed = strategy.experimental_distribute_dataset(rows(8).batch(8), input_options)
    show("with options", local(next(iter(placed))))
one = tf.distribute.OneDeviceStrategy("/cpu:0")
show("one device", [batch for batch in one.experimental_distribute_dataset(rows(4).batch(2))])
show("default strategy", [b for b in tf.distribute.get_strategy().experimental_distribute_dataset(rows(4).batch(2))])
