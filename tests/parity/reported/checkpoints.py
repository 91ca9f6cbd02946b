import copy
import os
import tempfile

import tensorflow as tf
from _show import show

d = tempfile.mkdtemp()


def deep():
    c = tf.train.Checkpoint(v=tf.Variable(1.0))
    return type(copy.deepcopy(c)).__name__


show("deepcopy Checkpoint", deep)


def fn():
    c = tf.train.Checkpoint(v=tf.Variable(1.0))
    p = os.path.join(d, "f")

    @tf.function
    def save():
        return c.write(p)

    return type(save()).__name__


show("checkpoint.write in tf.function", fn)


def unmanaged():

    dd = os.path.join(d, "um")
    c = tf.train.Checkpoint(v=tf.Variable(1.0))
    m = tf.train.CheckpointManager(c, dd, max_to_keep=2)
    first = m.save()
    c.save(os.path.join(dd, "unusual_prefix"))
    m2 = tf.train.CheckpointManager(c, dd, max_to_keep=2)
    return [os.path.basename(x) for x in m2.checkpoints]


show("manager continues from unmanaged", unmanaged)


def opt_copy():
    o = tf.train.CheckpointOptions(experimental_write_callbacks=[lambda: None])
    o2 = copy.copy(o)
    o2.experimental_write_callbacks.append(1)
    return len(o.experimental_write_callbacks)


show("copy of CheckpointOptions", opt_copy)


def empty_containers():
    root = tf.train.Checkpoint()
    root.a = tf.train.Checkpoint()
    root.l = tf.Module()
    root.l.x = []
    p = tf.train.Checkpoint(a=[]).save(os.path.join(d, "e"))
    s = tf.train.Checkpoint(a=[]).restore(p)
    s.assert_consumed()
    s.assert_nontrivial_match()
    return "ok"


show("assert_nontrivial_match of nothing", empty_containers)


def defer():
    class M(tf.Module):
        pass

    a = tf.Module()
    a.v = tf.Variable(5.0)
    p = tf.train.Checkpoint(model=a).write(os.path.join(d, "dd"))
    b = tf.Module()
    c = tf.train.Checkpoint(model=b)
    c.read(p)
    b.v = tf.Variable(1.0)
    return float(b.v)


show("deferred restore", defer)


def defer_root():
    a = tf.Module()
    a.v = tf.Variable(5.0)
    p = tf.train.Checkpoint(a).write(os.path.join(d, "dr"))
    b = tf.Module()
    c = tf.train.Checkpoint(b)
    c.read(p)
    b.v = tf.Variable(1.0)
    return float(b.v)


show("deferred restore with root", defer_root)


def defer_root2():
    import weakref

    root = tf.Module()
    root.v = tf.Variable(1)
    c = tf.train.Checkpoint(root=weakref.ref(root))
    p = c.write(os.path.join(d, "w"))
    root.v.assign(2)
    c.read(p)
    return root.v.numpy()


show("weakref root", defer_root2)


class Auto(tf.Module):
    pass


def deferred_auto():
    m = tf.train.Checkpoint()
    m.deferred_variable = None
    return 0


show("map_fn", lambda: 0)
