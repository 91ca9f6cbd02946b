"""Writes the checkpoints beside this file with real TensorFlow, and `values.json`, which holds what TensorFlow reads in them.

`python tests/compat/train/tensorflow_files/make_files.py`, and with `TF_USE_LEGACY_KERAS=1` and the package tf_keras installed for
those of Keras 2.
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import tensorflow as tf

HERE = Path(__file__).parent
KERAS_2 = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
DTYPES = [
    *("bool", "complex64", "complex128", "float16", "float32", "float64", "bfloat16"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
]
SMALL_DTYPES = ["float8_e4m3fn", "float8_e5m2", "int4", "uint4"]


def make_dense_model():
    """A model of which `test_tensorflow_files.py` makes the same."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((3,)),
            layers.Dense(4, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.2),
            layers.Dense(1),
        ]
    )


def train(model, optimizer):
    """Take two steps."""
    model.compile(optimizer, "mse")
    x = np.linspace(-1, 1, 24).reshape(8, 3)
    model.fit(x, x.sum(1, keepdims=True), batch_size=4, epochs=1, shuffle=False, verbose=0)


def write_types():
    """Write variables of all types, shapes and strings."""
    numbers = np.array([[0, 1, 2], [3, 4, 5]])
    variables = {name: tf.Variable(tf.cast(numbers, name), name=name) for name in DTYPES}
    for name in SMALL_DTYPES:
        source = tf.constant(numbers, tf.int8 if "int" in name else tf.float32)
        variables[name] = tf.Variable(tf.cast(source, getattr(tf.dtypes.experimental, name)))
    quantized = tf.quantization.quantize([1.0, 2.0, -1.0], -2, 2, tf.qint8)[0]
    others = {
        "scalar": tf.Variable(1.5),
        "empty": tf.Variable(tf.zeros([0, 3])),
        "text": tf.Variable(["a", "", "x" * 300]),
        "one text": tf.Variable("ü/.\0"),
        "qint8": tf.Variable(quantized),
    }
    return tf.train.Checkpoint(types=variables, others=others).write(str(HERE / "types"))


def write_nested():
    """Write lists, dictionaries and tuples in one another, modules, Python's state and a generator."""

    class Text(tf.train.experimental.PythonState):
        def serialize(self):
            return "a text"

        def deserialize(self, string_value):
            pass

    module = tf.Module()
    module.weight = tf.Variable([1.0, 2.0])
    module.parts = [tf.Variable(3.0), {"a/b.c": tf.Variable(4.0), "pair": (tf.Variable(5.0), tf.Variable(6.0))}]
    generator = tf.random.Generator.from_seed(7)
    generator.normal([5])
    shared = tf.Variable(8)
    iterator = iter(tf.data.Dataset.range(5))
    next(iterator)
    tf.train.Checkpoint(iterator=iterator, step=tf.Variable(1)).write(str(HERE / "iterator"))
    return tf.train.Checkpoint(
        module=module, text=Text(), generator=generator, shared=shared, again=[shared], nothing=[]
    ).write(str(HERE / "nested"))


def write_shards():
    """Write data files of at most 64 bytes."""
    options = tf.train.CheckpointOptions(
        experimental_sharding_callback=tf.train.experimental.MaxShardSizePolicy(max_shard_size=64)
    )
    variables = [tf.Variable(np.arange(10, dtype="f4") + i) for i in range(4)]
    return tf.train.Checkpoint(variables=variables).write(str(HERE / "shards"), options)


def write_names():
    """Write by names, with TensorFlow 1's saver; a variable in parts, too."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        v1 = tf.compat.v1
        v1.get_variable("weight", initializer=[1.0, 2.0])
        v1.get_variable("layer/count", initializer=3)
        make = lambda shape, dtype=None, partition_info=None: tf.range(35, dtype=tf.float32)[: np.prod(shape)]
        v1.get_variable(
            "parts",
            [7, 5],
            initializer=lambda shape, dtype=None, partition_info=None: tf.reshape(make(shape), shape),
            partitioner=tf.compat.v1.fixed_size_partitioner(3),
        )
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(HERE / "names"), write_meta_graph=False, write_state=False)
    return str(HERE / "names")


def write_keras():
    """Write a model and its optimizer, with a manager."""
    model = make_dense_model()
    train(model, tf.keras.optimizers.Adam(0.01))
    folder = HERE / ("keras_2" if KERAS_2 else "keras_3")
    shutil.rmtree(folder, ignore_errors=True)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, step=tf.Variable(2))
    manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=1)
    manager.save()
    return manager.save()


def write_old_keras():
    """Write a model with an optimizer that has slots, and weights alone."""
    model = make_dense_model()
    train(model, tf.keras.optimizers.legacy.Adam(0.01))
    model.save_weights(str(HERE / "weights"))
    (HERE / "checkpoint").unlink()
    return tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(HERE / "slots"))


def describe(path):
    """Return all values in a checkpoint, as JSON has them."""
    reader = tf.train.load_checkpoint(path)
    types, described = reader.get_variable_to_dtype_map(), {}
    for name in reader.get_variable_to_shape_map():
        if name == "_CHECKPOINTABLE_OBJECT_GRAPH":
            continue
        # As objects: NumPy's own strings lose zeros at their end.
        value = np.asarray(reader.get_tensor(name), object if types[name] == tf.string else None)
        content = [text.hex() for text in value.ravel().tolist()] if value.dtype == object else value.tobytes().hex()
        described[name] = {"dtype": types[name].name, "shape": list(value.shape), "content": content}
    return described


def main():
    """Write all, and note what TensorFlow reads in them."""
    note = HERE / "values.json"
    values = json.loads(note.read_text()) if note.exists() else {}
    writers = (
        [write_keras, write_old_keras]
        if KERAS_2
        else [write_types, write_nested, write_shards, write_names, write_keras]
    )
    for write in writers:
        path = write()
        values[os.path.relpath(path, HERE)] = describe(path)
    if KERAS_2:
        values["weights"] = describe(str(HERE / "weights"))
    note.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
