"""Random pipelines of `tf.data`, whose elements have a defined order; a seed says which."""

import random

import numpy as np
import tensorflow as tf

Dataset = tf.data.Dataset
int64 = tf.int64


LOSING = ("interleave", "rebatch", "window", "group_by_window")
"""At an error, TensorFlow's may end: whether that was the last element is not set then, and may differ from run to run."""


def make(seed, length=10, heals=False):
    """Return a pipeline of `length` transformations, and the calls that make it; errors come to none of `LOSING` if it `heals`."""
    draw = random.Random(seed)
    # Where an element may be an error, some is left out: TensorFlow's parallel calls drop elements besides it, `shard` and `skip`
    # count anew after it, and `zip` goes on in one of its datasets.
    draw.has_errors = seed % 2 == 0
    name, dataset, kind = draw.choice(SOURCES)(draw)
    calls = [name]
    while len(calls) <= length:
        allowed = [step for kinds, step in STEPS if kind in kinds.split() or kinds == "any"]
        if draw.has_errors:
            allowed = [step for step in allowed if step not in (shard, skip, zip_)]
        name, transform, kind = draw.choice(allowed)(draw, kind)
        calls.append(name)
        if heals and name.startswith(LOSING):
            dataset = dataset.ignore_errors()
        dataset = dataset.apply(transform)
    return dataset, calls


def tell(dataset, most=40, digits=None):
    """Return the type of a dataset's elements and the first elements, with the classes of errors in the place of some.

    Floats have all of their digits, unless there is a number of them.
    """
    options = tf.data.Options()
    # TensorFlow's fused operation drops all elements of a batch with an error, those behind it too.
    options.experimental_optimization.map_and_batch_fusion = False
    told, iterator = [], iter(dataset.with_options(options))
    errors = 0
    while len(told) < most and errors < 5:
        try:
            told.append(tf.nest.map_structure(lambda tensor: _plain(tensor, digits), next(iterator)))
        except StopIteration:
            told.append("end")
            break
        except tf.errors.OpError as error:
            errors += 1
            told.append(type(error).__name__)
    return told


def _plain(tensor, digits):
    array = tensor.numpy()
    if digits is not None and tensor.dtype.is_floating:
        array = np.vectorize(lambda value: float(f"{value:.{digits}g}"), otypes=[float])(array)
    return f"{tensor.dtype.name}{list(np.shape(array))} {array.tolist() if hasattr(array, 'tolist') else array}"


# What elements are: "number", "pair" and "text" are scalars, "rows" are vectors of numbers, "pairs" pairs of them, "texts" of strings.
def _range(draw):
    stop = draw.randrange(3, 30)
    return f"range({stop})", Dataset.range(stop), "number"


def _slices(draw):
    values = np.array([draw.randrange(-9, 9) for _ in range(draw.randrange(2, 20))], np.int64)
    return f"slices({values.tolist()})", Dataset.from_tensor_slices(values), "number"


def _pairs(draw):
    values = np.arange(draw.randrange(2, 20)), np.arange(20.0, dtype=np.float32)
    first, second = values[0], values[1][: len(values[0])]
    return f"pairs({len(first)})", Dataset.from_tensor_slices((first, second)), "pair"


def _texts(draw):
    values = [draw.choice(["1", "22", "x", "", "-3"]) for _ in range(draw.randrange(2, 15))]
    return f"texts({values})", Dataset.from_tensor_slices(values), "text"


def _generator(draw):
    count = draw.randrange(2, 12)
    generate = lambda: (i * i for i in range(count))
    return f"generator({count})", Dataset.from_generator(generate, output_signature=tf.TensorSpec([], int64)), "number"


SOURCES = (_range, _slices, _pairs, _texts, _generator)


def _batched(kind):
    return {"number": "rows", "pair": "pairs", "text": "texts"}[kind]


def _single(kind):
    return {"rows": "number", "pairs": "pair", "texts": "text"}[kind]


def take(draw, kind):
    count = draw.choice([-1, 0, *range(1, 25), *range(5, 25)])
    return f"take({count})", lambda dataset: dataset.take(count), kind


