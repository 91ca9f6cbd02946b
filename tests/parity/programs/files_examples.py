"""Examples: written as protocol buffers, parsed into dense and sparse tensors; what is missing, and what does not fit."""

import tensorflow as tf
from _facts import error, show

Dense, Sparse, Sequence = tf.io.FixedLenFeature, tf.io.VarLenFeature, tf.io.FixedLenSequenceFeature
parse, parse_one = tf.io.parse_example, tf.io.parse_single_example
BYTES = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"one"]))


def feature(value):
    values = value if isinstance(value, list) else [value]
    if not values:
        return tf.train.Feature()
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(**features):
    made = {key: feature(value) for key, value in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def parts(value):
    if isinstance(value, dict):
        return {key: parts(part) for key, part in value.items()}
    if isinstance(value, tf.SparseTensor):
        return ["sparse", value.indices, value.values, value.dense_shape]
    return value


def tell(label, call):
    show(label, parts(call()))


show("serialized", example(x=1.5))
show("equal", tf.train.Example.FromString(example(y=[1, -2])).features.feature["y"].int64_list.value == [1, -2])
show("what it holds", tf.train.Example.FromString(example(z=b"a")).features.feature["z"].WhichOneof("kind"))
a, b = example(x=1.5, y=3, z=b"one"), example(x=2.5, y=-4, z=b"two", w=[1, 2, 3])
c = example(y=2**40, w=[7], x=[0.25])
tell("dense", lambda: parse([a, b], {"x": Dense([], tf.float32), "y": Dense([], tf.int64), "z": Dense([], tf.string)}))
tell("with a dimension", lambda: parse([a, b], {"x": Dense([1], tf.float32)}))
tell("with two", lambda: parse(tf.constant([a, b]), {"x": Dense((1, 1), tf.float32)}))
tell("a scalar", lambda: parse(tf.constant(a), {"x": Dense([], tf.float32), "w": Sparse(tf.int64)}))
tell("one", lambda: parse_one(a, {"x": Dense([], tf.float32), "w": Sparse(tf.int64), "z": Sparse(tf.string)}))
tell("sparse", lambda: parse([a, b, c], {"w": Sparse(tf.int64), "x": Sparse(tf.float32), "q": Sparse(tf.string)}))
tell("defaults", lambda: parse([a, c], {"z": Dense([], tf.string, "none"), "w": Dense([1], tf.int64, [8])}))
tell("sequences", lambda: parse([a, b, c], {"w": Sequence([], tf.int64, allow_missing=True)}))
tell("filled up", lambda: parse([a, b], {"w": Sequence([], tf.int64, allow_missing=True, default_value=-1)}))
pairs = [example(w=[1, 2, 3, 4]), example(w=[5, 6])]
tell("sequences of pairs", lambda: parse(pairs, {"w": Sequence([2], tf.int64, allow_missing=True)}))
tell("one sequence", lambda: parse_one(b, {"w": Sequence([], tf.int64, allow_missing=True)}))
where = [example(i=[3, 1], v=[1.0, 2.0]), example(i=[0], v=[4.0])]
tell("indices and values", lambda: parse(where, {"s": tf.io.SparseFeature("i", "v", tf.float32, 10)}))
tell(
    "sorted already",
    lambda: parse(where[1:], {"s": tf.io.SparseFeature("i", "v", tf.float32, 10, already_sorted=True)}),
)
plane = example(i=[1, 0], j=[2, 4], v=[1.0, 2.0])
tell("of two dimensions", lambda: parse([plane], {"s": tf.io.SparseFeature(["i", "j"], "v", tf.float32, [4, 5])}))
tell("of one example", lambda: parse_one(where[0], {"s": tf.io.SparseFeature("i", "v", tf.float32, 10)}))
tell("an empty string", lambda: parse([b""], {"x": Dense([], tf.float32, 1.0)}))
tell("no examples", lambda: parse(tf.constant([], tf.string), {"x": Dense([2], tf.float32), "w": Sparse(tf.int64)}))
tell("a feature without kind", lambda: parse([example(x=[])], {"x": Dense([], tf.float32, 7.0)}))
tell("nor sparse", lambda: parse([example(x=[])], {"x": Sparse(tf.float32)}))
show("order", list(parse([a], {"z": Dense([], tf.string), "x": Dense([], tf.float32)})))
many = [example(x=float(i), y=-(7**i) if i % 2 else 10**i, z=b"s" * (i * 20), k=[i] * (i % 4)) for i in range(18)]
wanted = {"x": Dense([], tf.float32), "y": Dense([], tf.int64), "z": Dense([], tf.string), "k": Sparse(tf.int64)}
tell("many of other lengths", lambda: parse(many, wanted))
mixed = [example(**({"x": 1.0, "y": i} if i % 3 else {"y": i, "u": b"", "x": 2.0})) for i in range(20)]
tell("many laid out in two ways", lambda: parse(mixed, {"x": Dense([], tf.float32), "y": Dense([], tf.int64)}))
for label, spec in (
    ("missing", {"z": Dense([], tf.string)}),
    ("of another size", {"w": Dense([3], tf.int64, [0, 0, 0])}),
    ("of another type", {"x": Dense([], tf.int64)}),
    ("sparse of another type", {"x": Sparse(tf.int64)}),
    ("no such type", {"y": Dense([], tf.int32)}),
    ("a default of another shape", {"w": Dense([2], tf.int64, [8, 9, 1])}),
    ("a default of another type", {"w": Dense([], tf.int64, 1.5)}),
    ("sequences that may not be missing", {"w": Sequence([], tf.int64)}),
    ("sequences of another size", {"w": Sequence([2], tf.int64, allow_missing=True)}),
    ("no shape", {"x": Dense(None, tf.float32)}),
    ("an unknown size", {"w": Dense([None], tf.int64)}),
    ("nothing", {}),
    ("no feature", {"x": 3}),
):
    error(label, lambda spec=spec: parse([a, b, c], spec))
error("no example", lambda: parse([a, b"nonsense"], {"x": Dense([], tf.float32)}))
error("half an example", lambda: parse([a[:-3]], {"x": Dense([], tf.float32)}))
error("two where one is wanted", lambda: parse_one([a, b], {"x": Dense([], tf.float32)}))
error("a matrix of examples", lambda: parse([[a, b]], {"x": Dense([], tf.float32)}))
dataset = tf.data.Dataset.from_tensor_slices([a, b])
both = {"x": Dense([], tf.float32), "z": Dense([], tf.string)}
show("mapped", [parts(element) for element in dataset.map(lambda text: parse_one(text, both))])
show("types", {key: str(spec) for key, spec in dataset.map(lambda text: parse_one(text, both)).element_spec.items()})
batches = dataset.batch(2).map(lambda text: parse(text, {"x": Dense([], tf.float32), "w": Sparse(tf.int64)}))
show("mapped batches", [parts(element) for element in batches])


def numbers(*values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def sequence(context, **lists):
    made = {key: tf.train.FeatureList(feature=[numbers(*step) for step in steps]) for key, steps in lists.items()}
    features = tf.train.Features(feature={key: numbers(value) for key, value in context.items()})
    return tf.train.SequenceExample(
        context=features, feature_lists=tf.train.FeatureLists(feature_list=made)
    ).SerializeToString()


first = sequence({"n": 5}, t=[[1], [2], [3]], u=[[1, 2], [], [3]])
second = sequence({"n": 6}, t=[[9]])
of_one, of_many = tf.io.parse_single_sequence_example, tf.io.parse_sequence_example
context, steps = {"n": Dense([], tf.int64)}, {"t": Sequence([], tf.int64), "u": Sparse(tf.int64)}
show("a sequence", [parts(part) for part in of_one(first, context, steps)])
show("of vectors", [parts(part) for part in of_one(first, None, {"t": Sequence([1], tf.int64)})])
show("only its context", [parts(part) for part in of_one(first, context)])
may_miss = {"u": Sequence([], tf.int64, allow_missing=True)}
show("a list that may be missing", [parts(part) for part in of_one(second, context, may_miss)])
show("sequences", [parts(part) for part in of_many([first, second], context, {"t": Sequence([], tf.int64)})])
sparse = {"t": Sparse(tf.int64), "u": Sparse(tf.int64)}
show("sparse sequences", [parts(part) for part in of_many([first, second], {"n": Sparse(tf.int64)}, sparse)])
error("a list is missing", lambda: of_one(second, context, {"u": Sequence([], tf.int64)}))
error("a step of another size", lambda: of_one(first, None, {"u": Sequence([], tf.int64)}))
error("no sequence", lambda: of_many([first, b"nonsense"], None, sparse))
