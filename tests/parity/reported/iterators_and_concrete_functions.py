import logging
import pickle

import tensorflow as tf
from _show import show


@tf.function
def sq(x):
    return x * x


show("P1 pickle tf.function", lambda: pickle.loads(pickle.dumps(sq))(tf.constant(3.0)))
show(
    "P2 concrete keyword names",
    lambda: tf.function(lambda x: x * 2.0).get_concrete_function(tf.TensorSpec([], name="y"))(y=tf.constant(3.0)),
)
show(
    "P3 scatter_div int update",
    lambda: tf.Variable([1.0, 6.0, 1.0]).scatter_div(tf.IndexedSlices(tf.constant([2.0]), tf.constant([1]))).numpy(),
)
s = tf.distribute.MirroredStrategy(["cpu:0"])
with s.scope():
    v = tf.Variable([1.0, 6.0, 1.0], aggregation=tf.VariableAggregation.MEAN)


def sd():
    return v.scatter_div(
        tf.IndexedSlices(
            tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32) + tf.constant([2]),
            tf.constant([1]),
        )
    )


show(
    "P3b scatter_div int in float variable",
    lambda: tf.Variable([1.0, 6.0, 1.0]).scatter_div(tf.IndexedSlices(tf.constant([2]), tf.constant([1]))),
)


class A:
    @tf.function
    def f(self, x, y=1):
        return x


show("P4 missing argument of method", lambda: A().f())
show("P4b class access", lambda: A.f(A(), tf.constant(1.0)))
show("P5 TensorArray of text", lambda: tf.TensorArray(tf.string, size=1).write(0, "a").stack())
show(
    "P5b TensorArray of text in function",
    lambda: tf.function(lambda: tf.TensorArray(tf.string, size=1).write(0, "a").stack())(),
)
show(
    "P6 as_list unknown signature",
    lambda: tf.function(lambda x: x, input_signature=[tf.TensorSpec(None)]).get_concrete_function(tf.TensorSpec(None))(
        tf.constant(1.0)
    ),
)
show("P7 weak method function", lambda: 0)
it = iter(tf.data.Dataset.range(5))
show("P8 iterator captured in map", lambda: [int(x) for x in tf.data.Dataset.range(2).map(lambda x: x + it.get_next())])


@tf.function
def it_in(it):
    return it.get_next() + it.get_next()


show("P8b iterator as argument", lambda: it_in(iter(tf.data.Dataset.range(5))))
show("P9 cumsum invalid axis", lambda: tf.cumsum([1, 2], axis=[0]))


def retr():
    import io

    h = logging.StreamHandler(io.StringIO())
    tf.get_logger().addHandler(h)
    f = tf.function(lambda x: x)
    for i in range(8):
        f(i)
    return "retracing" in h.stream.getvalue()


show("P10 warning of frequent retracing", retr)
