import tensorflow as tf
from _show import show

for t in (tf.uint8, tf.int32, tf.uint32, tf.int64, tf.uint64):
    show(f"constant max {t.name}", lambda: tf.constant(t.max, dtype=t).numpy() == t.max)
s = tf.distribute.MirroredStrategy()


def es():
    r = tf.IndexedSlices(tf.identity([[1.0]]), tf.identity([0]), tf.identity([5, 1]))
    return tf.distribute.get_replica_context().all_reduce("mean", r)


show("IndexedSlices identity dense_shape in run", lambda: s.experimental_local_results(s.run(es)))
show(
    "IndexedSlices identity dense_shape in function",
    lambda: tf.function(lambda: tf.IndexedSlices(tf.identity([[1.0]]), tf.identity([0]), tf.identity([5, 1])).values)(),
)
ema = tf.train.ExponentialMovingAverage(0.5)
w = tf.Variable(2.0)


@tf.function
def step():
    w.assign_add(1.0)
    ema.apply([w])
    return ema.average(w)


show("EMA.apply in tf.function", step)
with s.scope():
    mw = tf.Variable(2.0)
    ema2 = tf.train.ExponentialMovingAverage(0.5)


@tf.function
def step2():
    mw.assign_add(1.0)
    ema2.apply([mw])
    return ema2.average(mw)


show("EMA.apply in tf.function under Mirrored", step2)
show("EMA eager", lambda: (tf.train.ExponentialMovingAverage(0.5).apply([w]), 1)[1])
