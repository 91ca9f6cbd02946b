"""Ways to reduce of the program's own: when they are asked, for what, and what comes of it."""

import tensorflow as tf
from _facts import error, show

DEVICES = [f"/cpu:{i}" for i in range(4)]
asked = []


class Tenfold(tf.distribute.CrossDeviceOps):
    """Ten times the sum, and keeps a record."""

    def reduce_implementation(self, reduce_op, per_replica_value, destinations, options):
        asked.append(f"reduce {len(per_replica_value.values)}")
        total = tf.add_n(list(per_replica_value.values)) * 10.0
        return total if reduce_op == tf.distribute.ReduceOp.SUM else total / len(per_replica_value.values)

    def batch_reduce_implementation(self, reduce_op, value_destination_pairs, options):
        asked.append(f"batch {reduce_op.name} {len(value_destination_pairs)} {options.bytes_per_pack}")
        return [self.reduce_implementation(reduce_op, v, where, options) for v, where in value_destination_pairs]

    def broadcast_implementation(self, tensor, destinations):
        asked.append("broadcast")
        return tf.distribute.ReductionToOneDevice().broadcast_implementation(tensor, destinations)


class InBatches(tf.distribute.CrossDeviceOps):
    """Reduces in batches only."""

    def batch_reduce_implementation(self, reduce_op, value_destination_pairs, options):
        asked.append(f"batch {len(value_destination_pairs)}")
        return [tf.add_n(list(v.values)) * 10.0 for v, where in value_destination_pairs]


def fact(label, call):
    result = tf.nest.map_structure(lambda x: strategy.experimental_local_results(x)[-1], call())
    show(label, [result, *asked])
    asked.clear()


def here():
    return tf.distribute.get_replica_context()


def number():
    return tf.cast(here().replica_id_in_sync_group, tf.float32) + 1.0


def merged(merge):
    return lambda: here().merge_call(merge, args=(number(),))


strategy = tf.distribute.MirroredStrategy(DEVICES, cross_device_ops=Tenfold())
values = strategy.run(number)
structure = strategy.run(lambda: {"a": number(), "b": (number() * 2.0,)})
for op in ("SUM", "MEAN"):
    fact(f"reduce {op}", lambda: strategy.reduce(op, values, axis=None))
    fact(f"reduce a dict {op}", lambda: strategy.reduce(op, structure, axis=None))
    fact(f"reduce rows {op}", lambda: strategy.reduce(op, strategy.run(lambda: tf.stack([number()])), axis=0))
    fact(f"reduce_to {op}", lambda: strategy.extended.reduce_to(op, values, destinations=values))
    fact(f"batch_reduce_to {op}", lambda: strategy.extended.batch_reduce_to(op, [(values, values)] * 2))
    STEPS = {
        "all_reduce": lambda: here().all_reduce(op, number()),
        "all_reduce of integers": lambda: here().all_reduce(op, here().replica_id_in_sync_group),
        "all_reduce of a dict": lambda: here().all_reduce(op, {"a": number(), "b": [tf.stack([number(), 1.0])]}),
        "reduce in merge_call": merged(lambda s, x: s.reduce(op, x, axis=None)),
        "reduce_to in merge_call": merged(lambda s, x: s.extended.reduce_to(op, x, destinations=x)),
        "batch_reduce_to in merge_call": merged(lambda s, x: s.extended.batch_reduce_to(op, [(x, x), (x, x)])),
    }
    for name, step in STEPS.items():
        fact(f"{name} {op}", lambda step=step: strategy.run(step))
        fact(f"{name} {op}, compiled", lambda step=step: tf.function(lambda: strategy.run(step))())
fact("broadcast", lambda: strategy.extended.broadcast_to(tf.constant(1.0), values))

with strategy.scope():
    summed = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)
    mean = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)
asked.clear()
fact("sum of assignments", lambda: strategy.run(lambda: summed.assign_add(number())))
fact("mean of assignments", lambda: strategy.run(lambda: mean.assign(number())))
show("variables", [summed.numpy(), mean.numpy()])

strategy = tf.distribute.MirroredStrategy(DEVICES, cross_device_ops=InBatches())
fact("in batches: reduce", lambda: strategy.reduce("SUM", values, axis=None))
fact("in batches: all_reduce", lambda: strategy.run(lambda: here().all_reduce("SUM", [number(), number()])))
fact("in batches: batch_reduce_to", lambda: strategy.extended.batch_reduce_to("SUM", [(values, values)] * 2))

tenfold = tf.distribute.ReductionToOneDevice(accumulation_fn=lambda values: tf.add_n(values) * 10.0)
strategy = tf.distribute.MirroredStrategy(DEVICES, cross_device_ops=tenfold)
fact("accumulation: reduce", lambda: strategy.reduce("SUM", values, axis=None))
for op in ("SUM", "MEAN"):
    fact(f"accumulation: all_reduce {op}", lambda: strategy.run(lambda: here().all_reduce(op, number())))
    by_hand = tf.distribute.ReduceOp[op]
    fact(f"accumulation by hand {op}", lambda: tenfold.reduce(by_hand, values, "/cpu:0"))
fact("a batch by hand", lambda: tenfold.batch_reduce(tf.distribute.ReduceOp.SUM, [(values, values)] * 2))
fact("hierarchical by hand", lambda: tf.distribute.HierarchicalCopyAllReduce().reduce(by_hand, values, values))
error("no such reduction", lambda: strategy.extended.batch_reduce_to("MAX", [(values, values)]))
