"""`strategy.extended`, merge calls that use it, and ways to reduce."""

import tensorflow as tf
from _facts import error, show

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])
with strategy.scope():
    v = tf.Variable(1.0)
    w = tf.Variable([1.0, 2.0])


def replica_id():
    return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)


def step():
    mine = replica_id()

    def merge(strategy, value):
        total = strategy.extended.reduce_to(tf.distribute.ReduceOp.SUM, value, destinations=v)
        strategy.extended.update(v, lambda var, x: var.assign_add(x), args=(total,))
        return total

    return tf.distribute.get_replica_context().merge_call(merge, args=(mine,))


show("merge_call", list(strategy.experimental_local_results(strategy.run(step))))
show("updated", v)
tf.function(lambda: strategy.run(step))()
show("updated in a function", v)


def batch_step():
    def merge(strategy, a, b):
        sums = strategy.extended.batch_reduce_to("MEAN", [(a, v), (b, w)])
        strategy.extended.update(w, lambda var, x: var.assign(x), args=(sums[1],), group=False)
        return sums[0]

    return tf.distribute.get_replica_context().merge_call(
        merge, args=(replica_id(),), kwargs={"b": tf.stack([replica_id(), 1.0])}
    )


show("batch_reduce_to", list(strategy.experimental_local_results(strategy.run(batch_step))))
show("assigned", w)


def gathering_step():
    def merge(strategy, value):
        total = tf.add_n([x * 1.0 for x in strategy.experimental_local_results(value)])
        return total, strategy.gather(value, axis=0)

    return tf.distribute.get_replica_context().merge_call(merge, args=(tf.stack([replica_id(), 10.0]),))


for name, run in (("", strategy.run), (" in a function", tf.function(strategy.run))):
    total, rows = run(gathering_step)
    show(f"local results in merge_call{name}", strategy.experimental_local_results(total)[-1])
    show(f"gather in merge_call{name}", strategy.experimental_local_results(rows)[-1])
error("args that are no tuple", lambda: strategy.run(lambda x: x, args=tf.constant([1.0])))
other = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
with strategy.scope():
    error("run of another strategy in a scope", lambda: other.run(lambda: tf.constant(1.0)))
    error("reduce of another strategy in a scope", lambda: other.reduce("SUM", tf.constant(1.0), axis=None))
with strategy.scope():
    strategy.extended.update(v, lambda var, x: var.assign(x), args=(5.0,))
show("update outside of run", v)
per_replica = strategy.run(lambda x: replica_id() + x, args=(10.0,))
show("reduce_to", strategy.extended.reduce_to("SUM", per_replica, destinations=v))
show("devices", [len(strategy.extended.worker_devices), len(strategy.extended.parameter_devices)])
show("read_var", strategy.extended.read_var(v))
show("flags", [strategy.extended.should_checkpoint, strategy.extended.should_save_summary])
with strategy.scope():
    with strategy.extended.colocate_vars_with(v):
        pass
    foreign = tf.constant(1.0)
    error("colocate with something else", lambda: strategy.extended.colocate_vars_with(foreign).__enter__())

for ops in (
    tf.distribute.HierarchicalCopyAllReduce(),
    tf.distribute.ReductionToOneDevice(),
):
    own = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], cross_device_ops=ops)
    values = own.run(lambda: tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32) + 1.0)
    show(type(ops).__name__, [own.reduce("SUM", values, axis=None), own.reduce("MEAN", values, axis=None)])
error("num_packs", lambda: tf.distribute.NcclAllReduce(num_packs=-1))
options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=1024, timeout_seconds=60.0)
show("options", [options.bytes_per_pack, options.timeout_seconds, options.implementation.name])
error("negative pack", lambda: tf.distribute.experimental.CommunicationOptions(bytes_per_pack=-1))
show("implementations", sorted(i.name for i in tf.distribute.experimental.CommunicationImplementation))
