"""Variables whose copies replicas change without aggregation; scattered changes under every aggregation."""

import tensorflow as tf
from _facts import error, show

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])
Sync, Agg = tf.VariableSynchronization, tf.VariableAggregation


def made(value, **options):
    with strategy.scope():
        return tf.Variable(value, **options)


def copies(variable):
    return [float(x) for x in strategy.experimental_local_results(variable)]


def number():
    return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)


weight, average = made(1.0), made(0.0, trainable=False)
STEPS = {
    "an average": lambda: average.assign(0.9 * average + 0.1 * weight),
    "own value": lambda: average.assign(number()),
    "added": lambda: average.assign_add(1.0),
    "subtracted": lambda: average.assign_sub(number()),
}


def doing(step):
    def run():
        step()
        return average + 0.0

    return run


def looking():
    if float(number()) >= 0:
        average.assign(number() * 2.0)


for how, run in (("eager", strategy.run), ("compiled", lambda step: tf.function(lambda: strategy.run(step))())):
    average.assign(0.0)
    for name, step in STEPS.items():
        seen = run(doing(step))
        show(f"{how}: {name}", [copies(average), copies(seen), average.numpy()])
    average.assign(5.0)
    show(f"{how}: equal again", copies(average))
strategy.run(looking)
show("with values", copies(average))

rows = tf.data.Dataset.from_tensor_slices(tf.range(6.0)).batch(6)
average.assign(0.0)


def averaging(x):
    average.assign(0.5 * average + 0.5 * weight)
    return tf.reduce_sum(x)


for batch in strategy.experimental_distribute_dataset(rows):
    show("uneven batch", strategy.reduce("SUM", strategy.run(averaging, args=(batch,)), axis=None))
    show("average", copies(average))


def scattering(variable, how):
    def own():
        number = tf.reshape(tf.distribute.get_replica_context().replica_id_in_sync_group, [1])
        getattr(variable, f"scatter_{how}")(tf.IndexedSlices(tf.cast(number, tf.float32) + 2.0, number))

    return own


def scattering_alike(variable, how):
    def alike():
        getattr(variable, f"scatter_{how}")(tf.IndexedSlices(tf.constant([2.0, 4.0]), tf.constant([1, 3])))

    return alike


VALUES = [1.0, 2.0, 3.0, 4.0, 5.0]
for aggregation in Agg:
    for how in ("add", "sub", "mul", "div", "min", "max", "update"):
        label = f"{aggregation.name} scatter_{how}"
        v = made(VALUES, aggregation=aggregation)
        error(f"{label} of own rows", lambda: (strategy.run(scattering(v, how)), v.numpy())[1])
        v = made(VALUES, aggregation=aggregation)
        compiled = tf.function(lambda: strategy.run(scattering_alike(v, how)))
        error(f"{label} of equal rows", lambda: (compiled(), v.numpy())[1])
        error(f"{label} outside", lambda: (scattering_alike(v, how)(), v.numpy())[1])
error("scatter a number", lambda: made(VALUES).scatter_add(3.0))

own = made(1.0, synchronization=Sync.ON_READ, aggregation=Agg.SUM, trainable=True)
show("trainable on read", [own.trainable, made(1.0, synchronization=Sync.ON_READ).trainable])


def gradient():
    with tf.GradientTape() as tape:
        loss = own * own * (number() + 1.0)
    own.assign_sub(0.1 * tape.gradient(loss, own))


strategy.run(gradient)
show("trained on each replica", [copies(own), own.read_value()])
error("no synchronization", lambda: made(1.0, synchronization=Sync.NONE))
show("outside of a scope", tf.Variable(1.0, synchronization=Sync.NONE).synchronization.name)
