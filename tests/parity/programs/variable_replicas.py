"""Variables of a strategy: every synchronization and aggregation, assigned in both contexts, eagerly and compiled."""

import tensorflow as tf
from _facts import error, show

strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
Sync, Agg = tf.VariableSynchronization, tf.VariableAggregation
AGGREGATIONS = (Agg.NONE, Agg.SUM, Agg.MEAN, Agg.ONLY_FIRST_REPLICA)


def made(sync, aggregation, value=4.0):
    with strategy.scope():
        return tf.Variable(value, synchronization=sync, aggregation=aggregation, trainable=False)


def replica_number():
    return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32) + 1.0


def changing(v, method):
    def step():
        getattr(v, method)(replica_number())

    return tf.function(lambda: strategy.run(step))


for aggregation in AGGREGATIONS[1:]:
    for method in ("assign", "assign_add", "assign_sub"):
        v = made(Sync.ON_WRITE, aggregation)
        label = f"mirrored {aggregation.name} {method}"
        error(f"{label} in replicas", lambda v=v, m=method: changing(v, m)())
        show(f"{label} then", v)
        getattr(v, method)(2.0)
        show(f"{label} cross-replica", v)
for aggregation in AGGREGATIONS[1:]:
    for method in ("assign", "assign_add", "assign_sub"):
        v = made(Sync.ON_READ, aggregation)
        label = f"on read {aggregation.name} {method}"
        changing(v, method)()
        show(f"{label} in replicas", v.read_value())
        error(f"{label} cross-replica", lambda v=v, m=method: getattr(v, m)(2.0) is None)
        show(f"{label} then", v.read_value())
v = made(Sync.ON_READ, Agg.SUM)
changing(v, "assign_add")()
show("each replica's", [x for x in strategy.experimental_local_results(v)])
show("read in replicas", strategy.experimental_local_results(strategy.run(tf.function(lambda: v.read_value()))))
v = made(Sync.ON_READ, Agg.NONE)
changing(v, "assign")()
error("on read NONE", lambda: v.read_value())
mirrored = made(Sync.ON_WRITE, Agg.MEAN)
show("values", list(mirrored.values))
show("number of values", len(mirrored.values))
show("strategy", mirrored.distribute_strategy is strategy)
show("kept", [mirrored.synchronization.name, mirrored.aggregation.name, mirrored.trainable])
show("name", made(Sync.AUTO, Agg.NONE).name)
error("not an aggregation", lambda: tf.Variable(1.0, aggregation="sum"))
error("not a synchronization", lambda: tf.Variable(1.0, synchronization="on_read"))
