"""Datasets of ragged tensors: their rows, batches of rows and of tensors that differ in shape, and what becomes of them."""

import tensorflow as tf
from _facts import error, show

Dataset = tf.data.Dataset
rows = tf.ragged.constant([[1, 2], [], [3]])
deep = tf.ragged.constant([[[1, 2], [3]], [], [[4]]])
vectors = tf.RaggedTensor.from_row_splits([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [0, 1, 3])
texts = tf.ragged.constant([["a", "bb"], [], ["c"]])


def tell(label, dataset):
    print(f"{label}: {dataset.element_spec}")
    show(label, list(dataset))


for name, value in {"rows": rows, "deep": deep, "vectors": vectors, "texts": texts}.items():
    tell(f"slices of {name}", Dataset.from_tensor_slices(value))
    tell(f"batches of {name}", Dataset.from_tensor_slices(value).batch(2))
    tell(f"whole batches of {name}", Dataset.from_tensor_slices(value).batch(3, drop_remainder=True))
    tell(f"batches of {name} taken apart", Dataset.from_tensor_slices(value).batch(2).unbatch())
    tell(f"one of {name}", Dataset.from_tensors(value))
    tell(f"one of {name} taken apart", Dataset.from_tensors(value).unbatch())
tell("with others", Dataset.from_tensor_slices((rows, {"number": [1, 2, 3], "text": texts})))
tell("batches with others", Dataset.from_tensor_slices((rows, {"number": [1, 2, 3], "text": texts})).batch(2))
error("with fewer", lambda: Dataset.from_tensor_slices((rows, [1, 2])))

lists = Dataset.range(4).map(lambda n: tf.range(n))
tell("ragged batches", lists.ragged_batch(3))
tell("whole ragged batches", lists.ragged_batch(3, drop_remainder=True))
tell("int32 splits", lists.ragged_batch(2, row_splits_dtype=tf.int32))
tell("as a transformation", lists.apply(tf.data.experimental.dense_to_ragged_batch(3)))
tell("of pairs", Dataset.range(4).map(lambda n: (n, tf.fill([n, 2], 1.5))).ragged_batch(3))
tell("of matrices", Dataset.range(1, 4).map(lambda n: tf.fill([n, n], n)).ragged_batch(2))
tell("of scalars", Dataset.range(4).ragged_batch(3))
tell("of ragged ones", Dataset.from_tensor_slices(deep).ragged_batch(2))
for batch in lists.ragged_batch(4):
    print(batch.row_splits, batch.shape)

halves = Dataset.from_tensor_slices(rows).batch(2)
tell("mapped", halves.map(lambda x: x * 2))
tell("filled up", halves.map(lambda x: x.to_tensor()))
tell("sums", halves.map(lambda x: tf.reduce_sum(x, axis=1)))
tell("lengths", Dataset.from_tensor_slices(deep).map(lambda x: x.row_lengths()))
tell("made", Dataset.range(3).map(lambda n: tf.ragged.range(tf.range(n))))
tell("batches of made ones", Dataset.range(3).map(lambda n: tf.ragged.range(tf.range(n))).batch(3))
tell("filtered", Dataset.from_tensor_slices(rows).filter(lambda x: tf.size(x) > 0))
tell("zipped", Dataset.zip((Dataset.from_tensor_slices(rows), Dataset.range(3))))
tell("one behind the other", Dataset.from_tensor_slices(rows).concatenate(Dataset.from_tensor_slices(rows)).batch(6))
tell("windows", Dataset.from_tensor_slices(rows).window(2).flat_map(lambda window: window.batch(2)))
show("shuffled", sorted(row.numpy().tolist() for row in Dataset.from_tensor_slices(rows).shuffle(3)))
show("numpy", [part.tolist() for part in Dataset.from_tensor_slices(rows).as_numpy_iterator()])
tell("padded", halves.map(lambda x: x.to_tensor()).padded_batch(2))
error("padded as they are", lambda: list(Dataset.from_tensor_slices(rows).padded_batch(2)))
spec = tf.RaggedTensorSpec([None, None], tf.int32)
tell("generated", Dataset.from_generator(lambda: iter([rows, rows[1:]]), output_signature=spec))
error("generated lists", lambda: list(Dataset.from_generator(lambda: iter([[[1], [2, 3]]]), output_signature=spec)))


def parts(sparse):
    return sparse.indices, sparse.values, sparse.dense_shape


show("sparse batches", list(map(parts, lists.sparse_batch(3, [4]))))
print(lists.sparse_batch(3, [4]).element_spec)
show("sparse batches of the largest", list(map(parts, lists.sparse_batch(3, [None]))))
show("as a transformation", list(map(parts, lists.apply(tf.data.experimental.dense_to_sparse_batch(2, [5])))))
error("larger", lambda: list(lists.sparse_batch(3, [1])))
