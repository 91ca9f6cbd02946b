"""Keras training under MirroredStrategy, case by case: `keras_cases.py results.npz part parts`.

Runs unchanged under TensorFlow and under this project. Weights and data come from NumPy, so that results compare.
"""

import sys

import numpy as np
import tensorflow as tf

keras = tf.keras
layers = keras.layers


def mlp(*hidden):
    return keras.Sequential([keras.Input((8,)), layers.Dense(16, activation="relu"), *hidden, layers.Dense(4)])


def regularized():
    return mlp(layers.Dense(16, kernel_regularizer=keras.regularizers.L2(0.05), activity_regularizer="l1"))


def masked():
    tokens = keras.Input((8,))
    x = layers.Embedding(10, 6, mask_zero=True)(layers.ReLU()(tokens))
    return keras.Model(tokens, layers.Dense(4)(layers.GlobalAveragePooling1D()(x)))


def sequence_labels():
    tokens = keras.Input((8,))
    return keras.Model(tokens, layers.Dense(4)(layers.Embedding(10, 6, mask_zero=True)(layers.ReLU()(tokens))))


def two_outputs():
    x = keras.Input((8,))
    hidden = layers.Dense(16, activation="tanh")(x)
    return keras.Model(
        x, {"scores": layers.Dense(4, name="scores")(hidden), "size": layers.Dense(1, name="size")(hidden)}
    )


def convolutional():
    return keras.Sequential(
        [
            keras.Input((8,)),
            layers.Reshape((8, 1)),
            layers.Conv1D(8, 3, activation="relu"),
            layers.MaxPooling1D(),
            layers.Flatten(),
            layers.Dense(4),
        ]
    )


def crossentropy(**options):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def sgd():
    return keras.optimizers.SGD(0.1, momentum=0.9)


CASES = {
    "even": {"rows": 64},
    "uneven last batch": {},
    "empty replicas": {"rows": 18},
    "one row": {"rows": 17},
    "sample weights": {"sample_weight": True, "weighted_metrics": ["accuracy"]},
    "mean by sample weights": {
        "sample_weight": True,
        "loss": lambda: crossentropy(reduction="mean_with_sample_weight"),
    },
    "class weights": {"class_weight": {0: 0.5, 1: 2.0, 2: 1.0, 3: 0.1}},
    "adam": {"optimizer": lambda: keras.optimizers.Adam(0.01)},
    "adamw": {"optimizer": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1)},
    "rmsprop": {"optimizer": lambda: keras.optimizers.RMSprop(0.01)},
    "schedule": {"optimizer": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.2, 2, 0.5))},
    "summed loss": {"optimizer": lambda: keras.optimizers.SGD(0.005), "loss": lambda: crossentropy(reduction="sum")},
    "regularized": {"model": regularized},
    "normalized": {"model": lambda: mlp(layers.BatchNormalization(momentum=0.9)), "rows": 64, "statistics": True},
    "normalized unevenly": {"model": lambda: mlp(layers.BatchNormalization(momentum=0.9)), "statistics": True},
    "masked inputs": {"model": masked, "inputs": "tokens"},
    "masked labels": {"model": sequence_labels, "inputs": "tokens", "labels": "sequence"},
    # Even batches: TensorFlow counts an output's loss by replicas, not by rows, where batches are uneven.
    "two outputs": {
        "rows": 64,
        "model": two_outputs,
        "labels": "two",
        "loss": lambda: {"scores": crossentropy(), "size": "mse"},
        "loss_weights": {"scores": 1.0, "size": 0.3},
        "metrics": {"scores": ["accuracy"], "size": ["mae"]},
    },
    "convolutional": {"model": convolutional},
    "several metrics": {"metrics": lambda: ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2)]},
    "dataset": {"dataset": True},
    "validation": {"validation": True},
    "on batch": {"on_batch": True},
}


def make_data(case):
    random = np.random.default_rng(1)
    rows = case.get("rows", 42)
    x = random.normal(size=(rows, 8)).astype("f4")
    if case.get("inputs") == "tokens":
        x = random.integers(0, 10, (rows, 8)).astype("f4")
    y = random.integers(0, 4, (rows, 8) if case.get("labels") == "sequence" else rows).astype("i4")
    if case.get("labels") == "two":
        y = {"scores": y, "size": random.normal(size=(rows, 1)).astype("f4")}
    return x, y, random.uniform(0.2, 2, rows).astype("f4")


def set_weights(model):
    random = np.random.default_rng(2)
    values = []
    for weight in model.weights:
        if weight.name in ("gamma", "moving_variance"):
            values.append(np.ones(weight.shape, "f4"))
        elif weight.name in ("beta", "moving_mean", "bias"):
            values.append(np.zeros(weight.shape, "f4"))
        else:
            values.append((random.normal(size=weight.shape) * 0.3).astype("f4"))
    model.set_weights(values)


def called(option):
    return option() if callable(option) else option


def run(name, case, strategy):
    with strategy.scope():
        model = case.get("model", mlp)()
        set_weights(model)
        model.compile(
            case.get("optimizer", sgd)(),
            case.get("loss", crossentropy)(),
            loss_weights=case.get("loss_weights"),
            metrics=called(case.get("metrics", ["accuracy"])),
            weighted_metrics=case.get("weighted_metrics"),
        )
    x, y, weights = make_data(case)
    if case.get("on_batch"):
        steps = [model.train_on_batch(x[i : i + 16], y[i : i + 16]) for i in (0, 16, 0)]
        history = {"steps": np.array(steps)}
    else:
        history = fit(model, case, x, y, weights)
    results = {f"{name}/history/{key}": values for key, values in history.items()}
    for i, variable in enumerate(model.trainable_variables):
        results[f"{name}/weights/{i}"] = variable.numpy()
    if case.get("statistics"):  # Moving statistics drift apart under TensorFlow: nothing to compare with.
        return results
    results[f"{name}/evaluated"] = model.evaluate(x, y, batch_size=16, verbose=0)
    predicted = model.predict(x, batch_size=16, verbose=0)
    for key, values in (predicted if isinstance(predicted, dict) else {"": predicted}).items():
        results[f"{name}/predicted/{key}"] = values
    return results


def fit(model, case, x, y, weights):
    options = {"epochs": 2, "verbose": 0, "class_weight": case.get("class_weight")}
    if case.get("validation"):
        options["validation_data"] = (x[:21], y[:21])
    if case.get("dataset"):
        return model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(16), **options).history
    sample_weight = weights if case.get("sample_weight") else None
    return model.fit(x, y, sample_weight=sample_weight, batch_size=16, shuffle=False, **options).history


strategy = tf.distribute.MirroredStrategy([device.name for device in tf.config.list_logical_devices("CPU")])
print("replicas:", strategy.num_replicas_in_sync)
path, part, parts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
everything = {}
for name, case in list(CASES.items())[part::parts]:
    everything |= run(name, case, strategy)
np.savez(path, **everything)
