import tensorflow as tf
from _show import show


def foo(a, training=True):
    return a if training else -1.0 * a


show(
    "S1 input_signature with default arg",
    lambda: tf.function(foo, input_signature=[tf.TensorSpec([]), tf.TensorSpec([], tf.bool)] and [tf.TensorSpec([])])(
        tf.constant(1.0)
    ),
)
show(
    "S1b input_signature with partial",
    lambda: tf.function(foo, input_signature=[tf.TensorSpec([]), tf.TensorSpec([], tf.bool)])(
        tf.constant(1.0), training=tf.constant(False)
    ),
)
show(
    "S1c signature shorter, default training",
    lambda: tf.function(foo, input_signature=[tf.TensorSpec([]), tf.TensorSpec([], tf.bool)])(tf.constant(1.0)),
)


def outer():
    v0 = tf.Variable(5.0)

    @tf.function
    def f():
        with tf.init_scope():
            if not made:
                made.append(tf.Variable(v0 * 2.0))
        return made[0] + 1.0

    made = []
    return f()


show("S2 variable in init_scope from variable", outer)


class H:
    pass


def nested_init():
    h = H()
    h.flag = False
    w = tf.Variable(1.0)

    @tf.function
    def add():
        if not h.flag:
            h.v = tf.Variable(w + 1.0)
            h.flag = True
        return h.v + w

    return add()


show("S2b variable initial value from variable", nested_init)


def nested2():
    w = tf.Variable(1.0)
    made = []

    @tf.function
    def add():
        if not made:
            made.append(tf.Variable(lambda: w.read_value() * 2.0))
        return made[0] + 1.0

    return add()


show("S2c callable initial value from variable", nested2)
show(
    "S3 nest expand_composites IndexedSlices",
    lambda: len(tf.nest.flatten(tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0])), expand_composites=True)),
)
show(
    "S3 nest expand_composites Sparse",
    lambda: len(tf.nest.flatten(tf.sparse.SparseTensor([[0]], [1], [2]), expand_composites=True)),
)
show("S4 int(complex)", lambda: int(tf.constant(1 + 2j)))


def modin():
    @tf.function
    def f(d):
        d["b"] = d["a"]
        return d["a"]

    d = {"a": tf.constant(1.0)}
    f(d)
    return sorted(d)


show("S5 function modifies its dict argument", modin)
cf = tf.function(lambda x, y: x["a"] + y).get_concrete_function({"a": tf.TensorSpec([])}, tf.TensorSpec([]))
show("S6 concrete function called with tensor for dict", lambda: cf(tf.constant(1.0), tf.constant(2.0)))
show("S6b concrete function dict", lambda: cf({"a": tf.constant(1.0)}, tf.constant(2.0)))
show("S7 function_type.parameters", lambda: list(cf.function_type.parameters))
e = tf.Variable(3.0)


def g(x):
    return tf.gather(x, [0, 1])


def grads():
    v = tf.Variable([1.0, 2.0, 3.0])
    with tf.GradientTape() as t:
        y = tf.function(g)(v)
    return type(t.gradient(y, v)).__name__


show("S8 gather gradient through function", grads)
show("S9 enumerate of distributed dataset", lambda: 0)
s = tf.distribute.MirroredStrategy()
ds = s.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(2))
show(
    "S9 enumerate dist dataset in function",
    lambda: tf.function(lambda d: [tf.cast(i, tf.int64) for i, x in enumerate(d)])(ds),
)
show("S10 finite optional shape", lambda: iter(ds).get_next_as_optional().element_spec)


@tf.function
def dev():
    with tf.device("/cpu:0"):
        return tf.constant(1.0).device == "x"


show("S11 .device in function", dev)


def cacheeq():
    d = tf.data.Dataset.range(3).map(lambda x: tf.random.uniform([], maxval=1000, dtype=tf.int64)).cache()
    a = [int(x) for x in d]
    it = iter(d)
    return a == [int(next(it)) for _ in range(3)]


show("S12 cache of random", cacheeq)


def ctl():
    @tf.function
    def tr():
        a = tf.Variable(1.0)
        return a

    return 0
