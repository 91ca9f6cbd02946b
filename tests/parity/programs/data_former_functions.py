"""`tf.data.experimental`'s functions that are methods by now: single elements, errors, sparse batches, devices."""

import tensorflow as tf
from _facts import error, show

Dataset = tf.data.Dataset
former = tf.data.experimental


def values(dataset):
    return [element.numpy() for element in dataset]


show("single", Dataset.from_tensors(3).get_single_element())
show("single, former", former.get_single_element(Dataset.from_tensors({"a": 1})))
error("none", lambda: Dataset.range(0).get_single_element())
error("two", lambda: Dataset.range(2).get_single_element())
error("single of no dataset", lambda: former.get_single_element(3))
show("at", former.at(Dataset.range(5), 1))
error("at the end", lambda: former.at(Dataset.range(3), 3))
error("at a negative number", lambda: former.at(Dataset.range(3), -1))
error("at of filter", lambda: former.at(Dataset.range(3).filter(lambda x: x > 0), 0))

checked = Dataset.from_tensor_slices([1.0, 0.0, 2.0]).map(lambda x: tf.debugging.check_numerics(1 / x, "m"))
show("ignored", values(checked.ignore_errors()))
show("ignored, former", values(checked.apply(former.ignore_errors())))
show("ignored and logged", values(checked.apply(former.ignore_errors(log_warning=True))))

rows = Dataset.from_tensor_slices([[1, 0], [0, 2], [3, 3]])
sparse = rows.apply(former.dense_to_sparse_batch(2, [3]))
show("sparse", [[batch.indices, batch.values, batch.dense_shape] for batch in sparse])
show("its spec", str(sparse.element_spec))
open_rows = Dataset.from_generator(lambda: iter([[1], [2, 3]]), output_signature=tf.TensorSpec([None], tf.int32))
show("as large as the largest", [batch.dense_shape for batch in open_rows.sparse_batch(2, [None])])
error("larger than said", lambda: list(rows.sparse_batch(2, [1])))

show("copied", values(Dataset.range(3).apply(former.copy_to_device("/cpu:0"))))
show("copied and prefetched", values(Dataset.range(3).apply(former.copy_to_device("/cpu:0")).prefetch(1)))
show("prefetched", values(Dataset.range(3).apply(former.prefetch_to_device("/cpu:0"))))
show("two of them", values(Dataset.range(3).apply(former.prefetch_to_device("/cpu:0", 2))))
