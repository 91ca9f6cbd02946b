import collections
import os
import tempfile

import numpy as np
import tensorflow as tf
from _show import show

cpus = tf.config.list_physical_devices("CPU")
try:
    tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 3)
except Exception as e:
    print(e)
D = tf.data.Dataset


def dec():
    @tf.py_function(Tout=tf.int64)
    def f(x):
        return x + 1

    return list(D.range(2).map(f))


show("py_function as decorator", dec)
show(
    "padded_shapes -1",
    lambda: [
        x.numpy().tolist() for x in D.range(1, 3).map(lambda x: tf.fill([x], x)).padded_batch(2, padded_shapes=[-1])
    ],
)
show(
    "padded_batch too small", lambda: list(D.range(3).map(lambda x: tf.fill([2], x)).padded_batch(2, padded_shapes=[1]))
)
show("padded_batch not rank1", lambda: D.range(3).padded_batch(2, padded_shapes=tf.constant([[1]], tf.int64)))
show("padded_batch wrong rank", lambda: D.range(3).padded_batch(2, padded_shapes=[1]))
show("padded_batch bytes obj", lambda: list(D.from_tensor_slices(([0, 1], ["a", "b"])).padded_batch(2)))


def gw():
    def gen():
        yield 1

    ds = D.range(10).group_by_window(key_func=lambda x: x % 2, reduce_func=lambda k, w: w.batch(2), window_size=3)
    return ds.repeat().cardinality().numpy(), D.range(5).repeat().group_by_window(
        key_func=lambda x: x % 2, reduce_func=lambda k, w: w.batch(2), window_size=3
    ).cardinality().numpy()


show("group_by_window cardinality", gw)
show(
    "group_by_window size 0",
    lambda: list(
        D.range(4).group_by_window(key_func=lambda x: x % 2, reduce_func=lambda k, w: w.batch(2), window_size=0)
    ),
)


def gerr():
    def fail():
        raise ValueError("Some error")

    return next(
        iter(
            D.range(10).group_by_window(
                key_func=lambda x: tf.py_function(fail, [], tf.int64),
                reduce_func=lambda k, w: w.batch(2),
                window_size=3,
            )
        )
    )


show("group_by_window error in key", gerr)
show("map returns object", lambda: D.range(3).map(lambda x: object()))
show("map attrs-like obj", lambda: D.from_tensors(0).map(lambda x: [x, x]).element_spec)


def opt():
    o = tf.data.Options()
    o.deterministic = True
    ds = D.range(3).with_options(o)
    ds.options().deterministic = False
    return "no error"


show("mutate options of dataset", opt)


def prefetch():

    return "?"


show("choose_from_datasets int32", lambda: D.choose_from_datasets([D.range(2), D.range(3)], D.from_tensors(0)))
show("TextLine", lambda: D.list_files("r*.py").element_spec)
show(
    "string numpy()",
    lambda: (type(tf.constant("a").numpy()), type(next(iter(D.from_tensors("a"))).numpy()), tf.constant("a").numpy()),
)
show("TensorSpec of dataset.map shape", lambda: D.range(4).batch(2).map(lambda x: tf.reshape(x, [-1])).element_spec)


def gen_restore():
    s1 = tf.distribute.MirroredStrategy(["cpu:0"])
    s2 = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    with s1.scope():
        g1 = tf.random.Generator.from_seed(1)
    with s2.scope():
        g2 = tf.random.Generator.from_seed(10)
    p = os.path.join(tempfile.mkdtemp(), "c")
    w = tf.train.Checkpoint(g=g1).write(p)
    r1 = s1.experimental_local_results(s1.run(lambda: g1.uniform_full_int([3], dtype=tf.int32)))
    tf.train.Checkpoint(g=g2).restore(w)
    r2 = s2.experimental_local_results(s2.run(lambda: g2.uniform_full_int([3], dtype=tf.int32)))
    return [x.numpy().tolist() for x in r1], [x.numpy().tolist() for x in r2]


show("generator restored over more replicas", gen_restore)


def gen_state():
    s2 = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    with s2.scope():
        g2 = tf.random.Generator.from_seed(10)
    return [
        x.numpy().tolist()
        for x in s2.experimental_local_results(s2.run(lambda: g2.uniform_full_int([3], dtype=tf.int32)))
    ]


show("generator values over 2 replicas", gen_state)
show(
    "interleave cycle None",
    lambda: [
        int(x)
        for x in D.from_tensor_slices([4, 5, 6, 7]).interleave(
            lambda x: D.from_tensors(x).repeat(x), cycle_length=None, block_length=3, num_parallel_calls=1
        )
    ],
)
show(
    "from_generator sparse",
    lambda: next(
        iter(
            D.from_generator(
                lambda: iter([tf.sparse.SparseTensor([[0]], [1], [5])]),
                output_signature=tf.SparseTensorSpec([5], tf.int32),
            )
        )
    ),
)
show("nested list nest", lambda: D.from_tensors(([1, 2], {"a": np.int64(3)})).element_spec)
show("element_spec namedtuple", lambda: D.from_tensors(collections.namedtuple("P", "x y")(1, 2)).element_spec)
show("dataset == ", lambda: next(iter(D.range(3))) == next(iter(D.range(3))))
show("range(5).cache eq", lambda: D.range(3).zip())
show("ema under strategy in run", lambda: 0)
show("local_results optional", lambda: iter(D.range(1)).get_next_as_optional().element_spec)
show("Optional.from_value spec", lambda: tf.experimental.Optional.from_value({"a": 1}).element_spec)
show("OptionalSpec", lambda: tf.OptionalSpec(tf.TensorSpec([])))
show("skip neg", lambda: list(D.range(3).skip(-1)))
show("unbatch shape mismatch", lambda: list(D.from_tensors((tf.range(3), tf.range(4))).unbatch()))
