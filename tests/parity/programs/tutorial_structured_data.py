"""The tutorials on tables: CSV files, preprocessing layers, feature spaces, imbalanced classes, windows of time series."""

import os
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from _facts import show

os.chdir(tempfile.mkdtemp())
layers = tf.keras.layers
tf.keras.utils.set_random_seed(1)

rng = np.random.RandomState(0)
ROWS = 64
pets = {
    "Type": rng.choice(["Cat", "Dog"], ROWS),
    "Breed": rng.choice(["Tabby", "Mixed", "Persian"], ROWS),
    "Age": rng.randint(0, 9, ROWS),
    "Fee": rng.randint(0, 300, ROWS),
}
target = ((pets["Age"] > 4) & (pets["Type"] == "Dog")).astype("int64")


def as_dataset(batch_size):
    columns = {key: value[:, tf.newaxis] for key, value in pets.items()}
    return tf.data.Dataset.from_tensor_slices((columns, target)).batch(batch_size).prefetch(2)


[(first, labels)] = as_dataset(5).take(1)
print("columns", list(first.keys()))
print("ages", first["Age"])
print(f"types {first['Type']} labels {labels}")


def encoder(name, lookup):
    lookup.adapt(as_dataset(16).map(lambda x, _: x[name]))
    encode = layers.CategoryEncoding(num_tokens=lookup.vocabulary_size())
    return lambda x: encode(lookup(x))


def normalizer(name):
    layer = layers.Normalization(axis=None)
    layer.adapt(as_dataset(16).map(lambda x, _: x[name]))
    return layer


show("normalized", normalizer("Fee")(first["Fee"]))
show("strings", encoder("Type", layers.StringLookup())(first["Type"]))
show("integers", encoder("Age", layers.IntegerLookup(max_tokens=5))(first["Age"]))
inputs, encoded = {}, []
for name in ("Fee",):
    inputs[name] = tf.keras.Input(shape=(1,), name=name)
    encoded.append(normalizer(name)(inputs[name]))
inputs["Age"] = tf.keras.Input(shape=(1,), name="Age", dtype="int64")
encoded.append(encoder("Age", layers.IntegerLookup(max_tokens=5))(inputs["Age"]))
for name in ("Type", "Breed"):
    inputs[name] = tf.keras.Input(shape=(1,), name=name, dtype="string")
    encoded.append(encoder(name, layers.StringLookup(max_tokens=5))(inputs[name]))
x = layers.Dense(16, activation="relu")(layers.concatenate(encoded))
model = tf.keras.Model(inputs, layers.Dense(1)(x))
model.compile("adam", tf.keras.losses.BinaryCrossentropy(from_logits=True), metrics=["accuracy"])
history = model.fit(as_dataset(16), epochs=5, validation_data=as_dataset(16), verbose=0).history
show("training", [sorted(history), history["loss"][-1] < history["loss"][0]])
model.save("pets.keras")
sample = {"Type": "Cat", "Age": 3, "Breed": "Tabby", "Fee": 100.0}
given = {name: tf.convert_to_tensor([[value]]) for name, value in sample.items()}
loaded = tf.keras.models.load_model("pets.keras")
show("loaded", bool(np.allclose(loaded.predict(given, verbose=0), model.predict(given, verbose=0), atol=1e-6)))

Space = tf.keras.utils.FeatureSpace
space = Space(
    features={"Type": "string_categorical", "Age": "integer_categorical", "Fee": "float_normalized"},
    crosses=[("Type", "Age")],
    crossing_dim=8,
    output_mode="concat",
)
rows = tf.data.Dataset.from_tensor_slices(({key: pets[key] for key in ("Type", "Age", "Fee")}, target))
space.adapt(rows.map(lambda x, _: x))
for x, _ in rows.batch(4).take(1):
    show("features", space(x))
