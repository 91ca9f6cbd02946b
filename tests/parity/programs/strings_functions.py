"""Strings in functions that are compiled and in datasets: they are traced once, whatever the strings are."""

import tensorflow as tf
from _facts import error, show

S = tf.strings
traces = []


@tf.function
def both(text, number):
    traces.append(1)
    ids = S.to_hash_bucket_fast(text, 10)
    return {
        "numbers": tf.cast(ids, tf.float32) * number,
        "text": S.join([S.upper(text), "!"]),
        "is a": text == "a",
        "spelled": S.as_string(number),
        "first": text[0] + "z",
        "shape": tf.shape(text),
        "the same": text,
    }


for words in (["a", "b"], ["c", "a"], ["a", "b", "c"], ["x", "y"]):
    show(" ".join(words), both(tf.constant(words), tf.constant(2.0)))
show("traces", len(traces))


@tf.function
def branches(text):
    if text == "add":
        return tf.constant(1.0) + 2
    return tf.constant(5.0)


show("one way", branches(tf.constant("add")))
show("the other", branches(tf.constant("no")))

total = tf.Variable(2.0)


@tf.function
def add(text):
    total.assign_add(S.to_number(text))
    return total * 2


show("added", add(tf.constant("1")))
show("again", add(tf.constant("2.5")))
error("no number", lambda: add(tf.constant("x")))
show("unchanged", total)


@tf.function
def moved(text):
    return (
        tf.where(text == "a", "yes", text),
        tf.reshape(text, [1, -1]),
        tf.gather(text, [1, 0]),
        tf.stack([text, text]),
        tf.concat([text, ["q"]], 0),
        tf.expand_dims(text, 0),
        tf.unstack(text)[0],
        tf.size(text),
        tf.rank(text),
        tf.strings.length(text) + 1,
        tf.io.decode_raw(text, tf.uint8),
    )


show("moved", moved(tf.constant(["a", "b"])))
show("moved again", moved(tf.constant(["c", "a"])))


@tf.function
def longest(text):
    words = S.split(text)
    return tf.reduce_max(S.length(words)), words.to_tensor(""), words.flat_values


show("longest", longest(tf.constant(["a bc", "def"])))
show("longest of others", longest(tf.constant(["a", "b c d"])))


@tf.function
def computed(x):
    return S.as_string(x * 2)


show("of what is computed", computed(tf.constant(2.0)))


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
def signed(text):
    return S.length(text)


show("with a signature", signed(tf.constant(["a", "bc"])))
error("of numbers", lambda: signed(tf.constant([1.0])))


def spelled(text):
    traces.append(2)
    return S.upper(text), S.to_number(text) * 2, S.length(text) + 1


traces.clear()
dataset = tf.data.Dataset.from_tensor_slices(["1", "22", "3.5"]).map(spelled)
for part in dataset.element_spec:
    show("spec", [part.dtype.name, str(part.shape)])
show("elements", list(dataset.as_numpy_iterator()))
show("traced for elements", len(traces))
batches = tf.data.Dataset.from_tensor_slices(["1", "22", "3.5"]).batch(2).map(spelled)
show("batches", list(batches.as_numpy_iterator()))
show(
    "filtered",
    list(tf.data.Dataset.from_tensor_slices(["a", "b", "ab"]).filter(lambda s: S.regex_full_match(s, "a.*"))),
)
show(
    "sums",
    list(tf.data.Dataset.from_tensor_slices(["1 2 3", "4"]).map(lambda s: tf.reduce_sum(S.to_number(S.split(s))))),
)
show("lists", list(tf.data.Dataset.from_tensor_slices(["a"]).map(lambda s: [s, s + "x"]).as_numpy_iterator()))
mixed = tf.data.Dataset.from_tensor_slices(["a", "b"]).map(lambda s: {"k": tf.stack([s, "q"]), "c": "const", "n": 3})
show("mixed", list(mixed.as_numpy_iterator()))
numbers = iter(tf.data.Dataset.from_tensor_slices(["1", "x", "3"]).map(S.to_number))
show("a number", next(numbers))
error("none", lambda: next(numbers))
show("the next", next(numbers))
