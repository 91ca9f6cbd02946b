"""The numbers themselves: `tf.random.Generator` and stateless draws, also on replicas and restored on others."""

import tempfile

import tensorflow as tf
from _facts import error, show

generator = tf.random.Generator.from_seed(10)
show("state", [generator.state, generator.algorithm, generator.key])
show("normal", generator.normal([5]))
show("uniform", generator.uniform([], 2.0, 3.0))
show("truncated", generator.truncated_normal([2, 3], dtype=tf.float64))
show("integers", generator.uniform([5], -3, 10, tf.int32))
show("long", generator.uniform([3], 0, 2**40, tf.int64))
show("full", [generator.uniform_full_int([2], dtype) for dtype in (tf.int32, tf.uint32, tf.int64, tf.uint64)])
show("moved on", generator.state)
show("skip", [generator.skip(2), generator.state])
show("seeds", generator.make_seeds(2))
show("split", [part.state for part in generator.split(2)])
show("function", tf.function(lambda: generator.normal([2], 1.0, 2.0))())
show("moved on", generator.state)
show("copy", tf.random.Generator(copy_from=generator).uniform([2]))
show("key and counter", tf.random.Generator.from_key_counter(5, [1, 2], "philox").uniform([2]))
for seed in (1234, 2**70 + 5, [5], [12, 34, 56, 78], -1):
    show(f"state of {seed}", tf.random.create_rng_state(seed, "philox"))
carried = tf.random.Generator.from_state([-256, 3, 7], "philox")
show("carry", [carried.uniform([3]), carried.state])
error("no algorithm", lambda: tf.random.Generator.from_seed(1, alg="x"))

for seed in ([1, 2], [-7, 0], tf.constant([2**40, -3], tf.int64)):
    show("uniform", tf.random.stateless_uniform([2, 3], seed, -1.0, 1.0))
    show("normal", tf.random.stateless_normal([5], seed, dtype=tf.float64))
    show("truncated", tf.random.stateless_truncated_normal([5], seed, 1.0, 0.5))
    show("integers", tf.random.stateless_uniform([5], seed, 0, 6, tf.int64))
    show("full", tf.random.stateless_uniform([3], seed, None, None, tf.int32))
show("half", tf.cast(tf.random.stateless_uniform([3], [1, 2], dtype=tf.float16), tf.float32))
show("brain", tf.cast(tf.random.stateless_uniform([3], [1, 2], dtype=tf.bfloat16), tf.float32))
show("split", [tf.random.split([1, 2], 3), tf.random.split(tf.constant([1, 2], tf.int64))])
show("fold in", [tf.random.fold_in([1, 2], 5), tf.random.fold_in([1, 2], tf.constant(5, tf.int64))])
show("in a function", tf.function(lambda seed: tf.random.stateless_normal([2], seed))(tf.constant([3, 4])))
show("initializer", tf.random_normal_initializer(seed=3)([3]))
show("initializer", tf.random_uniform_initializer(seed=3)([3]))

one, two = tf.distribute.MirroredStrategy(["cpu:0"]), tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
local = lambda strategy, value: list(strategy.experimental_local_results(value))
draw = lambda strategy, g: local(strategy, strategy.run(lambda: g.uniform_full_int([3], dtype=tf.int32)))
folder = tempfile.mkdtemp()
for name, (first, second) in {"more": (one, two), "fewer": (two, one)}.items():
    with first.scope():
        saved = tf.random.Generator.from_seed(1)
    with second.scope():
        restored = tf.random.Generator.from_seed(10)
    show("before", draw(first, saved))
    path = tf.train.Checkpoint(g=saved).write(f"{folder}/{name}")
    tf.train.Checkpoint(g=restored).restore(path)
    show("goes on", draw(first, saved))
    show(f"restored into {name}", draw(second, restored))
    show("in a function", local(second, tf.function(lambda: second.run(lambda: restored.normal([2])))()))
with two.scope():
    outside = tf.random.Generator.from_seed(10)
    show("in the scope", outside.uniform([2]))
show("from outside", draw(two, outside))
