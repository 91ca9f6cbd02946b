"""Folders of texts and images as datasets and as Keras's generators; names read in batches."""

import os
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from _facts import error, show

os.chdir(tempfile.mkdtemp())
for label in "ab":
    os.makedirs(f"texts/{label}")
    for i in range(3):
        pathlib.Path(f"texts/{label}/{i}.txt").write_text(f"text {label} {i}")
    os.makedirs(f"images/{label}")
    for i in range(2):
        pixels = np.full([4, 6, 3], 40 * i + 100 * (label == "b"), np.uint8)
        pixels[:, 0] = 255
        tf.io.write_file(f"images/{label}/{i}.png", tf.io.encode_png(pixels))


def parts(dataset):
    return [list(element) if isinstance(element, tuple) else element for element in dataset]


def texts(**options):
    return tf.keras.utils.text_dataset_from_directory("texts", **{"shuffle": False, **options})


def images(**options):
    return tf.keras.utils.image_dataset_from_directory("images", shuffle=False, **{"image_size": (2, 2), **options})


paths = sorted(map(str, pathlib.Path("texts").glob("*/*.txt")))
show("read in batches", list(tf.data.Dataset.from_tensor_slices(paths).map(tf.io.read_file).batch(2)))
for options in (
    {"batch_size": 4},
    {"batch_size": None},
    {"label_mode": "categorical"},
    {"label_mode": "binary"},
    {"label_mode": None, "batch_size": 3},
    {"labels": [0, 1, 2, 3, 4, 5]},
    {"max_length": 3},
    {"class_names": ["b", "a"]},
    {"validation_split": 0.5, "subset": "training", "seed": 1},
):
    dataset = texts(**options)
    show(f"texts {options}", parts(dataset))
    show("names", getattr(dataset, "class_names", None))
    show("spec", str(dataset.element_spec))
show("both", [parts(dataset) for dataset in texts(validation_split=0.5, subset="both", seed=1)])
show("shuffled", sorted(text for batch, _ in texts(shuffle=True, seed=3) for text in batch.numpy().tolist()))
show("cached in a file", [parts(dataset) for dataset in [texts(batch_size=4).cache("cached")] * 2])
error("no such mode", lambda: texts(label_mode="x"))
error("no seed", lambda: texts(shuffle=True, validation_split=0.5, subset="training"))
error("no folder", lambda: tf.keras.utils.text_dataset_from_directory("nothing"))

for options in (
    {},
    {"image_size": (2, 3), "color_mode": "grayscale"},
    {"color_mode": "rgba", "batch_size": None},
    {"image_size": (3, 3), "crop_to_aspect_ratio": True},
    {"image_size": (3, 2), "crop_to_aspect_ratio": True, "data_format": "channels_first"},
    {"image_size": (3, 3), "pad_to_aspect_ratio": True},
    {"interpolation": "nearest", "label_mode": "categorical"},
    {"label_mode": None},
    {"data_format": "channels_first"},
):
    dataset = images(**options)
    show(f"images {options}", parts(dataset))
    show("spec", str(dataset.element_spec))
    show("paths", list(map(os.path.basename, dataset.file_paths)))
error("no such colors", lambda: images(color_mode="x"))

Generator = tf.keras.preprocessing.image.ImageDataGenerator
data = np.arange(4 * 4 * 4 * 3, dtype=np.float32).reshape(4, 4, 4, 3), np.arange(4)
changed = Generator(rescale=1 / 255, horizontal_flip=True, width_shift_range=0.2)
np.random.seed(0)
show("flow", list(next(changed.flow(*data, batch_size=2, seed=1))))
flow = Generator().flow_from_directory("images", target_size=(2, 2), batch_size=3, shuffle=False, class_mode="sparse")
show("from a folder", list(next(flow)))
show("classes", flow.class_indices)
show("batches", len(flow))
model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(2, kernel_initializer="zeros")])
model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
show("loss", model.fit(flow, epochs=1, verbose=0, shuffle=False).history["loss"][0] > 0)
show("predicted", model.predict(flow, verbose=0).shape)
