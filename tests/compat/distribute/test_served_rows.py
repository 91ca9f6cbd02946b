"""Rows of variables on servers: what travels of a table that is looked up and changed by rows."""

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

ROWS, WIDTH, IDS = 1000, 4, [1, 500, 999, 500]
TABLE = np.random.RandomState(0).randn(ROWS, WIDTH).astype("f4")
ROW_BYTES = len(IDS) * WIDTH * 4
STEPS = 3
IDS_SENT = {"threads": 0, "messages": 4 * len(IDS)}  # To be looked up.
Fixed = tf.distribute.experimental.partitioners.FixedShardsPartitioner


@pytest.fixture(params=["threads", "messages"])
def engine(request):
    return request.param


def read(coordinator, fn, *args):
    """Return what a function gives, and what it has read and sent."""
    before = coordinator.statistics
    result = coordinator.schedule(tf.function(fn), args=args).fetch()
    after = coordinator.statistics
    return result, after.pulled_bytes - before.pulled_bytes, after.pushed_bytes - before.pushed_bytes


OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "Adam, clipped": lambda: keras.optimizers.Adam(0.1, global_clipnorm=1.0),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("kind", ["variable", "parts", "keras", "in a replica"])
def test_a_step_reads_and_sends_only_rows(coordinate, engine, optimizer, kind):
    def make(strategy):
        with strategy.scope():
            table = keras.Variable(TABLE) if kind == "keras" else tf.Variable(TABLE)
            return table, list(getattr(table, "variables", [table])), optimizer()

    def make_step(strategy, table, variables, optimizer):
        def step(ids):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        return tf.function((lambda ids: strategy.run(step, args=(ids,))) if kind == "in a replica" else step)

    strategy, coordinator = coordinate(partitioner=Fixed(3) if kind == "parts" else None)
    table, variables, optimizer_ = make(strategy)
    step = make_step(strategy, table, variables, optimizer_)
    losses = [float(coordinator.schedule(step, args=(tf.constant(IDS),)).fetch()) for _ in range(STEPS)]

    one = tf.distribute.OneDeviceStrategy("/cpu:0")
    same, same_variables, same_optimizer = make(one)
    step = make_step(one, same, same_variables, same_optimizer)
    np.testing.assert_allclose(losses, [float(step(tf.constant(IDS))) for _ in range(STEPS)], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(table), np.asarray(same), rtol=1e-5, atol=1e-6)
    told = coordinator.statistics
    pulled, pushed = ROW_BYTES * len(variables), (ROW_BYTES + 4 * len(IDS)) * len(variables)
    if engine == "threads":
        assert (told.pulled_bytes, told.pushed_bytes) == (STEPS * pulled, STEPS * pushed)
    else:  # Ids travel to be looked up, the number of the step from its server to others, and, to be clipped, all rows to all.
        once_more = 0 if optimizer_.global_clipnorm is None else pushed
        assert 0 <= told.pulled_bytes - STEPS * pulled <= STEPS * 8
        assert 0 <= told.pushed_bytes - STEPS * pushed <= STEPS * (once_more + 4 * len(IDS) * len(variables) + 8)


