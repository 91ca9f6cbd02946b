"""Tables that are filled once: from tensors and files, with defaults and buckets; in functions and datasets."""

import os
import tempfile

import tensorflow as tf
from _facts import error, show

L = tf.lookup
WHOLE, NUMBER = L.TextFileIndex.WHOLE_LINE, L.TextFileIndex.LINE_NUMBER
words = L.KeyValueTensorInitializer(["a", "b", "c"], [1, 2, 3])
table = L.StaticHashTable(words, -1)
show("found", table.lookup(tf.constant(["a", "z", ""])))
show("by brackets", table[tf.constant("b")])
show("size", table.size())
show("types", [table.key_dtype.name, table.value_dtype.name])
show("of nothing", table.lookup(tf.constant([], tf.string)))
sparse = table.lookup(tf.sparse.from_dense([["a", ""], ["q", "c"]]))
show("sparse", [sparse.indices, sparse.values, sparse.dense_shape])
show("ragged", table.lookup(tf.ragged.constant([["a"], ["q", "c"]])).to_list())
error("keys of another type", lambda: table.lookup(tf.constant([1])))
error("a default of another type", lambda: L.StaticHashTable(words, "x"))
error("a default that is none", lambda: L.StaticHashTable(words, [1]))
error("two values", lambda: L.StaticHashTable(L.KeyValueTensorInitializer(["a", "a"], [1, 2]), 0))
error("too few values", lambda: L.StaticHashTable(L.KeyValueTensorInitializer(["a", "b"], [1]), 0))
same = L.StaticHashTable(L.KeyValueTensorInitializer(["a", "a"], [1, 1]), 0)
show("twice the same", [same.lookup(tf.constant(["a"])), same.size()])
ids = tf.constant([1, 5], tf.int64)
back = L.StaticHashTable(L.KeyValueTensorInitializer(ids, ["x", "y"]), "d")
show("strings of numbers", back.lookup(tf.constant([5, 1, 9], tf.int64)))
typed = L.KeyValueTensorInitializer([1, 5], [0.5, 1.5], key_dtype=tf.int64, value_dtype=tf.float32)
halves = L.StaticHashTable(typed, -1.0)
show("floats of numbers", halves.lookup(tf.constant([5, 1, 9], tf.int64)))

folder = tempfile.mkdtemp()
vocabulary, pairs = os.path.join(folder, "v.txt"), os.path.join(folder, "w.txt")
with open(vocabulary, "w") as file:
    file.write("emerson\nlake\npalmer\n")
with open(pairs, "w") as file:
    file.write("emerson\t10\nlake\t20\npalmer\t30\n")
lines = L.TextFileInitializer(vocabulary, tf.string, WHOLE, tf.int64, NUMBER)
show("lines", L.StaticHashTable(lines, -1).lookup(tf.constant(["lake", "x"])))
numbers = L.TextFileInitializer(vocabulary, tf.int64, NUMBER, tf.string, WHOLE)
show("the other way round", L.StaticHashTable(numbers, "UNK").lookup(tf.constant([0, 2, 3], tf.int64)))
columns = L.TextFileInitializer(pairs, tf.string, 0, tf.int64, 1)
show("columns", L.StaticHashTable(columns, -1).lookup(tf.constant(["lake", "x"])))
two = L.TextFileInitializer(vocabulary, tf.string, WHOLE, tf.int64, NUMBER, vocab_size=2)
show("two lines", L.StaticHashTable(two, -1).size())
offset = L.TextFileInitializer(vocabulary, tf.string, WHOLE, tf.int64, NUMBER, value_index_offset=10)
show("from 10 on", L.StaticHashTable(offset, -1).lookup(tf.constant(["lake"])))
wrong = L.TextFileInitializer(pairs, tf.string, 0, tf.int64, 1, delimiter=" ")
error("another delimiter", lambda: L.StaticHashTable(wrong, -1))
more = L.TextFileInitializer(vocabulary, tf.string, WHOLE, tf.int64, NUMBER, vocab_size=5)
error("more than there are", lambda: L.StaticHashTable(more, -1))
gone = L.TextFileInitializer(os.path.join(folder, "no.txt"), tf.string, WHOLE, tf.int64, NUMBER)
error("no file", lambda: L.StaticHashTable(gone, -1))
error("numbers that are strings", lambda: L.TextFileInitializer(vocabulary, tf.string, WHOLE, tf.string, NUMBER))
error("a column before the first", lambda: L.TextFileInitializer(vocabulary, tf.string, -3, tf.int64, NUMBER))
error("no name", lambda: L.TextFileInitializer(None, tf.string, 0, tf.int64, 1))
error("no lines", lambda: L.TextFileInitializer(vocabulary, tf.string, WHOLE, tf.int64, NUMBER, vocab_size=0))

known = L.KeyValueTensorInitializer(["a", "b", "c"], tf.constant([0, 1, 2], tf.int64))
open_words = L.StaticVocabularyTable(known, 4)
show("in buckets", open_words.lookup(tf.constant(["a", "zz", "q", "c", "hello"])))
show("size with buckets", open_words.size())
show("buckets alone", L.StaticVocabularyTable(None, 5).lookup(tf.constant(["a", "b"])))
of_numbers = L.StaticVocabularyTable(L.KeyValueTensorInitializer(ids, tf.constant([0, 1], tf.int64)), 3)
show("numbers in buckets", of_numbers.lookup(tf.constant([5, 100, 200], tf.int64)))
show("ragged in buckets", open_words.lookup(tf.ragged.constant([["a"], ["q", "c"]])).to_list())
error("values of another type", lambda: L.StaticVocabularyTable(words, 4))
error("no buckets", lambda: L.StaticVocabularyTable(known, 0))
error("keys of another type too", lambda: open_words.lookup(tf.constant([1])))


@tf.function
def double(text):
    return table.lookup(text) * 2, open_words.lookup(text), back.lookup(tf.constant([1], tf.int64))


show("in a function", double(tf.constant(["a", "b"])))
show("in a function again", double(tf.constant(["c", "q"])))


@tf.function
def of_computed(numbers):
    return halves.lookup(numbers + 4) + 1


show("of what is computed", of_computed(tf.constant([1, -3, 0], tf.int64)))
dataset = tf.data.Dataset.from_tensor_slices(["a", "z", "c"]).map(lambda text: (text, table.lookup(text)))
show("in a dataset", list(dataset.as_numpy_iterator()))
