"""Datasets as expressions, evaluated under TensorFlow or here; prints elements, types, sizes as JSON lines."""

import json

import numpy as np
import tensorflow as tf

Dataset = tf.data.Dataset
X = np.arange(12, dtype="f4").reshape(6, 2)

EXPRESSIONS = [
    "Dataset.range(7).batch(3)",
    "Dataset.range(7).batch(3, drop_remainder=True)",
    "Dataset.from_tensor_slices((X, np.arange(6)))",
    "Dataset.from_tensor_slices({'a': X, 'b': [1, 2, 3, 4, 5, 6]}).batch(4)",
    "Dataset.from_tensors(([1.], [1.])).repeat(5).batch(2)",
    "Dataset.from_tensor_slices([1.5, 2.5]).map(lambda x: x * 2)",
    "Dataset.from_tensor_slices(X).map(lambda r: (r, tf.reduce_sum(r)))",
    "Dataset.from_tensor_slices((X, X)).map(lambda a, b: a + b).batch(4)",
    "Dataset.range(10).skip(3).take(4)",
    "Dataset.range(4).repeat().take(6)",
    "Dataset.range(9).shard(3, 2)",
    "Dataset.range(6).filter(lambda x: x > 2)",
    "Dataset.range(4).batch(2).unbatch()",
    "Dataset.range(10).batch(3, drop_remainder=True).unbatch()",
    "Dataset.range(2).concatenate(Dataset.range(3))",
    "Dataset.zip((Dataset.range(3), Dataset.range(5)))",
    "Dataset.range(3).enumerate(start=5)",
    "Dataset.range(5).cache().repeat(2)",
    "Dataset.from_tensor_slices(['a', 'bc'])",
    "Dataset.from_tensor_slices(np.float64([1, 2])).map(lambda x: x / 2)",
    "Dataset.from_tensor_slices(np.uint8([1, 255])).map(lambda x: tf.cast(x, tf.float32) / 255)",
    "Dataset.from_generator(lambda: iter([1, 2]), output_signature=tf.TensorSpec((), tf.int32))",
    "Dataset.range(3).shuffle(1)",
    "Dataset.range(0).batch(2)",
]


def shown(element):
    """The element with types, as JSON can hold it."""
    if isinstance(element, tuple):
        return [shown(part) for part in element]
    if isinstance(element, dict):
        return {key: shown(part) for key, part in element.items()}
    if isinstance(element, bytes):
        return element.decode()
    return [np.asarray(element).tolist(), str(np.asarray(element).dtype)]


for expression in EXPRESSIONS:
    dataset = eval(expression)
    facts = {
        "elements": [shown(element) for element in dataset.as_numpy_iterator()],
        "cardinality": int(dataset.cardinality()),
        "spec": str(dataset.element_spec),
    }
    print(json.dumps([expression, facts]))
