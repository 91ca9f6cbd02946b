"""When datasets draw the same random numbers again: in functions of elements, and in orders."""

import tensorflow as tf
from _facts import show

Dataset = tf.data.Dataset


def drawn(dataset):
    return [float(x) for x in dataset]


def order(dataset):
    return [int(x) for x in dataset]


number = lambda x: tf.random.uniform([])
seeded = lambda x: tf.random.uniform([], seed=5)

free = Dataset.range(4).map(number)
show("without any seed", drawn(free) == drawn(free))
show("a seed of its own", drawn(Dataset.range(4).map(seeded)) == drawn(Dataset.range(4).map(seeded)))
twice = drawn(Dataset.range(4).map(seeded).repeat(2))
show("repeated goes on", [twice[:4] == drawn(Dataset.range(4).map(seeded)), twice[:4] == twice[4:]])
show("elements differ", len(set(drawn(free))))
show("in batches", [tuple(b.shape) for b in Dataset.range(4).map(lambda x: tf.random.normal([2])).batch(3)])
pairs = [(float(a), float(b)) for a, b in Dataset.range(4).map(lambda x: (number(x), number(x)))]
show("two draws", any(a == b for a, b in pairs))
kept = free.cache()
show("cached", drawn(kept) == drawn(kept))
batches = Dataset.range(6).batch(3).map(lambda b: tf.random.uniform([3]))
show("maps of batches", len({float(x) for b in batches for x in b}))

tf.random.set_seed(7)
first = Dataset.range(4).map(number)
runs = [drawn(first), drawn(first)]
show("the global seed begins each iteration", runs[0] == runs[1])
tf.random.set_seed(7)
show("and the program again", drawn(Dataset.range(4).map(number)) == runs[0])
tf.random.set_seed(8)
show("another global seed", drawn(Dataset.range(4).map(number)) == runs[0])
image = Dataset.from_tensors(tf.reshape(tf.range(12.0), [2, 2, 3])).repeat(8).map(tf.image.random_flip_left_right)
show("flips are of both kinds", len({str(x.numpy().tolist()) for x in image}))


def in_a_loop(x):
    total = tf.zeros([])
    for _ in tf.range(3):
        total += tf.random.uniform([])
    return total, tf.random.uniform([])


totals = [(float(a), float(b)) for a, b in Dataset.range(3).map(in_a_loop)]
show("loops", [len(set(totals)), all(0 < a < 3 and a != 3 * b for a, b in totals)])
chosen = Dataset.range(200).filter(lambda x: tf.random.uniform([]) < 0.5)
show("filters", 50 < len(order(chosen)) < 150)

tf.random.set_seed(7)
shuffled = Dataset.range(20).shuffle(20)
orders = [order(shuffled), order(shuffled)]
show("orders differ", orders[0] == orders[1])
tf.random.set_seed(7)
shuffled = Dataset.range(20).shuffle(20)
show("the global seed repeats them", [order(shuffled) == orders[0], order(shuffled) == orders[1]])
fixed = Dataset.range(20).shuffle(20, reshuffle_each_iteration=False)
show("a fixed order", order(fixed) == order(fixed))
parts = order(Dataset.range(20).shuffle(20, seed=3).repeat(2))
show("repeated in other orders", [sorted(parts[:20]) == sorted(parts[20:]), parts[:20] == parts[20:]])
parts = order(fixed.repeat(2))
show("repeated in a fixed order", parts[:20] == parts[20:])
own = Dataset.range(20).shuffle(20, seed=3)
show("asking for the type changes nothing", [str(own.element_spec), order(own) == order(own)])

weights = [0.5, 0.0, 0.5]
parts = [Dataset.from_tensors(i).repeat(50) for i in range(3)]
sampled = order(Dataset.sample_from_datasets(parts, weights, seed=1).take(40))
show("sampled", [sorted(set(sampled)), 5 < sampled.count(0) < 35])
uniform = order(Dataset.sample_from_datasets(parts, stop_on_empty_dataset=True))
show("until one is empty", max(uniform.count(i) for i in range(3)))
show("all of them", sorted(order(Dataset.sample_from_datasets(parts))) == [0] * 50 + [1] * 50 + [2] * 50)
numbers = Dataset.random(seed=4).take(3)
show("random", [order(numbers) == order(numbers), min(order(numbers)) >= 0, str(numbers.element_spec)])
again = Dataset.random(seed=4, rerandomize_each_iteration=True).take(3)
show("random, new ones", order(again) == order(again))
skewed = Dataset.from_tensor_slices([0] * 90 + [1] * 10).shuffle(100, seed=2).repeat(10)
even = skewed.rejection_resample(lambda x: x, [0.5, 0.5], initial_dist=[0.9, 0.1], seed=3)
classes = [int(kind) for kind, _ in even]
show("resampled", [len(classes) < 400, 0.3 < sum(classes) / len(classes) < 0.7, str(even.element_spec)])
