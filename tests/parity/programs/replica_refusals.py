"""What replicas cannot do, what is refused around them, and older names of a strategy's methods."""

import sys

import tensorflow as tf
from _facts import error, show

strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
one = tf.distribute.OneDeviceStrategy("/cpu:0")
dataset = tf.data.Dataset.range(8).batch(2)
iterator = iter(strategy.experimental_distribute_dataset(dataset))
error("next in replicas", lambda: strategy.run(lambda it: next(it), args=(iterator,)))
error("get_next in replicas", lambda: strategy.run(lambda it: it.get_next(), args=(iterator,)))
error("in a function", tf.function(lambda: strategy.run(lambda it: next(it), args=(iterator,))))
error("in one replica", lambda: one.run(next, args=(iter(one.experimental_distribute_dataset(dataset)),)))
show("goes on", strategy.experimental_local_results(next(iterator)))

number = strategy.run(lambda: tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32))
rows = strategy.experimental_distribute_values_from_function(lambda c: tf.constant([1, c.replica_id_in_sync_group]))
with strategy.scope():
    v = tf.Variable(1.0)
tf.print("a number", number, output_stream=sys.stdout)
tf.print("in a structure", {"a": number}, [number], output_stream=sys.stdout)
tf.print("rows", rows, rows, v, [v], output_stream=sys.stdout)

slices = tf.IndexedSlices(tf.constant([[1.0, 2.0]]), tf.constant([1]), dense_shape=tf.constant([3, 2]))
gather = lambda x: tf.distribute.get_replica_context().all_gather(x, axis=0)
error("gather of slices", lambda: strategy.gather(strategy.run(lambda: slices), axis=0))
error("all_gather of slices", lambda: strategy.run(gather, args=(slices,)))
error("all_gather of nested slices", lambda: strategy.run(gather, args=([slices],)))
columns = strategy.experimental_distribute_values_from_function(lambda c: tf.ones([1, c.replica_id_in_sync_group + 1]))
error("gather of other columns", lambda: strategy.gather(columns, axis=0))

show("unwrap", [strategy.unwrap(number), one.unwrap(tf.constant(1)), strategy.unwrap({"a": number})])
older = strategy.make_input_fn_iterator(lambda context: tf.data.Dataset.range(4).batch(1))
show("older iterator", [strategy.unwrap(older.get_next()), strategy.unwrap(older.get_next())])
error("its end", older.get_next)
older.initialize()
show("begun again", strategy.unwrap(older.get_next()))

Options, Mode = tf.distribute.InputOptions, tf.distribute.InputReplicationMode
for label, options in {
    "per replica": Options(experimental_replication_mode=Mode.PER_REPLICA),
    "placed": Options(experimental_place_dataset_on_device=True),
    "placed and sent": Options(
        experimental_fetch_to_device=True,
        experimental_place_dataset_on_device=True,
        experimental_replication_mode=Mode.PER_REPLICA,
    ),
    "placed per replica": Options(
        experimental_fetch_to_device=False,
        experimental_place_dataset_on_device=True,
        experimental_replication_mode=Mode.PER_REPLICA,
    ),
}.items():
    error(f"dataset {label}", lambda o=options: strategy.experimental_distribute_dataset(dataset, o) and None)
    from_function = lambda o=options: strategy.distribute_datasets_from_function(lambda c: dataset, o) and None
    error(f"from a function {label}", from_function)
