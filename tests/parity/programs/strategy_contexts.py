"""Replica contexts made by hand, `strategy.run` in `merge_call`, updates, and what belongs to another strategy."""

import tensorflow as tf
from _facts import error, show

devices = [f"/cpu:{i}" for i in range(4)]
strategy, two = tf.distribute.MirroredStrategy(devices), tf.distribute.MirroredStrategy(devices[:2])
default = tf.distribute.get_strategy()
with strategy.scope():
    v, w = tf.Variable(1.0), tf.Variable([1.0, 2.0])
with two.scope():
    foreign = tf.Variable(2.0)
plain = tf.Variable(3.0)


def local(value):
    return [x.numpy() if hasattr(x, "numpy") else x for x in strategy.experimental_local_results(value)]


def here():
    return tf.distribute.get_replica_context()


def number():
    return tf.cast(here().replica_id_in_sync_group, tf.float32)


def scoped(call, scope=strategy):
    with scope.scope():
        return call()


def merging(merge, *args):
    return strategy.run(lambda: here().merge_call(merge, args=[arg() for arg in args]))


show("devices", local(strategy.run(lambda: len(here().devices))))
show("device of the default replica", here().devices)
made = tf.distribute.ReplicaContext(strategy, 1)
show("made by hand", [made.num_replicas_in_sync, made.replica_id_in_sync_group, made.strategy is strategy])
with made:
    show(
        "entered", [here() is made, tf.distribute.in_cross_replica_context(), tf.distribute.get_strategy() is strategy]
    )
show("left", here() is made)
for name, use in {
    "devices": lambda: made.devices,
    "merge_call": lambda: made.merge_call(lambda strategy: 1),
    "all_reduce": lambda: made.all_reduce("SUM", tf.constant(1.0)),
    "no number": lambda: tf.distribute.ReplicaContext(strategy),
}.items():
    error(f"{name} of one made by hand", use)


def run_inside(strategy, x):
    return strategy.run(lambda y: y * 2.0 + number(), args=(x,))


def reduce_inside(strategy, x):
    sums = strategy.run(lambda y: here().all_reduce("SUM", y), args=(x,))
    return strategy.reduce("MEAN", sums, axis=None)


for name, run in (("", lambda call: call()), (" in a function", lambda call: tf.function(call)())):
    show(f"run in merge_call{name}", local(run(lambda: merging(run_inside, number))))
    show(f"reduce in merge_call{name}", local(run(lambda: merging(reduce_inside, number))))
    show(
        f"values in merge_call{name}",
        local(run(lambda: merging(lambda s, x: x.values[2] + x.values[3] * 10.0, number))),
    )
    show(f"argument of merge_call{name}", local(run(lambda: merging(lambda s, x: x, number))))
show("contexts in merge_call", merging(lambda s: [here() is None, tf.distribute.in_cross_replica_context()]))
show("Python values from merge_call", merging(lambda s, x: (x, "t"), lambda: 3))
error("merge_call in merge_call", lambda: merging(lambda s: here().merge_call(lambda s: 1)))


def update_each(look):
    def step():
        x = number() + 1.0
        if look:
            float(x)  # Needs the value.
        here().merge_call(lambda s, x: s.extended.update(v, lambda var, y: var.assign(y), args=(x,)), args=(x,))

    return step


for name, run in (
    ("with values", lambda: strategy.run(update_each(True))),
    ("", lambda: strategy.run(update_each(False))),
):
    v.assign(0.0)
    run()
    show(f"an update for each copy {name}", [x.numpy() for x in v.values])
v.assign(0.0)
each = strategy.experimental_distribute_values_from_function(lambda c: tf.constant(c.replica_id_in_sync_group * 1.0))
strategy.extended.update(v, lambda var, x: var.assign(x), args=(each,))
show("outside of replicas", [x.numpy() for x in v.values])
v.assign(0.0)
show("update, all results", len(strategy.extended.update(w, lambda var: var.assign_add([1.0, 1.0]), group=False)))


def non_slot(fn, **options):
    return scoped(lambda: strategy.extended.update_non_slot(strategy.extended.non_slot_devices([v]), fn, **options))


show("non-slot", [non_slot(lambda: 3), non_slot(lambda: 3, group=False)])
show("non-slot, each device", [len(non_slot(lambda: plain.assign_add(2.0).read_value(), group=False)), plain.numpy()])
show("broadcast a number", strategy.extended.broadcast_to(1.0, v))


def colocated(variable, owner=strategy):
    with owner.extended.colocate_vars_with(variable):
        return tf.Variable(1.0)


error("colocate", lambda: scoped(lambda: colocated(v)))
error("colocate out of the scope", lambda: colocated(v))
error("colocate with a variable of none", lambda: scoped(lambda: colocated(plain)))
error("colocate with another's", lambda: scoped(lambda: colocated(foreign)))
error("colocate by default", lambda: colocated(plain, default))
created = [s.extended.variable_created_in_scope(x) for s in (strategy, default) for x in (v, foreign, plain)]
show("created in scope", created)
error("a tensor created in scope", lambda: strategy.extended.variable_created_in_scope(tf.constant(1.0)))

show("read another's in a scope", scoped(lambda: foreign + 1.0))
error("assign another's in a scope", lambda: scoped(lambda: foreign.assign(4.0)))
error("assign another's in run", lambda: strategy.run(lambda: foreign.assign_add(1.0)))
error("and compiled", lambda: tf.function(lambda: strategy.run(lambda: foreign.assign_add(1.0)))())
show("unchanged", foreign.numpy())
for name, run in (("", strategy.run), (" in a function", lambda step: tf.function(lambda: strategy.run(step))())):
    plain.assign(0.0)
    run(lambda: plain.assign_add(number() + 1.0).read_value())
    show(f"a variable of none, added to{name}", plain.numpy())
    run(lambda: plain.assign(number()).read_value())
    show(f"assigned{name}", plain.numpy())
tensor = tf.constant(5.0)
show("an argument from run", local(strategy.run(lambda x: x, args=(tensor,))))
error("its sum", lambda: strategy.reduce("SUM", strategy.run(lambda x: x, args=(tensor,)), axis=None))
show("constants from run", local(strategy.run(lambda: (tf.constant(2.0), tf.constant(2)))[1]))

current = lambda: tf.distribute.get_strategy() is strategy
show(
    "in the default scope", [scoped(lambda: scoped(current), default), scoped(lambda: strategy.run(lambda: 1), default)]
)
show("in the default run", [default.run(lambda: strategy.run(lambda: 1)), default.run(lambda: scoped(current))])
for name, use in {"scope": lambda: scoped(current, default), "run": lambda: default.run(lambda: 1)}.items():
    error(f"default {name} in a scope", lambda use=use: scoped(use))
    error(f"default {name} in run", lambda use=use: strategy.run(use))
error("default reduce in a scope", lambda: scoped(lambda: default.reduce("SUM", 1.0, axis=None)))
show("default reduce", [default.reduce("SUM", w, axis=0), default.gather(tensor, axis=0)])
show("default number", default.run(lambda: here().replica_id_in_sync_group))
show("default values", default.experimental_distribute_values_from_function(lambda c: c.num_replicas_in_sync))
