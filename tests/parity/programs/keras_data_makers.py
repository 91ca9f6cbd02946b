"""Layers that adapt to data, and Keras's makers of datasets: windows of time series, parts, folders of images."""

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from _facts import show

L, U, D = tf.keras.layers, tf.keras.utils, tf.data.Dataset
num = np.random.RandomState(0).randn(30, 3).astype("f4")


def adapted(layer, data):
    layer.adapt(data)
    return layer


def facts(dataset):
    return [tf.nest.map_structure(lambda x: np.asarray(x).round(3), element) for element in dataset]


rows = D.from_tensor_slices(num)
show("normalization of batches", adapted(L.Normalization(), rows.batch(10))(num[:1]))
show("normalization of rows", adapted(L.Normalization(axis=None), rows)(num[:1]))
show("normalization of a list", adapted(L.Normalization(axis=None), [num[:10], num[10:]])(num[:1]))
show("discretization of an array", adapted(L.Discretization(num_bins=3), num[:, :1])(num[:4, :1]))
show("discretization of batches", adapted(L.Discretization(num_bins=3), rows.batch(10))(num[:2]))
series = np.arange(20.0)
windows = U.timeseries_dataset_from_array
show("windows", facts(windows(series, series, 4, batch_size=9)))
show("windows apart", facts(windows(series, None, 4, sampling_rate=2, sequence_stride=3, batch_size=9)))
shuffled = windows(series, None, 4, shuffle=True, seed=1, batch_size=1)
show("windows shuffled", sorted(float(np.asarray(window)[0, 0]) for window in shuffled))
show("parts of a dataset", [facts(part) for part in U.split_dataset(D.range(10), left_size=0.7)])
show("parts of batches", [len(facts(part)) for part in U.split_dataset(rows.batch(5), left_size=0.5)])
show("parts of an array", [facts(part) for part in U.split_dataset(np.arange(10, dtype="int32"), right_size=2)])

folder = Path(tempfile.mkdtemp())
for name in "ab":
    (folder / name).mkdir()
    for i in range(3):
        U.save_img(folder / name / f"{i}.png", np.full((8, 6, 3), 40 * i + (name == "b") * 100, "uint8"), scale=False)
images = U.image_dataset_from_directory
ordered = images(folder, image_size=(4, 4), batch_size=2, shuffle=False)
show("images", [(np.asarray(x).mean((1, 2, 3)), y) for x, y in ordered])
show("classes", ordered.class_names)
show("padded", [x.shape[1:] for x, _ in images(folder, image_size=(4, 4), pad_to_aspect_ratio=True)][0].as_list())
parts = images(folder, image_size=(4, 4), validation_split=0.5, subset="both", seed=1, label_mode="categorical")
show("images in parts", [sum(len(y) for _, y in part) for part in parts])
