"""Elements with parts that are no dense tensors: sparse tensors, None, datasets."""

import numpy as np
import tensorflow as tf
from _facts import error, show

Dataset = tf.data.Dataset
matrix = tf.sparse.SparseTensor([[0, 0], [1, 2]], [1.0, 2.0], [3, 4])


def plain(value):
    """An element in a form that can be shown."""
    if isinstance(value, tf.SparseTensor):
        return ["sparse", value.indices, value.values, np.asarray(value.dense_shape).tolist()]
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return [plain(part) for part in value] if isinstance(value, Dataset) else value


def facts(label, dataset):
    show(label, [[plain(element) for element in dataset], int(dataset.cardinality())])


facts("sparse, from_tensors", Dataset.from_tensors(matrix))
facts("sparse, slices", Dataset.from_tensor_slices(matrix))
facts("sparse beside dense", Dataset.from_tensor_slices((matrix, [7, 8, 9])))
facts("sparse, map", Dataset.from_tensor_slices((matrix, [7, 8, 9])).map(lambda s, x: (tf.sparse.to_dense(s), x)))
facts("sparse, mapped to", Dataset.range(2).map(lambda x: tf.sparse.from_dense(tf.one_hot(x, 3))))
facts("sparse, batch", Dataset.from_tensor_slices(matrix).batch(2))
facts("sparse, repeat and take", Dataset.from_tensors(matrix).repeat(3).take(2))
facts("sparse, filter", Dataset.from_tensor_slices(matrix).filter(lambda s: tf.sparse.reduce_sum(s) > 1.0))
facts("sparse, zip", Dataset.zip(Dataset.from_tensor_slices(matrix), Dataset.range(2)))
generate = lambda: iter([tf.sparse.SparseTensor([[0]], [1], [5]), tf.sparse.SparseTensor([[2]], [3], [5])])
facts("sparse, generator", Dataset.from_generator(generate, output_signature=tf.SparseTensorSpec([5], tf.int32)))
show("sparse, spec", str(Dataset.from_tensor_slices(matrix).element_spec))
show("sparse, spec of batches", str(Dataset.from_tensor_slices(matrix).batch(2).element_spec))
facts("None", Dataset.from_tensors((2, None)))
facts("None, mapped to", Dataset.range(2).map(lambda x: (x, None)))
facts("None, map", Dataset.from_tensors((2, None)).map(lambda x, nothing: x + (0 if nothing is None else 1)))
show("None, spec", str(Dataset.from_tensors((2, None)).element_spec))
facts("datasets", Dataset.from_tensor_slices([Dataset.range(2), Dataset.range(3)]))
facts("datasets, flat_map", Dataset.from_tensor_slices([Dataset.range(2), Dataset.range(3)]).flat_map(lambda d: d))
facts("dataset, from_tensors", Dataset.from_tensors(Dataset.range(2)))
facts("dataset, mapped to", Dataset.range(1, 3).map(lambda x: (x, Dataset.range(x))).flat_map(lambda x, d: d))
show("dataset, spec", str(tf.type_spec_from_value(Dataset.range(2))))
show("reading only", next(Dataset.range(3).batch(2).as_numpy_iterator()).flags.writeable)
error("map to an object", lambda: Dataset.range(3).map(lambda x: object()))
error("map to a function", lambda: Dataset.range(3).map(lambda x: print))
error("map to a set", lambda: Dataset.range(3).map(lambda x: {1, 2}))
spec, wider = (tf.data.DatasetSpec({"a": tf.TensorSpec(shape, tf.int32)}) for shape in ([2], [None]))
show("subtypes", [spec.is_subtype_of(wider), wider.is_subtype_of(spec), spec.is_subtype_of(tf.data.DatasetSpec(spec))])
show("hash", hash(spec) == hash(tf.data.DatasetSpec({"a": tf.TensorSpec([2], tf.int32)})))
