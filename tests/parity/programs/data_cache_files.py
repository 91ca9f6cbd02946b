"""Datasets that are cached in files: written by the first whole iteration, read by later ones and by other datasets."""

import glob
import os
import tempfile

import numpy as np
import tensorflow as tf
from _facts import error, show

os.chdir(tempfile.mkdtemp())
Dataset = tf.data.Dataset
made = []


def noted(x):
    made.append(int(x))
    return x


def counted(count=4):
    """A dataset whose elements tell when they are made."""
    return Dataset.range(count).map(lambda x: tf.py_function(noted, [x], tf.int64))


def values(dataset):
    return [plain(element) for element in dataset]


def plain(value):
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, tf.SparseTensor):
        return [plain(part) for part in (value.indices, value.values, value.dense_shape)]
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    return value if value is None else value.numpy().tolist() if hasattr(value.numpy(), "tolist") else value.numpy()


def drain(dataset):
    iterator, found = iter(dataset), []
    while True:
        try:
            found.append(plain(next(iterator)))
        except StopIteration:
            return found
        except Exception as raised:
            found.append(type(raised).__name__)
            if len(found) > 9:
                return found


def errors(found):
    return sorted({item for item in found if isinstance(item, str)})


def again(name, dataset):
    """Whether a second iteration, and one of another dataset, give what the first one gives."""
    cached = dataset.cache(name)
    first = values(cached)
    show(f"{name} again", values(cached) == first == values(dataset.cache(name)))
    return first


show("first iteration", values(counted().cache("numbers")))
show("the last one is made", made.count(3))
show("there are files", bool(glob.glob("numbers*")))
show("other dataset", values(counted().cache("numbers")))
show("is made once", made.count(3))
show("the file counts, not the dataset", values(Dataset.range(7, 9).cache("numbers")))
show("its cardinality is the dataset's", Dataset.range(7, 9).cache("numbers").cardinality())
show("by tensor", values(Dataset.range(3).cache(tf.constant("numbers"))))
show("by bytes", values(Dataset.range(3).cache(b"numbers")))
error("by number", lambda: Dataset.range(3).cache(3))

made.clear()
partial = counted().cache("partial")
next(iter(partial))
show("a partial iteration leaves nothing", glob.glob("partial*"))
show("take", values(partial.take(2)))
show("a take leaves nothing", glob.glob("partial*"))
show("then a whole one", [values(partial), values(partial)])
show("how often the last one was made", made.count(3))

show("repeat", values(Dataset.range(2).cache("repeat").repeat(3)))
show("batches", values(Dataset.range(5).cache("batches").batch(2).repeat(2)))
show("batches of batches", values(Dataset.range(5).batch(2).cache("batched").repeat(2)))
shuffled = Dataset.range(50).shuffle(50).cache("shuffled")
show("shuffle before has one order", values(shuffled) == values(shuffled))
later = Dataset.range(50).cache("later").shuffle(50)
show("shuffle after holds the same", sorted(values(later)) == sorted(values(later)) == list(range(50)))
show("and has other orders", values(later) != values(later))
show("no elements", values(Dataset.range(0).cache("none").repeat(2)))
show("prefetch", values(Dataset.range(3).cache("prefetch").prefetch(1).repeat(2)))
show("both caches", values(Dataset.range(3).cache("below").cache().repeat(2)))

show("strings", again("strings", Dataset.from_tensor_slices(["a", "", "ccc"])))
show("dictionaries", again("dictionaries", Dataset.from_tensor_slices({"x": np.eye(2), "b": ["u", "v"]})))
show("tuples", again("tuples", Dataset.from_tensor_slices(([1, 2], ([True, False], [1.5, 2.5])))))
show("sparse", again("sparse", Dataset.from_tensor_slices(tf.sparse.from_dense([[1, 0], [0, 2]]))))
show("ragged", again("ragged", Dataset.from_tensors(tf.ragged.constant([[1], [2, 3]])).repeat(2)))
rows = Dataset.from_generator(lambda: iter([[1], [2, 3], []]), output_signature=tf.TensorSpec([None], tf.int32))
show("rows of several lengths", again("rows", rows))
show("None", again("nothing", Dataset.range(2).map(lambda x: (x, None))))
show("half precision", again("half", Dataset.from_tensor_slices(tf.cast([1, 2.5], tf.bfloat16))))

checked = Dataset.from_tensor_slices([0.0, np.nan, 2.0]).map(lambda x: tf.debugging.check_numerics(x, "m"))
show("elements that are errors", drain(checked.cache("errors").repeat(2)))
show("are not in the file", drain(checked.cache("errors")))
show("ignored errors", drain(checked.cache("ignored").ignore_errors()))
show("another type", errors(drain(Dataset.from_tensor_slices([1.0, 2.0]).cache("numbers"))))
show("no such folder", errors(drain(Dataset.range(3).cache("no/such/folder/x"))))
for name in glob.glob("repeat*"):
    os.remove(name)
show("deleted", values(Dataset.range(5, 7).cache("repeat").repeat(2)))

one = tf.distribute.MirroredStrategy(["/cpu:0"])
distributed = one.experimental_distribute_dataset(Dataset.range(4).cache("distributed").batch(2))
show("distributed", [values(distributed), values(distributed)])
show("not distributed", values(Dataset.range(4).cache("distributed")))