training = tf.keras.Model(space.get_encoded_features(), layers.Dense(1)(space.get_encoded_features()))
training.compile("adam", "mse")
training.fit(rows.batch(16).map(lambda x, y: (space(x), y)), verbose=0)
inference = tf.keras.Model(space.get_inputs(), training(space.get_encoded_features()))
row = {"Type": "Cat", "Age": 3, "Fee": 10.0}
show(
    "inference", inference.predict({key: tf.convert_to_tensor([value]) for key, value in row.items()}, verbose=0).shape
)

TITLE = "sex,age,class,survived"
Path("train.csv").write_text(
    "\n".join([TITLE, "male,22.0,Third,0", "female,38.0,First,1", "female,26.0,Third,1"]) + "\n"
)
batches = tf.data.experimental.make_csv_dataset(
    "train.csv", batch_size=3, label_name="survived", num_epochs=1, ignore_errors=True, shuffle=False
)
for batch, label in batches:
    for key, value in batch.items():
        print(f"{key:6s}: {value}")
    print(f"{'label':6s}: {label}")
lines = Path("train.csv").read_text().split("\n")[1:-1]
for column in tf.io.decode_csv(lines, record_defaults=["", 0.0, "", 0]):
    print(f"type: {column.dtype.name}, shape: {column.shape}, {column}")
simple = tf.data.experimental.CsvDataset("train.csv", record_defaults=["", 0.0, "", 0], header=True)
show("first line", [item.numpy() for item in next(iter(simple))])

values = rng.randn(400, 3)
rare = (values[:, :1] > 1.6).astype("int64")
common, few = np.bincount(rare[:, 0])
print(f"{len(rare)} in all, {few} rare ({100 * few / len(rare):.2f} %)")
names = ["tp", "fp", "tn", "fn"]
kinds = [tf.keras.metrics.TruePositives, tf.keras.metrics.FalsePositives]
kinds += [tf.keras.metrics.TrueNegatives, tf.keras.metrics.FalseNegatives]
metrics = [kind(name=name) for kind, name in zip(kinds, names, strict=True)]
metrics += [tf.keras.metrics.AUC(name="auc"), tf.keras.metrics.AUC(name="prc", curve="PR")]
bias = tf.keras.initializers.Constant(np.log([few / common]))
classes = [
    tf.keras.Input((3,)),
    layers.Dense(8, activation="relu"),
    layers.Dense(1, activation="sigmoid", bias_initializer=bias),
]
classifier = tf.keras.Sequential(classes)
classifier.compile(tf.keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=metrics)
stop = tf.keras.callbacks.EarlyStopping(monitor="val_prc", patience=10, mode="max", restore_best_weights=True)
weights = {0: len(rare) / common / 2.0, 1: len(rare) / few / 2.0}
history = classifier.fit(
    values,
    rare,
    batch_size=64,
    epochs=8,
    validation_data=(values, rare),
    callbacks=[stop],
    class_weight=weights,
    verbose=0,
).history
found = classifier.evaluate(values, rare, batch_size=64, return_dict=True, verbose=0)
show("imbalanced", [sorted(found), sum(found[name] for name in names) == 400.0, found["auc"] > 0.6])

series = np.stack([np.sin(np.arange(120) / 9), np.cos(np.arange(120) / 5)], 1).astype("float32")
windows = tf.keras.utils.timeseries_dataset_from_array(series, targets=None, sequence_length=8, batch_size=16)


def split(window):
    taken, wanted = window[:, :6, :], tf.stack([window[:, 6:, 1]], axis=-1)
    taken.set_shape([None, 6, None])
    wanted.set_shape([None, 2, None])
    return taken, wanted


split_windows = windows.map(split)
print("windows", split_windows.element_spec, [x.shape for x in next(iter(split_windows))])
show("first window", next(iter(split_windows))[1][:2])


class LastValue(tf.keras.Model):
    """Repeats the last value."""

    def call(self, inputs):
        return tf.tile(inputs[:, -1:, 1:], [1, 2, 1])


baseline = LastValue()
baseline.compile(loss=tf.keras.losses.MeanSquaredError(), metrics=[tf.keras.metrics.MeanAbsoluteError()])
show(
    "baseline",
    {key: round(value, 4) for key, value in baseline.evaluate(split_windows, return_dict=True, verbose=0).items()},
)
