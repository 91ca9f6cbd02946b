"""Call new models for the first time from four threads at once; prints errors as JSON."""

import json
import threading
import traceback

import numpy as np
import tensorflow as tf

MODELS, THREADS = 10, 4
errors = []


def call_at_once(model, start, rows):
    start.wait()
    try:
        assert model(np.ones((rows, 8), np.float32)).shape == (rows, 1)
    except BaseException:
        errors.append(traceback.format_exc())


for _ in range(MODELS):
    model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)])
    start = threading.Barrier(THREADS)
    threads = [threading.Thread(target=call_at_once, args=(model, start, rows)) for rows in range(1, THREADS + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [weight.shape for weight in model.weights] == [(8, 16), (16,), (16, 1), (1,)]
print(json.dumps({"errors": errors}))
