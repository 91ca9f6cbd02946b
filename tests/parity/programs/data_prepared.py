"""`tensorflow_datasets`: a small dataset is prepared, then loaded in the ways that programs load datasets."""

import contextlib
import io
import logging
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from _facts import error, show

logging.disable(logging.WARNING)
tfds.disable_progress_bar()
folder = tempfile.mkdtemp()


class TinyDigits(tfds.core.GeneratorBasedBuilder):
    """Images with labels and names."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(shape=(4, 4, 1)),
                "label": tfds.features.ClassLabel(num_classes=10),
                "name": tfds.features.Text(),
                "box": tfds.features.FeaturesDict({"at": tfds.features.Tensor(shape=(2,), dtype=np.float32)}),
            }
        )
        return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=("image", "label"))

    def _split_generators(self, downloads):
        return {"train": self._generate_examples(60), "test": self._generate_examples(10)}

    def _generate_examples(self, count):
        for i in range(count):
            image = np.full((4, 4, 1), i, np.uint8)
            yield i, {"image": image, "label": i % 10, "name": f"n{i}", "box": {"at": [i, 0.5]}}


class TinyTexts(tfds.core.GeneratorBasedBuilder):
    """Sequences of different lengths."""

    VERSION = tfds.core.Version("2.0.0")

    def _info(self):
        features = tfds.features.FeaturesDict({"ids": tfds.features.Sequence(np.int64), "score": np.float32})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, downloads):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for i in range(6):
            yield i, {"ids": list(range(i)), "score": i / 2}


config = tfds.download.DownloadConfig(num_shards=4)
with contextlib.redirect_stdout(io.StringIO()):
    tfds.builder("tiny_digits", data_dir=folder).download_and_prepare(download_config=config)
    tfds.load("tiny_texts", data_dir=folder)
load = lambda name, **options: tfds.load(name, data_dir=folder, **options)
train, info = load("tiny_digits", split="train", with_info=True)
show("info", [info.name, info.splits["train"].num_examples, info.features["label"].num_classes])
show("type", [isinstance(train, tf.data.Dataset), str(sorted(train.element_spec.items())), int(train.cardinality())])
first = next(iter(train))
show("element", [first["name"], first["image"][0, 0], first["label"], first["box"]["at"]])
show("order", [int(x["label"]) for x in train])
show("names", [x["name"].numpy().decode() for x in train.skip(50)])
train, test = load("tiny_digits", split=["train", "test"], as_supervised=True)
show("pairs", [str(train.element_spec), [int(label) for _, label in test]])
scaled = train.map(lambda image, label: (tf.cast(image, tf.float32) / 255.0, label)).cache().shuffle(60).batch(16)
images, labels = next(iter(scaled))
show("batches", [tuple(images.shape), images.dtype.name, tuple(labels.shape), len(list(scaled))])
show("each once", sorted(int(255 * x[0, 0, 0] + 0.5) for batch, _ in scaled for x in batch.numpy()) == list(range(60)))
show("all splits", sorted(load("tiny_digits")))
parts = load("tiny_digits", split=["train[:50%]", "train[50%:]", "train[10:13]", "train+test"])
show("parts", [len(part) for part in parts])
show("numbers", [int(x["image"][0, 0, 0]) for x in parts[2]])
ways = {"a": "train", "b": ("test", "test[:2]")}
show("structures", [len(load("tiny_digits", split=ways)["a"]), len(load("tiny_digits", split=ways)["b"][1])])
batched = load("tiny_digits", split="test", batch_size=4)
show("in batches", [[int(x) for x in batch["label"]] for batch in batched])
whole = load("tiny_digits", split="test", batch_size=-1)
show("whole", [tuple(whole["image"].shape), whole["label"]])
shuffled = load("tiny_digits", split="train", shuffle_files=True, as_supervised=True)
show("files in any order", sorted(int(image[0, 0, 0]) for image, _ in shuffled) == list(range(60)))
config = tfds.ReadConfig(interleave_cycle_length=1)
show("file by file", [int(x["image"][0, 0, 0]) for x in load("tiny_digits", split="train", read_config=config)])
config = tfds.ReadConfig(interleave_cycle_length=2, interleave_block_length=3)
show("in turn", [int(x["image"][0, 0, 0]) for x in load("tiny_digits", split="train", read_config=config)])
context = tf.distribute.InputContext(2, 1, 2)
config = tfds.ReadConfig(input_context=context)
show("a pipeline's files", sum(1 for _ in load("tiny_digits", split="train", read_config=config)))
skipping = {"image": tfds.decode.SkipDecoding()}
raw = load("tiny_digits", split="test", decoders=skipping)
show("not decoded", [raw.element_spec["image"].dtype.name, next(iter(raw))["image"].numpy()[:4]])
arrays = tfds.as_numpy(test)
show("as_numpy", [type(arrays).__name__ != "list", len(arrays), sorted({type(x).__name__ for x, _ in arrays})])
show("as_numpy of a tensor", tfds.as_numpy(whole)["label"])
texts = load("tiny_texts", split="train")
show("sequences", [str(sorted(texts.element_spec.items())), sorted(x["ids"].numpy().tolist() for x in texts)])
padded = load("tiny_texts", split="train", batch_size=6)
show("padded", sorted(x.tolist() for x in next(iter(padded))["ids"].numpy()))
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
distributed = strategy.experimental_distribute_dataset(train.batch(40))
total = lambda image, label: tf.reduce_sum(tf.cast(image, tf.int64))
show("distributed", [strategy.reduce("SUM", strategy.run(total, args=batch), axis=None) for batch in distributed])
error("no such split", lambda: load("tiny_digits", split="validation"))
error("no pairs", lambda: load("tiny_texts", split="train", as_supervised=True))
error("not prepared", lambda: tfds.load("tiny_digits", data_dir=tempfile.mkdtemp(), download=False))
