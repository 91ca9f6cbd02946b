"""`reduce`: sums and means over replicas, over an axis, even and uneven."""

import tensorflow as tf
from _facts import error, show

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])
show("replicas", strategy.num_replicas_in_sync)
SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN

dataset = tf.data.Dataset.range(10).map(lambda i: tf.cast(i, tf.float32)).batch(10)
(batch,) = strategy.experimental_distribute_dataset(dataset)
show("uneven parts", list(strategy.experimental_local_results(batch)))

for op in (SUM, MEAN):
    show(f"{op.name} over rows of uneven replicas", strategy.reduce(op, batch, axis=0))


@tf.function
def step(x):
    return tf.reduce_sum(x), {"count": tf.size(x)}


total, extra = strategy.run(step, args=(batch,))
show("SUM of the replicas' results", strategy.reduce(SUM, total, axis=None))
show("MEAN of the replicas' results", strategy.reduce("mean", total, axis=None))
show("counts", list(strategy.experimental_local_results(extra["count"])))
error("plain number, SUM", lambda: strategy.reduce("SUM", 2.0, axis=None))
show("plain number, MEAN", strategy.reduce("MEAN", 2.0, axis=None))
error("no such op", lambda: strategy.reduce("MAX", total, axis=None))
error("no axis given", lambda: strategy.reduce("SUM", total))