def skip(draw, kind):
    count = draw.choice([0, 1, 2, 3, 5])
    return f"skip({count})", lambda dataset: dataset.skip(count), kind


def repeat(draw, kind):
    count = draw.choice([1, 2, 3, None])
    return f"repeat({count})", lambda dataset: dataset.repeat(count).take(60), kind


def shard(draw, kind):
    count = draw.randrange(1, 4)
    index = draw.randrange(count)
    return f"shard({count}, {index})", lambda dataset: dataset.shard(count, index), kind


def shuffle(draw, kind):
    return "shuffle(1)", lambda dataset: dataset.shuffle(1), kind


def cache(draw, kind):
    return "cache()", lambda dataset: dataset.cache(), kind


def prefetch(draw, kind):
    return "prefetch(2)", lambda dataset: dataset.prefetch(2), kind


def ignore_errors(draw, kind):
    return "ignore_errors()", lambda dataset: dataset.ignore_errors(), kind


def concatenate(draw, kind):
    return "concatenate itself", lambda dataset: dataset.concatenate(dataset.take(3)), kind


def batch(draw, kind):
    size, drops = draw.randrange(1, 6), draw.random() < 0.5
    return f"batch({size}, {drops})", lambda dataset: dataset.batch(size, drops), _batched(kind)


def padded_batch(draw, kind):
    size = draw.randrange(1, 4)
    transform = lambda dataset: dataset.padded_batch(size, [None]).map(lambda x: tf.reshape(x, [-1]))
    return f"padded_batch({size}).map(reshape)", transform, "rows"


def ragged_batch(draw, kind):
    size = draw.randrange(1, 4)
    flat = lambda rows: rows.flat_values if isinstance(rows, tf.RaggedTensor) else tf.reshape(rows, [-1])
    return f"ragged_batch({size}).map(flat)", lambda dataset: dataset.ragged_batch(size).map(flat), kind


def unbatch(draw, kind):
    return "unbatch()", lambda dataset: dataset.unbatch(), _single(kind)


def rebatch(draw, kind):
    size = draw.randrange(1, 6)
    return f"rebatch({size})", lambda dataset: dataset.rebatch(size), kind


def window(draw, kind):
    size, shift, stride, drops = draw.randrange(1, 5), draw.randrange(1, 4), draw.randrange(1, 3), draw.random() < 0.5
    transform = lambda d: d.window(size, shift, stride, drops).flat_map(lambda inner: inner.batch(size))
    return f"window({size}, {shift}, {stride}, {drops}).flat_map(batch)", transform, "rows"


def flat_map(draw, kind):
    count = draw.randrange(0, 3)
    return f"flat_map({count})", lambda dataset: dataset.flat_map(lambda *x: _alone(x).repeat(count)), kind


def _alone(parts):
    return Dataset.from_tensors(parts if len(parts) > 1 else parts[0])


def interleave(draw, kind):
    cycle, block = draw.randrange(1, 4), draw.randrange(1, 3)
    transform = lambda dataset: dataset.interleave(lambda *x: _alone(x).repeat(2), cycle, block)
    return f"interleave({cycle}, {block})", transform, kind


def enumerate_(draw, kind):
    start = draw.randrange(0, 5)
    change = lambda i, x: (i, tf.cast(x, tf.float32) / 2)
    return f"enumerate({start}).map", lambda d: d.enumerate(start).map(change), "pair"


def zip_(draw, kind):
    stop = draw.randrange(1, 20)
    change = lambda x, i: (i, tf.cast(x, tf.float32))
    return f"zip(range({stop})).map", lambda d: Dataset.zip(d, Dataset.range(stop)).map(change), "pair"


def scan(draw, kind):
    add = lambda total, x: (total + x, total * 2 - x)
    return "scan", lambda d: d.scan(np.int64(draw.randrange(1)), add), "number"


def unique(draw, kind):
    return "unique()", lambda dataset: dataset.unique(), kind


def take_while(draw, kind):
    limit = draw.randrange(2, 40)
    return f"take_while(< {limit})", lambda d: d.take_while(lambda x: x < limit), kind


