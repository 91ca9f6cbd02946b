"""Random numbers on replicas: each draws its own."""

import tensorflow as tf
from _facts import show

strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
with strategy.scope():
    inside = tf.random.Generator.from_seed(1)
local = lambda value: [x.numpy().tolist() for x in strategy.experimental_local_results(value)]

a, b = local(strategy.run(lambda: inside.normal([3])))
show("replicas differ", a != b)
c, d = local(strategy.run(lambda: inside.normal([3])))
show("and go on", [a != c, b != d, c != d])
with strategy.scope():
    again = tf.random.Generator.from_seed(1)
show("same seed", local(strategy.run(lambda: again.normal([3]))) == [a, b])
e, f = local(tf.function(lambda: strategy.run(lambda: inside.uniform([3])))())
show("in a function", e != f)
u, v = local(strategy.run(lambda: tf.random.uniform([3])))
show("operations", u != v)
x, y = local(strategy.run(lambda: tf.random.stateless_uniform([3], seed=[1, 2])))
show("stateless is the same everywhere", x == y)
dropped = local(strategy.run(lambda: tf.nn.dropout(tf.ones([64]), 0.5)))
show("dropout differs", dropped[0] != dropped[1])
