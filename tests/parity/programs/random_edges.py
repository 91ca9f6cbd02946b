"""Random draws of no numbers, from empty or whole ranges, and of sizes that there are not; generators that skip far."""

import tensorflow as tf
from _facts import show

SEED = [1, 2]


def generator():
    return tf.random.Generator.from_seed(1234)


def attempt(label, draw):
    try:
        show(label, draw())
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        print(f"{label}: {type(error).__name__}")


for dtype in (tf.float16, tf.float32, tf.float64):
    for shape in ([0], [0, 4], [5]):
        show(f"truncated {dtype.name} {shape}", tf.random.stateless_truncated_normal(shape, SEED, dtype=dtype))
        show(f"of a generator {dtype.name} {shape}", generator().truncated_normal(shape, dtype=dtype))
for dtype in (tf.int32, tf.int64):
    for low, high in ((5, 5), (7, 5), (5, 6), (dtype.min, dtype.max)):
        draws = {
            "stateless": lambda shape: tf.random.stateless_uniform(shape, SEED, low, high, dtype),
            "generator": lambda shape: generator().uniform(shape, low, high, dtype),
            "global": lambda shape: tf.shape(tf.random.uniform(shape, low, high, dtype)),
        }
        for name, draw in draws.items():
            attempt(f"{name} {dtype.name} from {low} to {high}", lambda: draw([3]))
            attempt(f"{name} {dtype.name} from {low} to {high}, none", lambda: draw([0]))
    attempt(f"generator {dtype.name}, whole range", lambda: generator().uniform([3], None, None, dtype))
attempt("floats without a range", lambda: tf.random.stateless_uniform([3], SEED, None, None))
for name in ("uniform", "normal", "truncated_normal"):
    attempt(f"{name} of a negative size", lambda: getattr(tf.random, name)([-1]))
    attempt(f"stateless {name} of a negative size", lambda: getattr(tf.random, f"stateless_{name}")([2, -1], SEED))
attempt("a seed of floats", lambda: tf.random.stateless_uniform([3], tf.constant([1.0, 2.0])))
attempt("a seed too large", lambda: tf.random.stateless_uniform([3], [2**63, 1]))
far = generator()
far.skip(2**62 + 3)
show("after a long way", [far.state.numpy(), far.normal([2])])
