"""Train one model under the strategy that is named, by the same seeds; prints its history as JSON."""

import json
import sys

import numpy as np
import tensorflow as tf


def make_strategy(name):
    if name == "default":
        return tf.distribute.get_strategy()
    if name == "one device":
        return tf.distribute.OneDeviceStrategy("/cpu:1")
    if name == "tpu":
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    return tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(int(name))])


def train(strategy):
    tf.keras.utils.set_random_seed(3)
    x, y = np.random.normal(size=(80, 8)).astype("f4"), np.random.randint(0, 4, 80)
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.Input((8,)),
                tf.keras.layers.Dense(16, activation="relu", kernel_regularizer="l2"),
                tf.keras.layers.LayerNormalization(),
                tf.keras.layers.Dense(4),
            ]
        )
        schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.05, 4, 0.5)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(schedule, global_clipnorm=0.5), loss, metrics=["accuracy"])
    weight = {0: 1.0, 1: 2.0, 2: 0.5, 3: 1.0}
    history = model.fit(x, y, batch_size=16, epochs=3, validation_split=0.2, class_weight=weight, verbose=0).history
    return history | {
        "evaluated": model.evaluate(x, y, verbose=0),
        "predicted": model.predict(x[:3], verbose=0).tolist(),
    }


if __name__ == "__main__":
    strategies = {name: make_strategy(name) for name in sys.argv[1:]}
    histories = {name: train(strategy) for name, strategy in strategies.items()}
    print(json.dumps({"replicas": {n: s.num_replicas_in_sync for n, s in strategies.items()}, "histories": histories}))
