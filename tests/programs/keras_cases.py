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


def recurrent():
    tokens = keras.Input((8,))
    embedded = layers.Embedding(10, 6, mask_zero=True)(layers.ReLU()(tokens))
    return keras.Model(tokens, layers.Dense(4)(layers.LSTM(5)(embedded)))


def named_inputs():
    inputs = {"left": keras.Input((4,), name="left"), "right": keras.Input((4,), name="right")}
    hidden = layers.Dense(8, activation="relu")(inputs["left"])
    return keras.Model(inputs, layers.Dense(4)(layers.Concatenate()([hidden, inputs["right"]])))


def attentive():
    tokens = keras.Input((8,))
    x = layers.Embedding(10, 8)(layers.ReLU()(tokens))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    return keras.Model(tokens, layers.Dense(4)(layers.Flatten()(x)))


def gated():
    tokens = keras.Input((8,))
    x = layers.Embedding(10, 6)(layers.ReLU()(tokens))
    return keras.Model(tokens, layers.Dense(4)(layers.Bidirectional(layers.GRU(4))(x)))


def frozen():
    model = mlp(layers.Dense(16, activation="tanh"))
    model.layers[0].trainable = False
    return model


def shared():
    x, twice = keras.Input((8,)), layers.Dense(8, activation="tanh")
    return keras.Model(x, layers.Dense(4)(twice(twice(x))))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = [layers.Dense(12, activation="relu"), layers.Dense(12, activation="relu")]
        self.head = layers.Dense(4)
        self(np.zeros((1, 8), "f4"))

    def call(self, x, training=False):
        for layer in self.hidden:
            x = x + 0.5 * layer(x)[:, :8]
        return self.head(x)


class Penalty(layers.Layer):
    def call(self, x):
        self.add_loss(0.1 * tf.reduce_mean(tf.square(x)))
        return x


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
    "nesterov": {"optimizer": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)},
    "weight decay": {"optimizer": lambda: keras.optimizers.SGD(0.1, weight_decay=0.1)},
    "moving averages": {"optimizer": lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9)},
    "adagrad": {"optimizer": lambda: keras.optimizers.Adagrad(0.1)},
    "added loss": {"model": lambda: mlp(Penalty()), "rows": 64},
    "recurrent with masks": {"model": recurrent, "inputs": "tokens"},
    "named inputs": {"model": named_inputs, "inputs": "named"},
    "initial epoch": {"fit": {"initial_epoch": 1, "epochs": 3}},
    "validation split": {"rows": 64, "fit": {"validation_split": 0.25}},
    "validation now and then": {"validation": True, "fit": {"validation_freq": 2, "epochs": 4}},
    "epochs of some steps": {"dataset": True, "fit": {"steps_per_epoch": 2}, "rows": 64},
    "nadam": {"optimizer": lambda: keras.optimizers.Nadam(0.01)},
    "adamax": {"optimizer": lambda: keras.optimizers.Adamax(0.01)},
    "adadelta": {"optimizer": lambda: keras.optimizers.Adadelta(1.0)},
    "ftrl": {"optimizer": lambda: keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.001)},
    "lion": {"optimizer": lambda: keras.optimizers.Lion(0.003)},
    "adafactor": {"optimizer": lambda: keras.optimizers.Adafactor(0.01)},
    "centered rmsprop": {"optimizer": lambda: keras.optimizers.RMSprop(0.01, momentum=0.9, centered=True)},
    "cosine schedule": {
        "optimizer": lambda: keras.optimizers.SGD(
            keras.optimizers.schedules.CosineDecay(0.02, 5, warmup_target=0.2, warmup_steps=2)
        )
    },
    "bfloat16": {"policy": "mixed_bfloat16"},
    "float16": {"policy": "mixed_float16"},
    "fixed loss scale": {"optimizer": lambda: keras.optimizers.SGD(0.1, loss_scale_factor=64.0)},
    "not compiled by xla": {"compile": {"jit_compile": False}},
    "py dataset": {"input": "py dataset"},
    "py dataset with workers": {"input": "py dataset", "workers": 2},
    "distributed dataset": {"input": "distributed", "rows": 64},
    "attention": {"model": attentive, "inputs": "tokens"},
    "both directions": {"model": gated, "inputs": "tokens"},
    "frozen layer": {"model": frozen},
    "shared layer": {"model": shared},
    "subclassed": {"model": Subclassed},
    "sizes": {
        "labels": "size",
        "model": lambda: keras.Sequential([keras.Input((8,)), layers.Dense(8, activation="gelu"), layers.Dense(1)]),
        "loss": lambda: keras.losses.Huber(0.5),
        "metrics": ["mae", "mse", "mape", "cosine_similarity"],
    },
    "yes or no": {
        "labels": "yes or no",
        "model": lambda: keras.Sequential([keras.Input((8,)), layers.Dense(1, activation="sigmoid")]),
        "loss": lambda: "binary_crossentropy",
        "metrics": lambda: [
            "accuracy",
            keras.metrics.AUC(name="auc"),
            keras.metrics.Precision(),
            keras.metrics.Recall(),
        ],
    },
    "one hot": {
        "labels": "one hot",
        "loss": lambda: keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
        "metrics": lambda: ["accuracy", keras.metrics.F1Score(average="macro"), keras.metrics.OneHotIoU(4, [0, 1])],
    },
    "callbacks that change rates": {
        "callbacks": lambda: [
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.7),
            keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=1.0),
        ],
        "fit": {"epochs": 4},
    },
    "stopping early": {
        "callbacks": lambda: [
            keras.callbacks.EarlyStopping("val_loss", patience=1, min_delta=0.3, restore_best_weights=True)
        ],
        "validation": True,
        "fit": {"epochs": 5},
    },
    "swapped averages": {
        "optimizer": lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8),
        "callbacks": lambda: [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)],
        "validation": True,
    },
    "weights of outputs": {
        "rows": 64,
        "model": two_outputs,
        "labels": "two",
        "loss": lambda: {"scores": crossentropy(), "size": "mse"},
        "sample_weight": True,
        "weights_of": ["scores", "size"],
        "weighted_metrics": {"scores": ["accuracy"], "size": ["mae"]},
        "metrics": {"scores": ["accuracy"]},
    },
}


