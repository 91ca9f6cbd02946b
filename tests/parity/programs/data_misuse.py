"""What datasets refuse, and when: arguments that do not fit; and how many elements there are where that is known."""

import numpy as np
import tensorflow as tf
from _facts import error, show

Dataset = tf.data.Dataset
numbers = Dataset.range(4)
pairs = numbers.map(lambda x: tf.fill([2], x))

error("range with step 0", lambda: Dataset.range(1, 10, 0))
error("zip of nothing", Dataset.zip)
error("zip given twice", lambda: Dataset.zip(numbers, datasets=(numbers, numbers)))
error("choice that is not int64", lambda: Dataset.choose_from_datasets([numbers], Dataset.from_tensors(0)))
error("choice that is no scalar", lambda: Dataset.choose_from_datasets([numbers], numbers.batch(2)))
error("padded shape too small", lambda: pairs.padded_batch(2, padded_shapes=[1]))
error("padded shape of another rank", lambda: numbers.padded_batch(2, padded_shapes=[1]))
error("padded shape that is no vector", lambda: numbers.padded_batch(2, padded_shapes=tf.constant([[1]], tf.int64)))
error("window of nothing", lambda: list(numbers.group_by_window(lambda x: x, lambda k, w: w, window_size=0)))
error("concatenate of another structure", lambda: numbers.concatenate(numbers.map(lambda x: {"a": x})))
error("reduce to another type", lambda: numbers.reduce(0, lambda s, x: tf.cast(s, tf.float32)))
error("reduce with another type", lambda: numbers.reduce(0, lambda s, x: 1.5))


def change(set_option):
    set_option(numbers.with_options(tf.data.Options()).options())


error("options changed", lambda: change(lambda o: setattr(o, "deterministic", True)))
error("options changed inside", lambda: change(lambda o: setattr(o.threading, "private_threadpool_size", 2)))
options = tf.data.Options()
options.deterministic = True
kept = numbers.with_options(options)
options.deterministic = False
show("options are copied", kept.map(lambda x: x).options().deterministic)
texts = Dataset.from_tensor_slices(([0, 1, 2], ["a", "b", "c"]))
show("padded texts", [(x, text.numpy().tolist()) for x, text in texts.padded_batch(2)])
rows = Dataset.from_generator(lambda: iter([["a"], ["b", "c"]]), output_signature=tf.TensorSpec([None], tf.string))
show("padded rows of texts", [row.numpy().tolist() for row in rows.padded_batch(2, padding_values="-")])
show("padded with -1", [row.numpy() for row in pairs.padded_batch(3, padded_shapes=[-1])])
show("rebatch, spec", str(Dataset.range(8).batch(4, drop_remainder=True).rebatch(2).element_spec))
show("rebatch that is uneven, spec", str(Dataset.range(8).batch(4, drop_remainder=True).rebatch(3).element_spec))
show("rebatch of unknown, spec", str(Dataset.range(8).batch(4).rebatch(2).element_spec))
show("rebatch with zeros", [batch.numpy() for batch in Dataset.range(4).batch(2).rebatch([0, 1])])
group = lambda dataset: dataset.group_by_window(lambda x: x % 2, lambda k, w: w.batch(2), window_size=3)
show("group_by_window, count", group(numbers).cardinality())
show("group_by_window without end, count", group(numbers.repeat()).cardinality())
bucket = numbers.repeat().bucket_by_sequence_length(lambda x: 1, [3], [2, 2])
show("buckets without end, count", bucket.cardinality())
unknown = numbers.filter(lambda x: x > 1)
show("unknown and without end, count", unknown.concatenate(numbers.repeat()).cardinality())
show("without end and unknown, count", numbers.repeat().concatenate(unknown).cardinality())
show("state of several parts", numbers.reduce((np.int64(0), 1.0), lambda s, x: (s[0] + x, s[1] / 2)))
show("state that grows", numbers.reduce(tf.zeros([0], tf.int64), lambda s, x: tf.concat([s, [x]], 0)))
