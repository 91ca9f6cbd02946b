"""`tf.data.experimental`'s transformations, options of datasets, lists of files."""

import pathlib
import tempfile

import tensorflow as tf
from _facts import error, show

Dataset, experimental = tf.data.Dataset, tf.data.experimental
numbers = Dataset.range(6)
plain = lambda dataset: [x.tolist() if hasattr(x, "tolist") else x for x in dataset.as_numpy_iterator()]

show("scan", plain(numbers.apply(experimental.scan(tf.constant(0, tf.int64), lambda s, x: (s + x, s + x)))))
show("take_while", plain(numbers.apply(experimental.take_while(lambda x: x < 3))))
show("unbatch", plain(numbers.batch(4).apply(experimental.unbatch())))
show("unique", plain(Dataset.from_tensor_slices([1, 2, 1]).apply(experimental.unique())))
show("enumerate", [int(i) for i, _ in numbers.apply(experimental.enumerate_dataset(4))])
show("map_and_batch", plain(numbers.apply(experimental.map_and_batch(lambda x: x * x, 4, drop_remainder=True))))
grouped = experimental.group_by_window(lambda x: x % 2, lambda key, part: part.batch(2), 2)
show("group_by_window", plain(numbers.apply(grouped)))
woven = experimental.parallel_interleave(lambda x: Dataset.from_tensors(x).repeat(2), cycle_length=2)
show("parallel_interleave", sorted(plain(numbers.apply(woven))))
mixed = plain(numbers.apply(experimental.shuffle_and_repeat(6, 2, seed=1)))
show("shuffle_and_repeat", [sorted(mixed), sorted(mixed[:6])])
buckets = experimental.bucket_by_sequence_length(lambda x: tf.shape(x)[0], [3], [2, 2], padded_shapes=[None])
ragged = Dataset.range(1, 5).flat_map(lambda n: Dataset.from_tensors(tf.fill([n], n)))
show("buckets", plain(ragged.apply(buckets)))
show("Counter", plain(experimental.Counter(5, 2).take(3)))
show("RandomDataset", len(plain(experimental.RandomDataset(seed=1).take(3))))
drawn = experimental.RandomDataset(seed=1)
show("as a class", [isinstance(drawn, experimental.RandomDataset), isinstance(drawn, Dataset), str(drawn.element_spec)])
show("made of it", isinstance(drawn.batch(2), experimental.RandomDataset))
show("from_list", plain(experimental.from_list([(1, 2.0), (3, 4.0)]).map(lambda a, b: tf.cast(a, tf.float32) + b)))
error("from an empty list", lambda: experimental.from_list([]))
show("single", int(experimental.get_single_element(numbers.take(1))))
show("structure", str(experimental.get_structure(numbers)))
parts = [Dataset.from_tensors(i).repeat(2) for i in range(2)]
show("choose", plain(experimental.choose_from_datasets(parts, Dataset.range(2).repeat(3))))
show("sample", sorted(plain(experimental.sample_from_datasets(parts, [0.5, 0.5], seed=1))))
show("to a device", plain(numbers.apply(experimental.copy_to_device("/cpu:0"))))
known = numbers.filter(lambda x: x < 4).apply(experimental.assert_cardinality(4))
show("assert_cardinality", [int(known.cardinality()), plain(known)])
error("fewer", lambda: plain(numbers.apply(experimental.assert_cardinality(9))))
error("more", lambda: plain(numbers.apply(experimental.assert_cardinality(3))))

first, second = tf.data.Options(), tf.data.Options()
first.deterministic = False
first.threading.private_threadpool_size = 3
first.experimental_optimization.map_fusion = True
first.autotune.enabled = False
second.experimental_slack = True
second.experimental_distribute.auto_shard_policy = experimental.AutoShardPolicy.OFF
merged = numbers.with_options(first).with_options(second).map(lambda x: x).options()
show("merged", [merged.deterministic, merged.threading.private_threadpool_size, merged.experimental_slack])
show("merged policy", merged.experimental_distribute.auto_shard_policy.name)
show(
    "of their own",
    [first.merge(second).deterministic, first.experimental_slack, first == first.merge(tf.data.Options())],
)
show("defaults", [numbers.options().deterministic, numbers.options().autotune.enabled])
error("no such option", lambda: setattr(tf.data.Options(), "determinstic", True))
error("no such option of threads", lambda: setattr(tf.data.Options().threading, "threads", 1))

folder = pathlib.Path(tempfile.mkdtemp())
for name in ("b.txt", "a.txt", "c.csv"):
    (folder / name).touch()
names = lambda dataset: [pathlib.Path(x.decode()).name for x in dataset.as_numpy_iterator()]
show("files", names(Dataset.list_files(f"{folder}/*.txt", shuffle=False)))
show("files of patterns", names(Dataset.list_files([f"{folder}/*.csv", f"{folder}/a*"], shuffle=False)))
show("files in any order", sorted(names(Dataset.list_files(f"{folder}/*", seed=1))))
error("no files", lambda: Dataset.list_files(f"{folder}/*.png"))

hinted = numbers.shard(experimental.SHARD_HINT, experimental.SHARD_HINT)
show("hint", [experimental.SHARD_HINT, str(hinted.element_spec)])
error("hint without a strategy", lambda: plain(hinted))
