"""When random numbers repeat; the numbers themselves are the generator's own."""

import tensorflow as tf
from _facts import error, show

draw = lambda **options: tf.random.uniform([4], **options).numpy().tolist()

tf.random.set_seed(1)
first = [draw(), draw()]
tf.random.set_seed(1)
again = [draw(), draw()]
tf.random.set_seed(2)
other = [draw(), draw()]
show("same seed, same sequence", [first == again, first[0] != first[1], first[0] != other[0]])
tf.random.set_seed(1)
seeded = [draw(seed=5), draw(seed=5)]
tf.random.set_seed(1)
seeded_again = [draw(seed=5), draw(seed=5)]
show("operation's seed", [seeded[0] != seeded[1], seeded == seeded_again, seeded[0] != first[0]])


@tf.function
def f():
    return tf.random.uniform([4]), tf.random.uniform([4])


@tf.function
def g():
    return tf.random.uniform([4]), tf.random.uniform([4])


values = lambda pair: [x.numpy().tolist() for x in pair]
tf.random.set_seed(1234)
a, b, c = values(f()), values(f()), values(g())
show("function goes on", [a != b, a[0] != a[1]])
show("another function starts as the first", a == c)


@tf.function
def seeded_function():
    return tf.random.uniform([4], seed=1), tf.random.uniform([4], seed=1)


tf.random.set_seed(1234)
d, e = values(seeded_function()), values(seeded_function())
show("operations with equal seeds in a function", [d[0] == d[1], d != e])

stateless = lambda seed: tf.random.stateless_uniform([3], seed=seed).numpy().tolist()
show("stateless", [stateless([1, 2]) == stateless([1, 2]), stateless([1, 2]) != stateless([1, 3])])
show(
    "stateless in a function",
    tf.function(lambda: tf.random.stateless_normal([3], seed=[1, 2]))().numpy().tolist()
    == tf.random.stateless_normal([3], seed=[1, 2]).numpy().tolist(),
)

one, two = tf.random.Generator.from_seed(7), tf.random.Generator.from_seed(7)
x, y = one.normal([3]).numpy().tolist(), one.normal([3]).numpy().tolist()
show("generators", [x != y, two.normal([3]).numpy().tolist() == x])
one.reset_from_seed(7)
show("reset", one.normal([3]).numpy().tolist() == x)
state = one.state.numpy().copy()
z = one.normal([3]).numpy().tolist()
copy = tf.random.Generator.from_state(state, alg="philox")
show("from a state", [z == y, len(state.shape)])
parts = one.split(3)
show("split", [len(parts), len({str(p.normal([3]).numpy()) for p in parts})])
tf.random.set_global_generator(tf.random.Generator.from_seed(3))
p = tf.random.get_global_generator().uniform([2]).numpy().tolist()
tf.random.get_global_generator().reset_from_seed(3)
show("global generator", tf.random.get_global_generator().uniform([2]).numpy().tolist() == p)


@tf.function
def from_generator(g):
    return g.normal([2])


gen = tf.random.Generator.from_seed(1)
u, v = from_generator(gen).numpy().tolist(), from_generator(gen).numpy().tolist()
gen.reset_from_seed(1)
show(
    "generator in a function",
    [u != v, from_generator(gen).numpy().tolist() == u, gen.normal([2]).numpy().tolist() == v],
)

ints = tf.random.uniform([1000], 3, 7, dtype=tf.int64)
show("integers", [int(tf.reduce_min(ints)), int(tf.reduce_max(ints)), ints.dtype.name])
show(
    "types",
    [tf.random.normal([2], dtype=tf.float64).dtype.name, tf.random.truncated_normal([1000]).numpy().max() < 2.0 + 1e-6],
)
show(
    "categorical",
    [
        tf.random.categorical([[0.0, 100.0]], 5).numpy().tolist(),
        tf.random.categorical(tf.zeros([2, 3], tf.float64), 4).dtype.name,
    ],
)
show("shuffle", sorted(tf.random.shuffle(tf.range(5)).numpy().tolist()))
show("shapes", [tuple(tf.random.gamma([2], [1.0, 2.0]).shape), tuple(tf.random.poisson([3], [1.0]).shape)])
error("integers without maxval", lambda: tf.random.uniform([2], dtype=tf.int32))
error("stateless seed shape", lambda: tf.random.stateless_uniform([2], seed=[1, 2, 3]))
