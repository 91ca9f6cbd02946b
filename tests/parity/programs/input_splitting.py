"""How batches are split over replicas: rows of each replica for many sizes."""

import tensorflow as tf
from _facts import show

strategies = {n: tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(n)]) for n in (1, 2, 3, 4)}


def rows(strategy, dataset):
    """Rows of each replica, step by step."""
    found = []
    for batch in strategy.experimental_distribute_dataset(dataset):
        found.append([int(tf.shape(part)[0]) for part in strategy.experimental_local_results(batch)])
    return found


for replicas, strategy in strategies.items():
    for count, size in ((1, 1), (3, 4), (10, 4), (10, 3), (7, 7), (9, 2), (5, 8), (12, 5)):
        for drop in (False, True):
            dataset = tf.data.Dataset.range(count).batch(size, drop_remainder=drop)
            show(
                f"{replicas} replicas, {count} in batches of {size}{', dropping' if drop else ''}",
                rows(strategy, dataset),
            )
