"""`tf.data.experimental`: queries, reducers, tables from datasets, filling up, parsing."""

import sqlite3

import numpy as np
import tensorflow as tf
from _facts import error, show

X, Dataset = tf.data.experimental, tf.data.Dataset
with sqlite3.connect("rows.db") as connection:
    connection.execute("create table if not exists t (i integer, f real, s text, b blob, n integer)")
    connection.execute("delete from t")
    rows = [(i, i / 2, f"s{i}", bytes([i]), None if i == 1 else 7) for i in range(4)]
    connection.executemany("insert into t values (?, ?, ?, ?, ?)", rows)
connection.close()


def query(text, types, file="rows.db", driver="sqlite"):
    return X.SqlDataset(driver, file, text, types)


every = query("select i, f, s, b, n from t order by i", (tf.int64, tf.float64, tf.string, tf.string, tf.int32))
show("rows", list(every))
show("spec", str(every.element_spec))
show("other types", list(query("select i, i, f, i from t", (tf.int32, tf.string, tf.int64, tf.bool))))
show("no number", list(query("select s from t", (tf.int64,))))
show("one type", list(query("select i from t where i > 1", tf.int64)))
show("nothing", list(query("select null, null, null from t limit 1", (tf.string, tf.int64, tf.float64))))
show("batch", list(every.map(lambda i, f, s, b, n: (s, f)).batch(3)))
show("twice", [int(i) for i, *_ in every.repeat(2)])
error("columns", lambda: list(query("select i, f from t", (tf.int64,))))
error("driver", lambda: query("select i from t", (tf.int64,), driver="mysql"))
error("type", lambda: query("select f from t", (tf.float32,)))

total = X.Reducer(lambda key: np.int64(0), lambda state, x: state + x, lambda state: state * 10)
show("reduced", list(Dataset.range(10).apply(X.group_by_reducer(lambda x: x % 3, total))))
mean = X.Reducer(
    lambda key: (0.0, 0.0, key),
    lambda state, x: (state[0] + tf.cast(x, tf.float32), state[1] + 1.0, state[2]),
    lambda total, count, key: {"key": key, "mean": total / count},
)
means = Dataset.from_tensor_slices(np.int64([5, 3, 7, -1])).apply(X.group_by_reducer(lambda x: x % 2, mean))
show("means", [list(means), str(means.element_spec)])
show("none", list(Dataset.range(0).apply(X.group_by_reducer(lambda x: x, total))))
error("key", lambda: list(Dataset.range(3).apply(X.group_by_reducer(lambda x: tf.stack([x, x]), total))))

pad = lambda dataset, *args: list(dataset.apply(X.pad_to_cardinality(*args)))
numbers = Dataset.from_tensor_slices({"a": [1, 2], "s": ["x", "y"], "r": [[1.0, 2.0], [3.0, 4.0]]})
show("filled up", pad(numbers, 4))
show("filled up, named", pad(numbers, 2, "is there"))
error("more", lambda: pad(numbers, 1))
error("no dictionary", lambda: pad(Dataset.range(2), 4))
error("not known", lambda: pad(numbers.filter(lambda x: True), 4))

pairs = Dataset.zip((Dataset.from_tensor_slices(["a", "b"]), Dataset.range(2)))
words = tf.constant(["b", "z", "a"])
table = X.table_from_dataset(pairs, default_value=-1)
show("table", [table.lookup(words), table.size(), table.key_dtype.name, table.value_dtype.name])
buckets = X.table_from_dataset(pairs, num_oov_buckets=2, vocab_size=2)
show("buckets", [buckets.lookup(words), buckets.size()])
squares = Dataset.zip((Dataset.range(4), Dataset.range(4).map(lambda x: x * x)))
show(
    "numbers", X.table_from_dataset(squares, default_value=0, key_dtype=tf.int64).lookup(tf.constant([3, 9], tf.int64))
)
keys = Dataset.from_tensor_slices(["x", "y", "z"])
for options in ({}, {"num_oov_buckets": 1}, {"vocab_size": 2, "default_value": -5}):
    show(f"index {options}", X.index_table_from_dataset(keys, **options).lookup(tf.constant(["z", "q", "y"])))
made = tf.lookup.StaticHashTable(X.DatasetInitializer(pairs), -7)
show("initializer", [made.lookup(words), list(Dataset.from_tensor_slices(words).map(made.lookup))])
error("twice", lambda: X.table_from_dataset(Dataset.zip((keys.map(lambda x: "k"), Dataset.range(3))), default_value=-1))

feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[3]))
record = tf.train.Example(features=tf.train.Features(feature={"x": feature})).SerializeToString()
records, spec = Dataset.from_tensor_slices([record] * 3), {"x": tf.io.FixedLenFeature([], tf.int64)}
show("parsed", list(records.batch(2).apply(X.parse_example_dataset(spec))))
error("one by one", lambda: records.apply(X.parse_example_dataset(spec)))
error("no features", lambda: records.batch(2).apply(X.parse_example_dataset(None)))
show("iterator", [isinstance(records.as_numpy_iterator(), tf.data.NumpyIterator), next(records.as_numpy_iterator())])