def make_data(case):
    random = np.random.default_rng(1)
    rows = case.get("rows", 42)
    x = random.normal(size=(rows, 8)).astype("f4")
    if case.get("inputs") == "tokens":
        x = random.integers(0, 10, (rows, 8)).astype("f4")
    y = random.integers(0, 4, (rows, 8) if case.get("labels") == "sequence" else rows).astype("i4")
    if case.get("inputs") == "named":
        x = {"left": x[:, :4], "right": x[:, 4:]}
    if case.get("labels") == "two":
        y = {"scores": y, "size": random.normal(size=(rows, 1)).astype("f4")}
    if case.get("labels") == "size":
        y = x.sum(1, keepdims=True) + 3
    if case.get("labels") == "yes or no":
        y = (y > 1).astype("f4")[:, None]
    if case.get("labels") == "one hot":
        y = np.eye(4, dtype="f4")[y]
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
    keras.config.set_dtype_policy(case.get("policy", "float32"))
    with strategy.scope():
        model = case.get("model", mlp)()
        set_weights(model)
        model.compile(
            case.get("optimizer", sgd)(),
            case.get("loss", crossentropy)(),
            loss_weights=case.get("loss_weights"),
            metrics=called(case.get("metrics", ["accuracy"])),
            weighted_metrics=case.get("weighted_metrics"),
            **case.get("compile", {}),
        )
    x, y, weights = make_data(case)
    if case.get("on_batch"):
        steps = [model.train_on_batch(x[i : i + 16], y[i : i + 16]) for i in (0, 16, 0)]
        history = {"steps": np.array(steps)}
    else:
        history = fit(model, case, strategy, x, y, weights)
    results = {f"{name}/history/{key}": values for key, values in history.items()}
    for i, variable in enumerate(model.trainable_variables):
        results[f"{name}/weights/{i}"] = variable.numpy()
    if case.get("statistics"):  # Moving statistics drift apart under TensorFlow: nothing to compare with.
        return results
    results[f"{name}/evaluated"] = model.evaluate(x, y, batch_size=16, verbose=0)
    predicted = model.predict(x, batch_size=16, verbose=0)
    for key, values in (predicted if isinstance(predicted, dict) else {"": predicted}).items():
        results[f"{name}/predicted/{key}"] = np.asarray(values, "f4")  # Files do not know bfloat16.
    return results


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y, workers):
        super().__init__(workers=workers)
        self.x, self.y = x, y

    def __len__(self):
        return -(-len(self.x) // 16)

    def __getitem__(self, i):
        return self.x[16 * i : 16 * i + 16], self.y[16 * i : 16 * i + 16]


def batches_of(case, strategy, x, y):
    batches = Batches(x, y, case.get("workers", 1))
    if case["input"] == "py dataset":
        return batches
    return strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(16))


def fit(model, case, strategy, x, y, weights):
    options = {"epochs": 2, "verbose": 0, "class_weight": case.get("class_weight")}
    options |= case.get("fit", {})
    options["callbacks"] = case.get("callbacks", list)()
    if case.get("validation"):
        options["validation_data"] = (x[:21], y[:21])
    if case.get("dataset"):
        return model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(16), **options).history
    if case.get("input"):
        return model.fit(batches_of(case, strategy, x, y), shuffle=False, **options).history
    sample_weight = weights if case.get("sample_weight") else None
    if case.get("weights_of"):
        sample_weight = {name: weights ** (i + 1) for i, name in enumerate(case["weights_of"])}
    return model.fit(x, y, sample_weight=sample_weight, batch_size=16, shuffle=False, **options).history


strategy = tf.distribute.MirroredStrategy([device.name for device in tf.config.list_logical_devices("CPU")])
print("replicas:", strategy.num_replicas_in_sync)
path, part, parts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
everything = {}
for name, case in list(CASES.items())[part::parts]:
    everything |= run(name, case, strategy)
np.savez(path, **everything)
