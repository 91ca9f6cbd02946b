"""Distributed datasets with real processes: who reads what, and batches of texts and of columns that differ in length."""

import itertools

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


def test_each_worker_reads_its_own_files_or_its_part_of_the_elements(cluster, tmp_path):
    for i in range(5):
        np.save(tmp_path / f"part{i}.npy", np.arange(i + 2) + 10 * i)
    program = """
    import sys
    import numpy as np, tensorflow as tf
    from tensorflow.data.experimental import AutoShardPolicy, SHARD_HINT
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    def rows(name):
        return tf.data.Dataset.from_tensor_slices(np.load(name.numpy()))
    def rows_of(distributed):
        return [row for batch in distributed for part in strategy.experimental_local_results(batch) for row in part.numpy().tolist()]
    def read(name, dataset, policy):
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = policy
        try:
            own = rows_of(strategy.experimental_distribute_dataset(dataset.batch(4).with_options(options)))
        except tf.errors.OpError as error:
            own = [type(error).__name__, error.message]
        result(name, own)
    names = tf.data.Dataset.list_files(sys.argv[1] + "/*.npy", shuffle=False)
    read("file", names.interleave(rows), AutoShardPolicy.FILE)
    read("shuffled", tf.data.Dataset.list_files(sys.argv[1] + "/*.npy").flat_map(rows), AutoShardPolicy.FILE)
    read("cached", names.cache().flat_map(rows).repeat(2), AutoShardPolicy.FILE)
    read("auto", names.flat_map(rows), AutoShardPolicy.AUTO)
    read("hint", tf.data.Dataset.range(7).shard(SHARD_HINT, SHARD_HINT), AutoShardPolicy.HINT)
    read("no files", tf.data.Dataset.range(7), AutoShardPolicy.FILE)
    read("no policy", tf.data.Dataset.range(7).shard(SHARD_HINT, SHARD_HINT), AutoShardPolicy.DATA)
    per_replica = tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA, experimental_fetch_to_device=False)
    shard = lambda context: tf.data.Dataset.range(9).shard(context.num_input_pipelines, context.input_pipeline_id).batch(2)
    result("per replica", rows_of(strategy.distribute_datasets_from_function(shard, per_replica)))
    read("few files", tf.data.Dataset.list_files(sys.argv[1] + "/part0.npy").flat_map(rows), AutoShardPolicy.FILE)
    """
    workers = cluster(2).start(program, str(tmp_path))
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    everything = sorted(10 * i + j for i in range(5) for j in range(i + 2))
    parts = [[row for i in range(first, 5, 2) for row in range(10 * i, 10 * i + i + 2)] for first in (0, 1)]
    for name, times in (("file", 1), ("shuffled", 1), ("cached", 2)):
        assert [sorted(worker.result(name)) for worker in workers] == [sorted(part * times) for part in parts], name
    for worker in workers:
        kind, message = worker.result("no files")
        assert kind == "NotFoundError" and "unshardable source" in message
        kind, message = worker.result("no policy")
        assert kind == "FailedPreconditionError" and "AutoShardPolicy.HINT" in message
        kind, message = worker.result("few files")
        assert kind == "InvalidArgumentError" and "only has 1 file(s)" in message
    both = lambda name: list(itertools.chain(*(worker.result(name) for worker in workers)))
    assert sorted(both("auto")) == everything
    assert [worker.result("per replica") for worker in workers] == [[0, 2, 4, 6, 8], [1, 3, 5, 7]]
    assert [worker.result("hint") for worker in workers] == [[0, 2, 4, 6], [1, 3, 5]]


def test_texts_and_columns_of_different_lengths_come_to_the_replicas_of_each_worker(cluster):
    program = """
    import numpy as np, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    me = strategy.cluster_resolver.task_id
    def seen(distributed):
        steps = []
        for batch in distributed:
            own = lambda value: [part.numpy().tolist() for part in strategy.experimental_local_results(value)]
            steps.append({name: [[row.decode() if isinstance(row, bytes) else row for row in part] for part in own(value)]
                          for name, value in batch.items()})
        return steps
    rows = [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    same = tf.data.Dataset.from_tensor_slices({"word": rows, "number": np.arange(7)}).batch(5)
    result("same", seen(strategy.experimental_distribute_dataset(same)))
    pairs = tf.data.Dataset.zip({"short": tf.data.Dataset.range(4).batch(2), "long": tf.data.Dataset.range(8).batch(4)})
    result("pairs", seen(strategy.experimental_distribute_dataset(pairs)))
    mine = lambda context: tf.data.Dataset.from_tensor_slices({"word": rows[: 3 - 2 * me], "number": np.arange(3 - 2 * me)}).batch(2)
    result("own", seen(strategy.distribute_datasets_from_function(mine)))
    off = tf.data.Options()
    off.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    result("off", seen(strategy.experimental_distribute_dataset(same.take(1 + me).with_options(off))))

    @tf.function
    def total(batch):
        return strategy.reduce("SUM", strategy.run(lambda b: tf.reduce_sum(b["number"]), args=(batch,)), axis=None)
    result("total", [int(total(batch)) for batch in strategy.experimental_distribute_dataset(same)])
    for batch in strategy.experimental_distribute_dataset(same.take(1)):
        try:
            batch["word"].values[1 - me].numpy()
        except Exception as error:
            result("elsewhere", str(error))
    """
    workers = cluster(2).start(program)
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    first, second = workers
    column = lambda worker, name, key: [step[key] for step in worker.result(name)]
    assert list(first.result("same")[0]) == ["word", "number"]
    assert column(first, "same", "word") == [[["a", "b", "c"]], [["f"]]]
    assert column(second, "same", "word") == [[["d", "e"]], [["g"]]]
    assert column(second, "same", "number") == [[[3, 4]], [[6]]]
    assert column(first, "pairs", "long") == [[[0, 1]], [[4, 5]]]
    assert column(second, "pairs", "long") == [[[2, 3]], [[6, 7]]]
    assert column(second, "pairs", "short") == [[[1]], [[3]]]
    assert column(first, "own", "word") == [[["a", "b"]], [["c"]]]
    assert column(second, "own", "word") == [[["a"]], [[]]]
    assert column(first, "off", "word") == [[["a", "b", "c"]], [["d", "e"]], [[]], [[]]]
    assert column(second, "off", "word") == [[["a", "b", "c"]], [["d", "e"]], [["f"]], [["g"]]]
    assert first.result("total") == second.result("total") == [10, 11]
    assert all("another process's" in worker.result("elsewhere") for worker in workers)


@pytest.mark.parametrize("policy", ["FILE", "AUTO", "HINT"])
def test_sharing_out_means_nothing_to_one_process(policy):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
    data = tf.data.Dataset.range(4).batch(2).with_options(options)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    assert [batch.numpy().tolist() for batch in strategy.experimental_distribute_dataset(data)] == [[0, 1], [2, 3]]
