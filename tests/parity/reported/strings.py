import tensorflow as tf
from _show import show

D = tf.data.Dataset
c = tf.constant("a")
show("T1 eager ==", lambda: c == "a")
show("T1b eager == bytes", lambda: c == b"a")
show("T1c eager != str", lambda: c != "a")
show("T1d vector == str", lambda: tf.constant(["a", "b"]) == "a")
show("T1e two tensors", lambda: c == tf.constant("a"))
show("T2 tf.equal", lambda: tf.equal(c, "a"))
show("T2b tf.not_equal", lambda: tf.not_equal(c, "a"))
show("T3 filter ==", lambda: len(list(D.from_tensor_slices(["a", "b"]).filter(lambda x: x == "a"))))
show("T3b filter tf.equal", lambda: len(list(D.from_tensor_slices(["a", "b"]).filter(lambda x: tf.equal(x, "a")))))
show("T3c if in loop", lambda: [1 for x in D.from_tensor_slices(["a", "b"]) if x == "a"])
show("T3d map", lambda: [bool(v) for v in D.from_tensor_slices(["a", "b"]).map(lambda x: x == "a")])
show("T4 tf.where strings", lambda: tf.where([True, False], "a", "b"))


def sh():
    ctr = tf.Variable(0, dtype=tf.int64)

    def incr(x):
        ctr.assign_add(1)
        return x

    d = D.range(1).map(incr).take(ctr) if 0 else D.range(0)
    return [int(x) for x in D.range(0).repeat(3).shuffle(5).concatenate(D.range(2))]


show("shuffle empty", sh)
n = tf.Variable(0, dtype=tf.int64)


def fn():
    limit = 5
    n.assign(0)
    cnt = [0]

    def gen():
        cnt[0] += 1
        if cnt[0] > 3:
            yield cnt[0]

    return [int(x) for x in D.from_generator(gen, tf.int32, []).shuffle(10).repeat().take(3)]


show("shuffle of epochs without elements, repeat forever", fn)
show("repeat of epochs without elements", lambda: 0)
