"""The guide to random numbers: which draws repeat and which differ, not what they are."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from _facts import show

Generator = tf.random.Generator


def same(*tensors):
    return all(np.array_equal(tensors[0], other) for other in tensors[1:])


def different(*tensors):
    return len({np.asarray(tensor).tobytes() for tensor in tensors}) == len(tensors)


g1 = Generator.from_seed(1)
drawn = g1.normal(shape=[2, 3])
print("drawn:", drawn.dtype, drawn.shape)
g2 = tf.random.get_global_generator()
show("the global one", different(drawn, g2.normal(shape=[2, 3])))
show("a seed repeats", same(drawn, Generator.from_seed(1).normal([2, 3])))
show("the next draw differs", different(drawn, g1.normal([2, 3])))
show("an algorithm by name", different(*(Generator.from_seed(1, alg="philox").normal([]) for _ in range(1))))
show("from nowhere", different(*(Generator.from_non_deterministic_state().normal([4]) for _ in range(2))))
g = Generator.from_seed(1)
first = g.normal([])
g.normal([])
g.reset_from_seed(1)
show("reset", same(first, g.normal([])))
g = Generator.from_seed(1)
parts = g.split(3)
show("split", [len(parts), different(*(part.normal([2]) for part in parts), g.normal([2]))])
again = Generator.from_seed(1)
show(
    "split again", same(parts[0].normal([2]), *(p.normal([2]) for p in again.split(3)[:1] if p.normal([2]) is not None))
)
with tf.device("cpu"):
    show("on a device", same(first, Generator.from_seed(1).normal([])))

g = Generator.from_seed(1)


@tf.function
def outside():
    return g.normal([])


show("in a function", [same(first, outside()), different(first, outside())])
inside_generator = None


@tf.function
def once():
    global inside_generator
    if inside_generator is None:
        inside_generator = Generator.from_seed(1)
    return inside_generator.normal([])


show("made once in a function", [same(first, once()), different(first, once())])
num_traces = 0


@tf.function
def by_argument(g):
    global num_traces
    num_traces += 1
    return g.normal([])


show("as arguments", different(by_argument(Generator.from_seed(1)), by_argument(Generator.from_seed(2))))
show("traces", num_traces)

strategy = tf.distribute.MirroredStrategy(devices=["cpu:0", "cpu:1"])
with strategy.scope():
    g = Generator.from_seed(1)
    results = strategy.run(lambda: g.normal([]))
    show("made under a strategy", different(*strategy.experimental_local_results(results)))


def draws():
    return tf.stack([g.normal([]), g.normal([])])


g = Generator.from_seed(1)
with strategy.scope():
    g = Generator.from_seed(1)
    rows = strategy.experimental_local_results(strategy.run(draws))
    show("two draws on each replica", different(*(number for row in rows for number in np.asarray(row))))
seeds = Generator.from_seed(3).make_seeds(2)
print("seeds:", seeds.dtype, seeds.shape)


def made_inside():
    g = Generator.from_seed(1)
    return tf.stack([g.normal([]), g.normal([])])


with strategy.scope():
    rows = strategy.experimental_local_results(strategy.run(made_inside))
    show("made on the replicas: a seed is a seed", [same(*rows), same(rows[0][0], first)])
    handed = strategy.experimental_distribute_values_from_function(
        lambda context: tf.random.stateless_normal([], [1, context.replica_id_in_sync_group])
    )
    show("stateless for each replica", different(*strategy.experimental_local_results(handed)))

path = os.path.join(tempfile.mkdtemp(), "checkpoint")
g = Generator.from_seed(1)
checkpoint = tf.train.Checkpoint(generator=g)
g.normal([])
checkpoint.write(path)
stream = [g.normal([]) for _ in range(2)]
checkpoint.restore(path)
show("restored", same(stream, [g.normal([]) for _ in range(2)]))

with strategy.scope():
    g = Generator.from_seed(1)
    checkpoint = tf.train.Checkpoint(my_generator=g)
    strategy.run(lambda: g.normal([]))
    checkpoint.write(path)
    saved = [strategy.experimental_local_results(strategy.run(lambda: g.normal([]))) for _ in range(2)]
    checkpoint.restore(path)
    back = [strategy.experimental_local_results(strategy.run(lambda: g.normal([]))) for _ in range(2)]
    show("restored under a strategy", same(saved, back))
more = tf.distribute.MirroredStrategy(devices=["cpu:0", "cpu:1", "cpu:2"])
with more.scope():
    g = Generator.from_seed(1)
    checkpoint = tf.train.Checkpoint(my_generator=g)
    checkpoint.restore(path)
    rows = more.experimental_local_results(more.run(lambda: g.normal([])))
    show("restored for more replicas", [len(rows), same(rows[0], saved[0][0]), different(*rows)])
alone = Generator.from_seed(5)
tf.train.Checkpoint(my_generator=alone).restore(path)
show("restored without strategy", same(alone.normal([]), saved[0][0]))


class Draws(tf.Module):
    """Holds a generator."""

    def __init__(self):
        super().__init__()
        self.g = Generator.from_seed(0)

    @tf.function
    def __call__(self):
        return self.g.normal([])

    @tf.function
    def state(self):
        return self.g.state


with strategy.scope():
    module = Draws()
    before = module.state()
    rows = strategy.experimental_local_results(strategy.run(module))
    show("in a module", [different(*rows), different(before, module.state())])

stateless = tf.random.stateless_normal(shape=[2, 3], seed=[1, 2])
show("stateless repeats", same(stateless, tf.random.stateless_normal(shape=[2, 3], seed=[1, 2])))
show("another seed differs", different(stateless, tf.random.stateless_normal(shape=[2, 3], seed=[1, 3])))
one, two = tf.random.split([1, 2], num=2)
folded = tf.random.fold_in([1, 2], 7)
show("seeds from seeds", different(one, two, folded))
key = tf.random.create_rng_state(1, "philox")
show("a state of a seed", same(first, Generator.from_state(key, alg="philox").normal([])))
tf.random.set_seed(5)
started = tf.random.uniform([3])
followed = tf.random.uniform([3])
tf.random.set_seed(5)
show("global seed", [same(started, tf.random.uniform([3])), different(started, followed)])
tf.random.set_seed(5)
show("seed of the operation", different(tf.random.uniform([3], seed=1), tf.random.uniform([3], seed=1)))
