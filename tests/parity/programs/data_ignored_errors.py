"""`ignore_errors`: elements that cannot be made are left out, wherever they fail."""

import tensorflow as tf
from _facts import error, show

range_ = tf.data.Dataset.range
numbers = tf.data.Dataset.from_tensor_slices([1.0, 0.0, 2.0, 0.0, 4.0])
inverse = numbers.map(lambda x: tf.debugging.check_numerics(1.0 / x, "not finite"))
names = tf.data.Dataset.from_tensor_slices(["/no/such/file", "/proc/sys/kernel/ostype"])
contents = tf.data.Dataset.from_tensor_slices([b"no picture", tf.io.encode_png(tf.zeros([2, 2, 1], tf.uint8)).numpy()])


def listed(dataset):
    return [element if isinstance(element, bytes) else element.tolist() for element in dataset.as_numpy_iterator()]


def odd(x):
    tf.debugging.assert_equal(x % 2, tf.constant(1, tf.int64))
    return x


def refuse_three(x):
    if int(x) == 3:
        raise ValueError("three")
    return x


def refuse_all(x):
    raise NameError("a wrong name")


show("check_numerics", listed(inverse.ignore_errors()))
error("without", lambda: listed(inverse))
show("cardinality", inverse.ignore_errors().cardinality().numpy())
show("spec", repr(inverse.ignore_errors().element_spec))
show("assertions", listed(range_(6).map(odd).ignore_errors()))
show("all fail", listed(range_(0, 6, 2).map(odd).ignore_errors()))
show(
    "batched before", listed(numbers.batch(2).map(lambda x: tf.debugging.check_numerics(1.0 / x, "a")).ignore_errors())
)
show("batched after", listed(inverse.ignore_errors().batch(2)))
show("batch of what fails", listed(inverse.batch(2).ignore_errors()))
show("python", listed(range_(6).map(lambda x: tf.py_function(refuse_three, [x], tf.int64)).ignore_errors()))
show("files", listed(names.map(tf.io.read_file).ignore_errors()))
show("pictures", len(listed(contents.map(tf.io.decode_image).ignore_errors())))
error("a wrong name", lambda: listed(range_(3).map(refuse_all).ignore_errors()))
error("a wrong attribute", lambda: listed(range_(3).map(lambda x: x.wrong_name).ignore_errors()))
show("filter", listed(range_(6).filter(lambda x: odd(x) > 2).ignore_errors()))
show("repeated", listed(inverse.ignore_errors().repeat(2)))
show("repeated before", listed(inverse.repeat(2).ignore_errors()))
show("shuffled", sorted(listed(range_(6).map(odd).shuffle(3, seed=1).ignore_errors())))
show("flat_map", listed(range_(4).flat_map(lambda x: tf.data.Dataset.from_tensors(odd(x)).repeat(2)).ignore_errors()))
show("interleaved", listed(range_(4).interleave(lambda x: range_(x, x + 2).map(odd), cycle_length=2).ignore_errors()))
show("zipped", [(int(a), int(b)) for a, b in tf.data.Dataset.zip((range_(4).map(odd), range_(4))).ignore_errors()])
show("prefetched", listed(range_(6).map(odd).prefetch(2).ignore_errors()))
show("applied", listed(range_(6).map(odd).apply(tf.data.experimental.ignore_errors())))
show("taken", listed(range_(9).map(odd).ignore_errors().take(2)))
error("an error behind it", lambda: listed(range_(3).ignore_errors().map(odd)))
