"""Datasets that `tensorflow_datasets` has prepared, loaded by programs under this project."""

import struct
import subprocess
import sys

import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.io._records import RecordFile

# As if TensorFlow were not installed, for libraries too.
WITHOUT_TENSORFLOW = """
import sys
from importlib.machinery import PathFinder

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] == "tensorflow" else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = NotInstalled()
"""

BUILDER = """
import sys
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
tfds.disable_progress_bar()

class TinyDigits(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        image, label = tfds.features.Image(shape=(8, 8, 1)), tfds.features.ClassLabel(num_classes=4)
        features = tfds.features.FeaturesDict({"image": image, "label": label, "name": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=("image", "label"))

    def _split_generators(self, downloads):
        return {"train": self._generate_examples(64), "test": self._generate_examples(16)}

    def _generate_examples(self, count):
        for i in range(count):
            yield i, {"image": np.full((8, 8, 1), 60 * (i % 4), np.uint8), "label": i % 4, "name": str(i)}
"""

TRAINING = """
(train, test), info = tfds.load(
    "tiny_digits", split=["train", "test"], as_supervised=True, with_info=True, data_dir="prepared"
)
scale = lambda image, label: (tf.cast(image, tf.float32) / 255, label)
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(4)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
history = model.fit(train.map(scale).cache().shuffle(64).batch(16), epochs=30, verbose=0)
accuracy = model.evaluate(test.map(scale).batch(16), verbose=0)[1]
assert isinstance(train, tf.data.Dataset) and info.splits["train"].num_examples == 64
assert history.history["loss"][-1] < history.history["loss"][0]
assert accuracy > 0.7, accuracy
assert sorted(int(label) for _, label in tfds.as_numpy(train)) == sorted(list(range(4)) * 16)
import pathlib
print([path.suffix for path in pathlib.Path("prepared/tiny_digits/1.0.0").glob("*train*")])
"""


def test_a_model_is_trained_on_what_load_gives_without_tensorflow(run_program):
    # Without TensorFlow, `tensorflow_datasets` reads images, and cannot write them.
    builder = BUILDER.replace("Image(shape=(8, 8, 1))", "Tensor(shape=(8, 8, 1), dtype=np.uint8)")
    ran = run_program(WITHOUT_TENSORFLOW + builder + TRAINING, devices=2)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "['.array_record-00000-of-00001']"


SHOWING = """
config = tfds.download.DownloadConfig(num_shards=3)
tfds.builder("tiny_digits", data_dir=sys.argv[1]).download_and_prepare(download_config=config)
for split in ("train", "test[3:9]", "train[10%:40%]"):
    dataset = tfds.load("tiny_digits", split=split, data_dir=sys.argv[1])
    print([(x["name"].numpy().decode(), int(x["label"]), int(x["image"].numpy().sum())) for x in dataset])
for i in (0, 1):
    print([x["name"].numpy().decode() for x in part_of(tfds.load("tiny_digits", split="train", data_dir=sys.argv[1]), i)])
"""
PART_OF_TENSORFLOWS = """
from tensorflow.python.data.experimental.ops.distribute import _AutoShardDataset
def part_of(dataset, i):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    return _AutoShardDataset(dataset.with_options(options), 2, i)
"""
PART_OF_OURS = """
from tfdist_jax.compat.tensorflow.data._seed_log import DataShard
def part_of(dataset, i):
    assert (dataset.files.count, dataset.files.are_read) == (3, True)
    return dataset.shared(DataShard("files", 2, i))
"""


@pytest.mark.peers
def test_what_tensorflow_has_written_is_read_in_the_same_order(run_program, tmp_path):
    folder = str(tmp_path / "written")
    program = tmp_path / "real.py"
    program.write_text(BUILDER + PART_OF_TENSORFLOWS + SHOWING)
    real = subprocess.run(
        [sys.executable, str(program), folder],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=tmp_path,
        check=True,
    )
    ran = run_program(WITHOUT_TENSORFLOW + BUILDER + PART_OF_OURS + SHOWING, folder, devices=1)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == real.stdout.splitlines()[-5:]
    assert list((tmp_path / "written/tiny_digits/1.0.0").glob("*.tfrecord-00000-of-00003"))


def _written(path, records):
    path.write_bytes(b"".join(struct.pack("<QI", len(r), 0) + r + bytes(4) for r in records))
    return path


def test_records_are_found_by_number(tmp_path):
    records = RecordFile(_written(tmp_path / "some", [b"one", b"", b"three"]))
    assert (len(records), records[2], records[-1], list(records[:2])) == (3, b"three", b"three", [b"one", b""])
    assert list(RecordFile(_written(tmp_path / "none", []))) == []
    with pytest.raises(IndexError):
        records[3]


@pytest.mark.parametrize("end", [1, 7, 13, 18])
def test_a_truncated_file_is_no_data(tmp_path, end):
    path = _written(tmp_path / "cut", [b"one", b"two"])
    path.write_bytes(path.read_bytes()[: 19 + end])
    with pytest.raises(tf.errors.DataLossError, match="truncated"):
        RecordFile(path)
