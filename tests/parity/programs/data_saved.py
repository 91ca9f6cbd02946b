"""`Dataset.save`, `load` and `snapshot`: folders of elements, in shards, compressed, by readers of one's own."""

import collections
import os
import tempfile

import numpy as np
import tensorflow as tf
from _facts import error, show

os.chdir(tempfile.mkdtemp())
Dataset = tf.data.Dataset
Pair = collections.namedtuple("Pair", "second first")


def plain(value):
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, tf.SparseTensor):
        return [plain(part) for part in (value.indices, value.values, value.dense_shape)]
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    return value if value is None else np.asarray(value.numpy()).tolist()


def values(dataset):
    return [plain(element) for element in dataset]


def reloaded(name, dataset):
    dataset.save(name)
    found = Dataset.load(name)
    spec = found.element_spec
    show(f"{name}: spec", str({key: spec[key] for key in sorted(spec)} if isinstance(spec, dict) else spec))
    show(f"{name}: cardinality", found.cardinality())
    show(name, values(found))


Dataset.range(5).save("numbers")
show("what is in the folder", sorted(name for name in os.listdir("numbers") if not name.isdecimal()))
show("numbers", values(Dataset.load("numbers")))
show("its cardinality", Dataset.load("numbers").cardinality())
show("its length", len(Dataset.load("numbers")))
show("twice", values(Dataset.load("numbers").repeat(2)))
show("with a spec", values(Dataset.load("numbers", tf.TensorSpec([], tf.int64))))
show("by the old names", tf.data.experimental.save(Dataset.range(3), "old"))
show("loaded by the old name", values(tf.data.experimental.load("old")))
show("made and batched", values(Dataset.load("numbers").map(lambda x: x * 2).batch(2)))

reloaded("strings", Dataset.from_tensor_slices(["a", "", "ccc"]))
reloaded("dictionaries", Dataset.from_tensor_slices({"x": np.eye(2), "b": ["u", "v"]}))
reloaded("tuples", Dataset.from_tensor_slices(([1, 2], ([True, False], [1.5, 2.5]))))
reloaded("named", Dataset.from_tensors(Pair(1, (2.0, 3))))
reloaded("batches", Dataset.range(5).batch(2))
reloaded("sparse", Dataset.from_tensor_slices(tf.sparse.from_dense([[1, 0], [0, 2]])))
reloaded("sparse strings", Dataset.from_tensors(tf.sparse.from_dense([["a", ""], ["", "b"]])))
reloaded("ragged", Dataset.from_tensors(tf.ragged.constant([[1], [2, 3]])).repeat(2))
reloaded("ragged twice", Dataset.from_tensors(tf.ragged.constant([[["a"]], [["b", "c"], []]])))
reloaded("ragged rows", Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])))
reloaded("none", Dataset.range(2).map(lambda x: (x, None)))
reloaded("empty", Dataset.range(0))
reloaded("half", Dataset.from_tensor_slices(tf.cast([1, 2.5], tf.bfloat16)))
open_rows = Dataset.from_generator(lambda: iter([[1], [2, 3]]), output_signature=tf.TensorSpec([None], tf.int32))
reloaded("open", open_rows)

Dataset.range(6).save("packed", compression="GZIP")
show("GZIP", values(Dataset.load("packed", compression="GZIP")))
error("GZIP as it is", lambda: values(Dataset.load("packed")))
error("as GZIP", lambda: values(Dataset.load("numbers", compression="GZIP")))

Dataset.range(6).save("shards", shard_func=lambda x: x % 2)
runs = [name for name in os.listdir("shards") if name.isdecimal()]
show("shards", sorted(os.listdir(f"shards/{runs[0]}")))
show("in turn", values(Dataset.load("shards")))
flat = lambda datasets: datasets.flat_map(lambda shard: shard)
show("one after the other", values(Dataset.load("shards", reader_func=flat)))
last_first = lambda datasets: datasets.interleave(lambda shard: shard.map(lambda x: -x), cycle_length=2, block_length=2)
show("interleaved", values(Dataset.load("shards", reader_func=last_first)))
show("shuffled", sorted(values(Dataset.load("shards", reader_func=lambda shards: flat(shards.shuffle(2))))))
error("a shard that is no int64", lambda: Dataset.range(3).save("bad", shard_func=lambda x: tf.cast(x, tf.int32)))
error("a shard that is a number of Python's", lambda: Dataset.range(3).save("bad", shard_func=lambda x: 0))
error("nothing there", lambda: Dataset.load("nothing"))
error("another type", lambda: values(Dataset.load("numbers", tf.TensorSpec([], tf.float32))))

Dataset.range(2).save("numbers")
show("saved again", values(Dataset.load("numbers")))
Dataset.from_tensor_slices([1.5]).save("numbers")
show("as another type", values(Dataset.load("numbers")))

made = []


def noted(x):
    made.append(int(x))
    return x


def snapshot(path, count=3, **options):
    return Dataset.range(count).map(lambda x: tf.py_function(noted, [x], tf.int64)).snapshot(path, **options)


kept = snapshot("kept")
show("first", values(kept))
show("second", values(kept))
show("the last one is made once", made.count(2))
show("its cardinality as before", kept.cardinality())
show("old form", values(Dataset.range(3).apply(tf.data.experimental.snapshot("old form"))))
show("other pipeline", values(Dataset.range(3).map(lambda x: x * 2).snapshot("kept")))
show("other data", [values(Dataset.from_tensor_slices(x).snapshot("data").repeat(2)) for x in ([1, 2], [3, 4])])
show("GZIP snapshot", values(snapshot("packed snapshot", compression="GZIP").repeat(2)))
partial = snapshot("partial", 6)
show("partial", values(partial.take(2)))
show("whole after it", [values(partial), values(partial)])
own = {"shard_func": lambda x: x % 2, "reader_func": flat}
sharded = snapshot("own", 4, **own)
show("own functions", [values(sharded), values(sharded)])

writer = tf.data.experimental.TFRecordWriter("records")
show("written", writer.write(Dataset.from_tensor_slices(["a", "bb"])))
show("records", values(tf.data.TFRecordDataset("records")))
error("records of numbers", lambda: writer.write(Dataset.range(3)))
error("no dataset", lambda: writer.write(["a"]))
