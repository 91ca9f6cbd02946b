import tensorflow as tf
from _show import show

s2 = tf.distribute.MirroredStrategy()
print(s2.num_replicas_in_sync)
r = s2.run(lambda: tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32))
show("stack", lambda: tf.stack(s2.experimental_local_results(r)))
show("concat", lambda: tf.concat(s2.experimental_local_results(s2.run(lambda: tf.ones((2, 3)))), 0))
show(
    "concat",
    lambda: tf.concat(
        s2.experimental_local_results(
            s2.run(
                lambda: (
                    tf.ones((2, 3)) + tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
                )
            )
        ),
        0,
    ),
)
show("add", lambda: r.values[0] + r.values[1])
show("add_n", lambda: tf.add_n(r.values))
show("reduce_mean", lambda: tf.reduce_mean(r.values))
v = s2.experimental_distribute_values_from_function(lambda ctx: tf.constant(ctx.replica_id_in_sync_group))
show("stack", lambda: tf.stack(s2.experimental_local_results(v)))
show("r", lambda: [x.device for x in s2.experimental_local_results(v)])
