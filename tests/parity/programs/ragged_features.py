"""`tf.io.RaggedFeature`: values and their rows in examples, single ones and those with lists of features."""

import tensorflow as tf
from _facts import error, show

Feature = tf.io.RaggedFeature
parse, parse_one = tf.io.parse_example, tf.io.parse_single_example


def feature(values):
    if values and isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(**features):
    made = {key: feature(values) for key, values in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


rows = [
    example(n=[1, 2, 3], w=[0.5, 1.5], s=[b"x"], lengths=[2, 1], splits=[0, 2, 3], u=list(range(8)), ids=[0, 0, 2]),
    example(n=[], lengths=[0], splits=[0], u=[], ids=[]),
    example(n=[4], s=[b"y", b"z"], lengths=[1], splits=[0, 1], u=[1, 2, 3, 4], ids=[1]),
]
print(Feature(tf.int64))
print(Feature(tf.string, "n", [Feature.RowLengths("lengths"), Feature.UniformRowLength(2)], tf.int64, True))
show("values", parse(rows, {"n": Feature(tf.int64), "w": Feature(tf.float32), "s": Feature(tf.string)}))
show("splits", parse(rows, {"n": Feature(tf.int64)})["n"].row_splits)
show("int64 splits", parse(rows, {"n": Feature(tf.int64, row_splits_dtype=tf.int64)})["n"].row_splits)
show("of another key", parse(rows, {"x": Feature(tf.float32, value_key="w")}))
show("missing", parse(rows, {"missing": Feature(tf.int64)}))
show("beside others", parse(rows, {"n": Feature(tf.int64), "lengths": tf.io.RaggedFeature(tf.int64)}))
show("lengths", parse(rows, {"n": Feature(tf.int64, partitions=[Feature.RowLengths("lengths")])}))
show("splits", parse(rows, {"n": Feature(tf.int64, partitions=[Feature.RowSplits("splits")])}))
show("rows of values", parse(rows, {"n": Feature(tf.int64, partitions=[Feature.ValueRowIds("ids")])}))
show("uniform", parse(rows, {"u": Feature(tf.int64, partitions=[Feature.UniformRowLength(2)])}))
show("uniform twice", parse(rows, {"u": Feature(tf.int64, partitions=[Feature.UniformRowLength(2)] * 2)}))
nested = [example(v=[1, 2, 3], outer=[2, 0, 1], inner=[1, 1, 1]), example(v=[4], outer=[1], inner=[1])]
both = [Feature.RowLengths("outer"), Feature.RowLengths("inner")]
show("nested", parse(nested, {"v": Feature(tf.int64, partitions=both)}))
bounds = [example(v=[1, 2, 3], starts=[0, 1], limits=[1, 3]), example(v=[4, 5], starts=[0], limits=[2])]
show("starts", parse(bounds, {"v": Feature(tf.int64, partitions=[Feature.RowStarts("starts")])}))
show("limits", parse(bounds, {"v": Feature(tf.int64, partitions=[Feature.RowLimits("limits")])}))
show("a scalar", parse(rows[0], {"n": Feature(tf.int64)}))
show("one", [parse_one(rows[0], {"n": Feature(tf.int64)}), parse_one(rows[1], {"n": Feature(tf.int64)})])
show("one in rows", parse_one(rows[0], {"n": Feature(tf.int64, partitions=[Feature.RowLengths("lengths")])}))
show("one in uniform rows", parse_one(rows[0], {"u": Feature(tf.int64, partitions=[Feature.UniformRowLength(2)])}))
show("one in rows of values", parse_one(rows[0], {"n": Feature(tf.int64, partitions=[Feature.ValueRowIds("ids")])}))
error("another type", lambda: parse(rows, {"w": Feature(tf.int64)}))
error("no partition", lambda: Feature(tf.int64, partitions=[3]))

batches = tf.data.Dataset.from_tensor_slices(rows).batch(2)
parsed = batches.map(lambda batch: parse(batch, {"n": Feature(tf.int64)}))
print(parsed.element_spec)
show("batches", list(parsed))
show("lengths of batches", [batch["n"].row_lengths() for batch in parsed])


def sequence(context, **lists):
    made = {key: tf.train.FeatureList(feature=list(map(feature, steps))) for key, steps in lists.items()}
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={key: feature(values) for key, values in context.items()}),
        feature_lists=tf.train.FeatureLists(feature_list=made),
    ).SerializeToString()


several = [
    sequence({"c": [1, 2]}, k=[[1], [2, 3]], n=[[1], [1, 1]]),
    sequence({"c": []}, k=[], n=[]),
    sequence({"c": [3]}, k=[[]], n=[[]]),
]
wanted = {"k": Feature(tf.int64)}
show("sequences", tf.io.parse_sequence_example(several, {"c": Feature(tf.int64)}, wanted))
show("their splits", tf.io.parse_sequence_example(several, None, wanted)[1]["k"].nested_row_splits)
in_rows = {"k": Feature(tf.int64, partitions=[Feature.RowLengths("n")])}
show("sequences in rows", tf.io.parse_sequence_example(several, None, in_rows))
show("missing sequences", tf.io.parse_sequence_example(several, None, {"missing": Feature(tf.int64)})[1])
show("one sequence", tf.io.parse_single_sequence_example(several[0], {"c": Feature(tf.int64)}, wanted))
error("sequences of another type", lambda: tf.io.parse_sequence_example(several, None, {"k": Feature(tf.float32)}))
