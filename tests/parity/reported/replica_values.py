import tensorflow as tf
from _show import show

cpus = tf.config.list_physical_devices("CPU")
try:
    tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 3)
except Exception as e:
    print(e)
s = tf.distribute.MirroredStrategy(["cpu:1", "cpu:2"])
s2 = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
for n, st in (("cpu1,2", s), ("cpu0,1", s2)):
    show(
        "A1 local_results dict " + n,
        lambda: st.experimental_local_results(st.run(lambda: {"a": tf.constant(1.0), "b": tf.constant(2.0)})),
    )
    show(
        "A1 local_results tuple " + n,
        lambda: st.experimental_local_results(st.run(lambda: (tf.constant(1.0), tf.get_static_value(tf.constant(1))))),
    )
    show(
        "A1 local_results per-replica dict " + n,
        lambda: st.experimental_local_results(
            st.run(lambda: {"a": tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)})
        ),
    )
    show(
        "A4 stack " + n,
        lambda: tf.stack(
            st.experimental_local_results(
                st.run(lambda: tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32))
            )
        ),
    )
    show(
        "A4 stack values_from_function " + n,
        lambda: tf.stack(
            st.experimental_local_results(
                st.experimental_distribute_values_from_function(lambda ctx: tf.constant(ctx.replica_id_in_sync_group))
            )
        ),
    )
    show(
        "A4 add " + n,
        lambda: sum(
            st.experimental_local_results(
                st.experimental_distribute_values_from_function(lambda ctx: tf.constant(ctx.replica_id_in_sync_group))
            )
        ),
    )
    with st.scope():
        v = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)
    show("A4 stack of assign " + n, lambda: tf.stack(st.experimental_local_results(st.run(lambda: v.assign_add(1.0)))))
    show("A12 values[0].read_value " + n, lambda: v.values[0].read_value())
    show("A12 isinstance " + n, lambda: isinstance(v.values[0], tf.Variable))
    show(
        "A13 sparse " + n,
        lambda: st.experimental_local_results(
            st.experimental_distribute_values_from_function(
                lambda ctx: tf.sparse.SparseTensor([[0, 0], [1, 2]], [1.0, 2.0], [2, 3])
            )
        )[0],
    )


@tf.function
def f():
    return tf.convert_to_tensor(
        tf.IndexedSlices(tf.constant([[1.0, 2.0]]), tf.constant([1]), dense_shape=tf.constant([3, 2]))
    )


show("A2 IndexedSlices dense_shape in function", f)
show("A6 set_seed(None)", lambda: tf.random.set_seed(None))
show("A7 identity", lambda: tf.distribute.get_replica_context() is tf.distribute.get_replica_context())
show("A8 backing_device", lambda: tf.constant(1).backing_device)
w = tf.Variable(2.0)
ema = tf.train.ExponentialMovingAverage(0.5)


@tf.function
def g():
    ema.apply([w])
    return ema.average(w)


show("A3 ema in function", g)
show("B initializer", lambda: w.initializer)
show("ones(range)", lambda: tf.ones(shape=range(1, 3)))
show("Dataset.range step 0", lambda: tf.data.Dataset.range(1, 10, 0))
show("nest.flatten TensorShape", lambda: tf.nest.flatten(tf.TensorShape([None, 3])))
show("nest.flatten [TensorShape]", lambda: tf.nest.flatten([tf.TensorShape([None, 3])]))


def ag(x):
    ctx = tf.distribute.get_replica_context()
    return ctx.all_gather(x, axis=0)


vals = s2.experimental_distribute_values_from_function(lambda ctx: tf.ones((1, ctx.replica_id_in_sync_group + 1)))
show("all_gather shapes differ", lambda: s2.run(ag, args=(vals,)))
show(
    "all_gather IndexedSlices",
    lambda: s2.run(
        ag, args=(tf.IndexedSlices(tf.constant([[1.0, 2.0]]), tf.constant([1]), dense_shape=tf.constant([3, 2])),)
    ),
)