def test_scattered_rows_are_all_that_is_sent(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        table = tf.Variable(TABLE)

    def step(ids, values):
        table.scatter_sub(tf.IndexedSlices(values, ids))

    values = tf.ones([len(IDS), WIDTH])
    assert read(coordinator, step, tf.constant(IDS), values) == (None, 0, ROW_BYTES + 4 * len(IDS))
    wanted = TABLE.copy()
    np.subtract.at(wanted, IDS, 1.0)
    np.testing.assert_allclose(table.numpy(), wanted, rtol=1e-6)


def test_functions_that_only_look_up_read_rows(coordinate, engine):
    strategy, coordinator = coordinate()
    with strategy.scope():
        table, scale = tf.Variable(TABLE), tf.Variable(2.0)
    for look_up in (tf.nn.embedding_lookup, tf.gather, lambda table, ids: table.sparse_read(ids)):
        found, pulled, pushed = read(coordinator, lambda ids: scale * look_up(table, ids % 1000), tf.constant(IDS))  # noqa: B023
        np.testing.assert_array_equal(found, 2 * TABLE[IDS])
        assert (pulled, pushed) == (ROW_BYTES + 4, IDS_SENT[engine])


def test_a_table_is_read_whole_where_rows_do_not_do(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        table, place = tf.Variable(TABLE), tf.Variable([7, 500])

    def also_sum(ids):
        return tf.gather(table, ids), tf.reduce_sum(table)

    def of_variable(ids):
        return tf.gather(table, place)

    def returned(ids):
        return tf.gather(table, ids), table

    def many(ids):
        return tf.gather(table, tf.range(2000) % 1000)

    for fn in (also_sum, returned, many):
        found, pulled, _ = read(coordinator, fn, tf.constant(IDS))
        assert pulled == TABLE.nbytes
        rows = found if fn is many else found[0]
        np.testing.assert_array_equal(rows, TABLE[np.arange(2000) % 1000] if fn is many else TABLE[IDS])
    found, pulled, _ = read(coordinator, of_variable, tf.constant(IDS))
    np.testing.assert_array_equal(found, TABLE[[7, 500]])
    assert pulled == TABLE.nbytes + place.numpy().nbytes


def test_rows_are_those_before_and_after_a_change(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        table = tf.Variable(TABLE)

    def step(ids):
        before = tf.gather(table, ids)
        table.scatter_add(tf.IndexedSlices(tf.ones([1, WIDTH]), ids[:1]))
        return before, tf.gather(table, ids)

    (before, after), *_ = read(coordinator, step, tf.constant(IDS))
    np.testing.assert_array_equal(before, TABLE[IDS])
    np.testing.assert_allclose(after, TABLE[IDS] + np.array([1, 0, 0, 0], "f4")[:, None], rtol=1e-6)


def test_a_tape_around_a_function_differentiates_its_lookups(coordinate):
    strategy, _ = coordinate()
    with strategy.scope():
        table = tf.Variable(TABLE)
    look_up = tf.function(lambda ids: tf.reduce_sum(tf.gather(table, ids) * 3.0))
    with tf.GradientTape() as tape:
        loss = look_up(tf.constant(IDS))
    wanted = np.zeros_like(TABLE)
    np.add.at(wanted, IDS, 3.0)
    np.testing.assert_array_equal(tf.convert_to_tensor(tape.gradient(loss, table)), wanted)


def test_ids_that_are_computed_are_computed_once(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        table = tf.Variable(TABLE)
    calls = []

    def number(ids):
        calls.append(1)
        return ids + 1

    def step(ids):
        rows = tf.numpy_function(number, [ids], tf.int32)
        return tf.gather(table, tf.ensure_shape(rows, [4])), rows

    found, rows = coordinator.schedule(tf.function(step), args=(tf.constant([0, 5, 6, 7]),)).fetch()
    np.testing.assert_array_equal(found, TABLE[rows])
    assert len(calls) == 1


# On one device gradients of repeated rows are added up in bfloat16, on a server in float32.
@pytest.mark.parametrize(("policy", "tolerance"), [("float32", 1e-5), ("mixed_bfloat16", 2e-2)])
def test_keras_layers_keep_whole_variables_of_which_embeddings_send_rows(coordinate, engine, policy, tolerance):
    def train(strategy, run):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            embedding = keras.layers.Embedding(ROWS, WIDTH, dtype=policy)
            dense = keras.layers.Dense(1, dtype=policy)
            optimizer = keras.optimizers.SGD(0.1)
            dense(embedding(tf.constant([0])))
        weights = [*embedding.trainable_variables, *dense.trainable_variables]

        @tf.function
        def step(ids):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.cast(dense(embedding(ids)), tf.float32) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return loss

        losses = [run(step, tf.constant([[1, -500], [999, 500]])) for _ in range(STEPS)]
        return losses, [np.asarray(weight) for weight in weights], weights

    strategy, coordinator = coordinate(partitioner=Fixed(3))
    losses, found, weights = train(strategy, lambda fn, ids: float(coordinator.schedule(fn, args=(ids,)).fetch()))
    same, wanted, _ = train(tf.distribute.OneDeviceStrategy("/cpu:0"), lambda fn, ids: float(fn(ids)))
    assert all(isinstance(weight, keras.Variable) for weight in weights)
    np.testing.assert_allclose(losses, same, rtol=tolerance)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance / 10)
    kernel = 4 * WIDTH + 4
    told = coordinator.statistics
    # Servers in other processes are also told the ids to look up, and some numbers of other servers.
    more = 0 if engine == "threads" else STEPS * 8
    assert 0 <= told.pulled_bytes - STEPS * (ROW_BYTES + kernel) <= more
    assert 0 <= told.pushed_bytes - STEPS * (ROW_BYTES + 4 * len(IDS) + kernel + IDS_SENT[engine]) <= more


def test_ids_out_of_range_are_no_number(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        embedding = keras.layers.Embedding(5, 2)
        embedding.build(())
    found = coordinator.schedule(tf.function(embedding), args=(tf.constant([1, 5, -1]),)).fetch()
    assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()
    np.testing.assert_array_equal(found[2], embedding.embeddings.numpy()[4])


@pytest.mark.parametrize("engine", ["threads"])  # For the other one, see tests/test_servers.py.
def test_rows_are_changed_in_the_memory_of_their_table(coordinate):
    strategy, coordinator = coordinate()
    with strategy.scope():
        table = tf.Variable(TABLE)
    optimizer = keras.optimizers.SGD(0.1)

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])

    coordinator.schedule(step, args=(tf.constant(IDS),)).fetch()
    place = table.stored.unsafe_buffer_pointer()
    coordinator.schedule(step, args=(tf.constant(IDS),)).fetch()
    assert table.stored.unsafe_buffer_pointer() == place
    held = table.value()
    coordinator.schedule(step, args=(tf.constant(IDS),)).fetch()
    np.testing.assert_allclose(held.numpy()[IDS[0]], TABLE[IDS[0]] - 0.2, rtol=1e-5)
    np.testing.assert_allclose(table.numpy()[IDS[0]], TABLE[IDS[0]] - 0.3, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:A function on servers calls Python")
def test_tables_are_read_looked_up_saved_and_changed_at_once(coordinate, meeting, tmp_path):
    strategy, coordinator = coordinate()
    meet = meeting(2)
    with strategy.scope():
        table, count = tf.Variable(np.zeros_like(TABLE)), tf.Variable(0.0)

    @tf.function
    def change(ids):
        rows = meet(tf.gather(table, ids))
        table.scatter_add(tf.IndexedSlices(tf.ones_like(rows), ids))
        count.assign_add(1.0)
        return rows

    @tf.function
    def read_all():
        return tf.reduce_sum(table)

    checkpoint = tf.train.Checkpoint(table=table, count=count)
    remote = []
    for i in range(150):
        remote.append(
            coordinator.schedule(read_all) if i % 3 == 2 else coordinator.schedule(change, args=(tf.constant(IDS),))
        )
        if i % 50 == 25:
            checkpoint.save(tmp_path / "saved")
    coordinator.join()
    assert all(np.isfinite(value.fetch()).all() for value in remote)
    assert table.numpy()[IDS].tolist() == [[100.0] * 4, [200.0] * 4, [100.0] * 4, [200.0] * 4] and float(count) == 100
