"""Build, train, evaluate, use and read one model from eight threads; prints errors and whether all steps count, as JSON."""

import json
import threading
import traceback

import numpy as np
import tensorflow as tf

TIMES = 10
x, y = np.ones((256, 8), np.float32), np.zeros((256, 1), np.float32)
with tf.distribute.MirroredStrategy().scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
uses = [
    lambda: model.fit(x, y, verbose=0, batch_size=32),
    lambda: model.fit(x, y, verbose=0, batch_size=32),
    lambda: model.train_on_batch(x[:16], y[:16]),
    lambda: model.evaluate(x, y, verbose=0),
    lambda: model.predict(x, verbose=0),
    lambda: model.predict_on_batch(x[:4]),
    lambda: model(x[:4]),
    lambda: model.get_weights(),
]
errors = []


def work(use):
    try:
        for _ in range(TIMES):
            use()
    except BaseException:
        errors.append(traceback.format_exc())


threads = [threading.Thread(target=work, args=(use,)) for use in uses]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps({"errors": errors, "steps": int(model.optimizer.iterations) == TIMES * (8 + 8 + 1)}))
