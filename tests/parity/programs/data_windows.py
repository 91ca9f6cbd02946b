"""Windows, padded batches and buckets of datasets."""

import tensorflow as tf
from _facts import error, show

Dataset = tf.data.Dataset
plain = lambda dataset: [e.tolist() for e in dataset.as_numpy_iterator()]
lines = Dataset.from_tensor_slices([3, 1, 4, 1, 5, 2]).map(lambda n: n)
ragged = lines.flat_map(lambda n: Dataset.from_tensors(tf.fill([n], n)))


def windows(*args, **kwargs):
    dataset = Dataset.range(7).window(*args, **kwargs)
    return [[plain(window) for window in dataset], int(dataset.cardinality())]


show("window", windows(3))
show("dropping", windows(3, drop_remainder=True))
show("shifted", windows(3, 1, drop_remainder=True))
show("shifted, with rests", windows(3, shift=2))
show("with strides", windows(3, 1, 2, True))
show("with strides and rests", windows(2, 3, 2))
show("far apart", windows(2, 5))
show("spec", str(Dataset.range(7).window(3).element_spec))
show("batches of windows", plain(Dataset.range(6).window(3, 1, drop_remainder=True).flat_map(lambda w: w.batch(3))))
pairs = Dataset.from_tensor_slices({"a": [1, 2, 3], "b": [4, 5, 6]}).window(2)
show("windows of dicts", [[plain(w["a"]), plain(w["b"])] for w in pairs])
tuples = Dataset.zip(Dataset.range(4), Dataset.range(4, 8)).window(2)
show("windows of tuples", [[plain(a), plain(b)] for a, b in tuples])
to_batches = lambda a, b: Dataset.zip(a.batch(2), b.batch(2))
show("and back", [[a.numpy().tolist(), b.numpy().tolist()] for a, b in tuples.flat_map(to_batches)])
error("window of nothing", lambda: list(Dataset.range(3).window(0)))


def padded(*args, **kwargs):
    dataset = ragged.padded_batch(*args, **kwargs)
    return [plain(dataset), str(dataset.element_spec)]


show("padded", padded(4, [None]))
show("padded, dropping", padded(4, [None], drop_remainder=True))
show("padded to a size", padded(3, [6]))
show("padded with a value", padded(6, [None], padding_values=-1))
own = Dataset.from_generator(
    lambda: iter([([1], 1.0), ([1, 2], 2.0)]),
    output_signature=(tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.float32)),
)
show("own shapes", [[a.numpy().tolist(), b.numpy().tolist()] for a, b in own.padded_batch(2)])
both = own.padded_batch(2, padded_shapes=([3], []), padding_values=(9, 0.0))
show("shapes and values of each", [[a.numpy().tolist(), b.numpy().tolist()] for a, b in both])
texts = Dataset.from_generator(lambda: iter([["a"], ["b", "c"]]), output_signature=tf.TensorSpec([None], tf.string))
show("texts", plain(texts.padded_batch(2)))
matrices = Dataset.range(1, 3).flat_map(lambda n: Dataset.from_tensors(tf.ones([n, 3 - n], tf.int32)))
show("matrices", plain(matrices.padded_batch(2, [None, None])))
error("too large", lambda: plain(ragged.padded_batch(3, [2])))
error("value of another type", lambda: plain(ragged.padded_batch(3, [None], padding_values=tf.constant(1.0))))
error("shapes of another structure", lambda: plain(own.padded_batch(2, padded_shapes=[None])))

length = lambda x: tf.shape(x)[0]
buckets = ragged.bucket_by_sequence_length(length, [3, 5], [2, 2, 1], padded_shapes=[None])
show("buckets", plain(buckets))
fixed = ragged.filter(lambda x: length(x) < 5).bucket_by_sequence_length(
    length, [3, 5], [2, 2, 1], padded_shapes=[None], pad_to_bucket_boundary=True
)
show("buckets of fixed sizes", plain(fixed))
error("sizes of buckets", lambda: ragged.bucket_by_sequence_length(length, [3, 5], [2, 2]))
even = Dataset.range(10).group_by_window(lambda x: x % 2, lambda key, group: group.batch(3), window_size=3)
show("groups", plain(even))
sizes = Dataset.range(10).group_by_window(
    lambda x: x % 2, lambda key, group: group.batch(4), window_size_func=lambda key: key + 1
)
show("groups of different sizes", plain(sizes))
error("no size of groups", lambda: Dataset.range(3).group_by_window(lambda x: x, lambda key, group: group))
