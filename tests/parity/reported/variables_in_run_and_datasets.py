import numpy as np
import tensorflow as tf
from _show import show

cpus = tf.config.list_physical_devices("CPU")
try:
    tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 3)
except Exception as e:
    print(e)
s = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])


def model_fn():
    v = tf.Variable(1.0, name="foo")
    return v


show("run creates variable, not in scope", lambda: s.run(model_fn))
with s.scope():
    show("run creates variable, in scope", lambda: s.run(model_fn))
    show("run creates variable twice", lambda: s.run(model_fn))
    show("call_for_each_replica creates variable", lambda: s.extended.call_for_each_replica(model_fn))
d = tf.distribute.get_strategy()
show("default local_results(variable)", lambda: d.experimental_local_results(tf.Variable(1.0)))
with s.scope():
    v = tf.Variable(2.0, aggregation=tf.VariableAggregation.SUM)
show("mirrored local_results(variable)", lambda: s.experimental_local_results(v))
o = tf.distribute.OneDeviceStrategy("/cpu:0")
with o.scope():
    vo = tf.Variable(2.0)
show("onedevice local_results(variable)", lambda: o.experimental_local_results(vo))
show("Variable aggregation None", lambda: tf.Variable(1.0, aggregation=None))
ds = s.experimental_distribute_dataset(tf.data.Dataset.range(10).batch(2))
it = iter(ds)
show("next(iterator) in run", lambda: s.run(lambda it: next(it), args=(it,)))
show(
    "check_numerics in map",
    lambda: list(
        tf.data.Dataset.from_tensor_slices([1.0, np.nan, 2.0]).map(lambda x: tf.debugging.check_numerics(x, "m"))
    ),
)
show(
    "check_numerics in flat_map map",
    lambda: list(
        tf.data.Dataset.from_tensor_slices([1.0, np.nan, 2.0])
        .map(lambda x: tf.debugging.check_numerics(x, "m"))
        .flat_map(lambda x: tf.data.Dataset.from_tensors(x))
    ),
)
it2 = iter(tf.data.Dataset.from_tensor_slices([1.0, np.nan, 2.0]).map(lambda x: tf.debugging.check_numerics(x, "m")))
show("1", lambda: next(it2))
show("2", lambda: next(it2))
show("3", lambda: next(it2))
show(
    "sparse in dataset",
    lambda: next(iter(tf.data.Dataset.from_tensors(tf.sparse.SparseTensor([[0, 0]], [1.0], [2, 2])))),
)
show(
    "sparse from_tensor_slices",
    lambda: next(iter(tf.data.Dataset.from_tensor_slices(tf.sparse.SparseTensor([[0, 0]], [1.0], [2, 2])))),
)
show("None in dataset", lambda: next(iter(tf.data.Dataset.from_tensors((2, None)))))
show("type_spec_from_value(dataset)", lambda: tf.type_spec_from_value(tf.data.Dataset.range(2)))
show(
    "dataset of datasets",
    lambda: [list(x) for x in tf.data.Dataset.from_tensor_slices([tf.data.Dataset.range(2), tf.data.Dataset.range(3)])],
)
show(
    "cardinality bucket repeat",
    lambda: (
        tf.data.Dataset.range(3)
        .repeat()
        .bucket_by_sequence_length(
            element_length_func=lambda x: tf.cast(1, tf.int32), bucket_boundaries=[3], bucket_batch_sizes=[2, 2]
        )
        .cardinality()
    ),
)
show(
    "concatenate different structure",
    lambda: tf.data.Dataset.range(2).concatenate(tf.data.Dataset.range(2).map(lambda x: {"a": x})),
)
show("map_func not dataset", lambda: list(tf.data.Dataset.range(2).interleave(lambda x: x)))
show("iterator.save", lambda: iter(tf.data.Dataset.range(2)).save())
show("isinstance(shape, tuple)", lambda: isinstance(tf.zeros((2,)).shape, tuple))


@tf.function
def inner(x):
    return x + tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)


@tf.function
def outer(x):
    return s.run(inner, args=(x,))


show("function in run in function", lambda: outer(tf.constant(1.0)))
show("zero-d dataset range 0 step", lambda: list(tf.data.Dataset.range(1, 10, 0)))
show("as_numpy writeable", lambda: next(tf.data.Dataset.range(3).batch(2).as_numpy_iterator()).flags.writeable)
show("numpy of tensor writeable", lambda: tf.constant([1]).numpy().flags.writeable)
