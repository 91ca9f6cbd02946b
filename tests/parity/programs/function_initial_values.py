"""Variables made inside of functions from other variables and from arguments; `tf.init_scope`; moving averages."""

import tensorflow as tf
from _facts import error, show

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])


def results(make_initial, times=2):
    """Return what a function gives that makes a variable at its first call, the variable, and what it was made from."""
    source, made = tf.Variable(1.0), []

    @tf.function
    def step(x):
        source.assign_add(10.0)
        if not made:
            made.append(make_initial(source, x))
        return made[0] + x

    return [step(tf.constant(3.0 + i)) for i in range(times)], made[0], source


def in_init_scope(source, x):
    with tf.init_scope():
        return tf.Variable(source * 2.0)


show("from a variable", results(lambda source, x: tf.Variable(source * 2.0)))
show("from a function of a variable", results(lambda source, x: tf.Variable(lambda: source.read_value() * 2.0)))
show("from an argument", results(lambda source, x: tf.Variable(x * 2.0)))
show("from an argument's shape", results(lambda source, x: tf.Variable(tf.zeros_like(x))))
show("in init_scope", results(in_init_scope))


def chained(source, x):
    return tf.Variable(tf.Variable(source + x) * 2.0)


show("from a new variable", results(chained))


class Normal(tf.Module):
    w = None

    @tf.function
    def __call__(self):
        if self.w is None:
            self.w = tf.Variable(tf.random.normal([3]))
            self.start = tf.Variable(self.w)
        return tf.round(self.w.assign_add(tf.ones([3])) - self.start)


normal = Normal()
show("random", [normal(), normal()])

outside = tf.Variable(1.0)


@tf.function
def changed_outside(x):
    with tf.init_scope():
        outside.assign_add(1.0)
        print("eager", tf.executing_eagerly())
    return outside + x


show("assigned in init_scope", [changed_outside(tf.constant(3.0)), changed_outside(tf.constant(4.0)), outside])


def with_tape():
    with tf.GradientTape() as tape:
        with tf.init_scope():
            constant = outside * 2.0
        y = outside * outside * constant
    return y, tape.gradient(y, outside)


show("tape", with_tape())
show("tape in a function", tf.function(with_tape)())


@tf.function
def escaped(x):
    with tf.init_scope():
        return x + 1.0


error("a function's tensor in init_scope", lambda: escaped(tf.constant(1.0)))


def averaged(scope):
    with scope:
        w = tf.Variable(2.0)
    average = tf.train.ExponentialMovingAverage(0.5, zero_debias=True)

    def step():
        average.apply([w])
        return average.average(w) + w

    def run():
        w.assign_add(1.0)
        is_mirrored = strategy.extended.variable_created_in_scope(w)
        return strategy.experimental_local_results(strategy.run(step))[0] if is_mirrored else step()

    run = tf.function(run)
    return [run() for _ in range(3)], average.average(w), average.average(w).name


show("average", averaged(tf.name_scope("plain")))
show("average in replicas", averaged(strategy.scope()))

with strategy.scope():
    mirrored = tf.Variable(2.0)
made = []


@tf.function
def in_replicas():
    def replica():
        if not made:
            made.append(tf.Variable(mirrored * 2.0))
        return made[0] + mirrored

    return strategy.run(replica)


show("made by replicas", strategy.experimental_local_results(in_replicas()))