def group(draw, kind):
    size = draw.randrange(1, 4)
    transform = lambda d: d.group_by_window(lambda x: x % 3, lambda key, some: some.batch(size), size)
    return f"group_by_window({size})", transform, "rows"


def filter_(draw, kind):
    rest = draw.randrange(2)
    tests = {
        "number": lambda x: x % 2 == rest,
        "pair": lambda i, x: x > 2.0 * rest,
        "text": lambda text: tf.strings.length(text) > rest,
        "rows": lambda rows: tf.size(rows) > rest,
        "pairs": lambda i, x: tf.reduce_sum(x) > 3.0,
        "texts": lambda texts: tf.size(texts) > rest,
    }
    return f"filter({rest})", lambda d: d.filter(tests[kind]), kind


CAN_FAIL = [("pair", 3), ("text", 1), ("text", 3), ("texts", 0)]


def map_(draw, kind):
    number = draw.randrange(4)
    if (kind, number) in CAN_FAIL and not draw.has_errors:
        number = 0 if kind == "pair" else 2
    calls = None if draw.has_errors else draw.choice([None, 2, tf.data.AUTOTUNE])
    changes = {
        "number": [
            (lambda x: x * 3 - 1, "number"),
            (lambda x: (x, tf.cast(x, tf.float32) / 4), "pair"),
            (lambda x: tf.strings.as_string(x), "text"),
            (lambda x: tf.range(x % 4) + x, "rows"),
        ],
        "pair": [
            (lambda i, x: i + tf.cast(x, int64), "number"),
            (lambda i, x: (i * 2, tf.minimum(x, 5.0)), "pair"),
            (lambda i, x: tf.strings.format("{}", i), "text"),
            (lambda i, x: (i, tf.debugging.check_numerics(1 / x, "one") * 0 + x), "pair"),
        ],
        "text": [
            (lambda text: tf.strings.length(text), "length"),
            (lambda text: tf.strings.to_number(text, int64), "number"),
            (lambda text: tf.strings.join([text, "0"]), "text"),
            (lambda text: (tf.cast(tf.strings.length(text), int64), tf.strings.to_number("1" + text)), "pair"),
        ],
        "rows": [
            (lambda rows: tf.reduce_sum(rows), "number"),
            (lambda rows: rows[::-1], "rows"),
            (lambda rows: tf.strings.as_string(rows), "texts"),
            (lambda rows: (rows, tf.cast(rows, tf.float32) + 1), "pairs"),
        ],
        "pairs": [
            (lambda i, x: i, "rows"),
            (lambda i, x: (i + 1, x * x), "pairs"),
            (lambda i, x: (tf.reduce_max(i), tf.reduce_mean(x)), "pair"),
            (lambda i, x: tf.concat([i, tf.cast(x, int64)], 0), "rows"),
        ],
        "texts": [
            (lambda texts: tf.strings.to_number(texts, int64), "rows"),
            (lambda texts: tf.strings.reduce_join(texts, separator=" "), "text"),
            (lambda texts: tf.strings.join([texts, "1"]), "texts"),
            (lambda texts: tf.cast(tf.strings.length(texts), int64), "rows"),
        ],
    }
    change, becomes = changes[kind][number]
    if becomes == "length":
        return (
            f"map({kind} {number}, {calls}).map(cast)",
            lambda d: d.map(change).map(lambda n: tf.cast(n, int64)),
            "number",
        )
    return f"map({kind} {number}, {calls})", lambda d: d.map(change, calls), becomes


STEPS = [("any", map_)] * 4 + [
    *((("any"), step) for step in (take, skip, repeat, shard, shuffle, cache, prefetch, ignore_errors, concatenate)),
    *((("any"), step) for step in (filter_, flat_map, interleave)),
    *[("number pair text", batch)] * 3,
    *[("rows pairs texts", unbatch)] * 2,
    ("rows pairs texts", rebatch),
    ("rows", padded_batch),
    ("rows", ragged_batch),
    ("number", window),
    ("number", enumerate_),
    ("number", zip_),
    ("number", scan),
    ("number text", unique),
    ("number", take_while),
    ("number", group),
]
