"""Variables of parameter servers in parts: `ShardedVariable`."""

import copy
import itertools

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow._variables._sharded_variable import ShardedVariable

ROWS = np.arange(20, dtype="f4").reshape(10, 2)
Simple = tf.distribute.cluster_resolver.SimpleClusterResolver
Fixed = tf.distribute.experimental.partitioners.FixedShardsPartitioner


def make_strategy(partitioner, workers=2, servers=3):
    jobs = {"worker": workers, "ps": servers}
    spec = {job: [f"localhost:{2222 + i}" for i in range(count)] for job, count in jobs.items()}
    return tf.distribute.ParameterServerStrategy(Simple(tf.train.ClusterSpec(spec)), partitioner)


def make_table(parts, value=ROWS, **options):
    with make_strategy(Fixed(parts)).scope():
        return tf.Variable(value, **options)


def slices(indices, values=None):
    return tf.IndexedSlices(tf.ones([len(indices), 2]) if values is None else tf.constant(values), tf.constant(indices))


def test_parts_are_on_one_server_after_another():
    with make_strategy(Fixed(3)).scope():
        table, scalar = tf.Variable(ROWS, name="table", trainable=False), tf.Variable(1.0)
        other = tf.Variable([1.0, 2.0])
    assert isinstance(table, ShardedVariable) and not isinstance(table, tf.Variable)
    assert [part.name for part in table.variables] == ["table/part_0:0", "table/part_1:0", "table/part_2:0"]
    assert [part.shape.as_list() for part in table] == [[4, 2], [3, 2], [3, 2]]
    assert not any(part.trainable for part in table)
    variables = [*table, scalar, *other.variables]
    assert [part.device[len("/job:ps/replica:0/task:")] for part in variables] == list("012012")
    assert (table.shape, table.dtype, table.name) == ([10, 2], tf.float32, "ShardedVariable")
    np.testing.assert_array_equal(table.numpy(), ROWS)


def test_one_part_is_a_plain_variable():
    assert type(make_table(1)) is tf.Variable and type(make_table(3, 1.0)) is tf.Variable


def test_creators_of_the_program_see_the_whole_variable():
    seen = []

    def creator(make, **given):
        seen.append(given["initial_value"].shape)
        return make(**given | {"trainable": False})

    with make_strategy(Fixed(2)).scope(), tf.variable_creator_scope(creator):
        table = tf.Variable(ROWS)
    assert seen == [(10, 2)] and [part.trainable for part in table] == [False, False]


def test_initializers_make_the_parts_that_they_know_of():
    asked = []

    def init(partition_shape, partition_offset):
        asked.append((partition_shape.as_list(), partition_offset))
        return tf.constant(ROWS[partition_offset[0] :][: partition_shape[0]])

    table = make_table(3, init, shape=[10, 2], dtype=tf.float32)
    assert asked == [([4, 2], (0, 0)), ([3, 2], (4, 0)), ([3, 2], (7, 0))]
    np.testing.assert_array_equal(table.numpy(), ROWS)


@pytest.mark.parametrize("options", [{}, {"shape": [10, 2], "dtype": tf.float32}])
def test_initializers_that_know_of_no_parts_are_called_once(options):
    count = itertools.count()
    table = make_table(3, lambda: tf.constant(ROWS + next(count)), **options)
    np.testing.assert_array_equal(table.numpy(), ROWS)


def test_an_initial_value_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"\(10, 2\) is not compatible with the explicitly given \(11, 2\)"):
        make_table(3, lambda: tf.constant(ROWS), shape=[11, 2], dtype=tf.float32)


@pytest.mark.parametrize("answer", [[], None, [0], [2, 2], (0,), "no", np.array([2, 1])])
def test_partitioners_must_cut_the_first_axis_only(answer):
    with (
        make_strategy(lambda shape, dtype: answer).scope(),
        pytest.raises(ValueError, match="must return a list/tuple"),
    ):
        tf.Variable(ROWS)


@pytest.mark.parametrize("answer", [[2.5], [-1], 3, [None]])
def test_partitioners_must_answer_integers(answer):
    with make_strategy(lambda shape, dtype: answer).scope(), pytest.raises(TypeError, match="must return a list/tuple"):
        tf.Variable(ROWS)


def test_what_cannot_be_called_is_no_partitioner():
    with pytest.raises(TypeError, match="`variable_partitioner` must be"):
        make_strategy([2, 1])


BOUNDS = [None, -30, -10, -7, -1, 0, 1, 3, 4, 6, 9, 10, 30]


@pytest.mark.parametrize("step", [None, 1, 2, 5, 30, -1, -3, -30])
def test_slices_are_those_of_the_whole(step):
    table = make_table(3)
    for start, stop in itertools.product(BOUNDS, BOUNDS):
        np.testing.assert_array_equal(table[start:stop:step], ROWS[start:stop:step], f"{start}:{stop}:{step}")
        np.testing.assert_array_equal(table[start:stop:step, 1], ROWS[start:stop:step, 1])


def test_indices_are_those_of_the_whole():
    table = make_table(3)
    for row in range(-10, 10):
        np.testing.assert_array_equal(table[row], ROWS[row])
        np.testing.assert_array_equal(table[np.int64(row), 1], ROWS[row, 1])
    np.testing.assert_array_equal(table[..., 1], ROWS[..., 1])
    np.testing.assert_array_equal(table[tf.newaxis, 3:5], ROWS[None, 3:5])
    np.testing.assert_array_equal(table[ROWS[:, 0] > 7], ROWS[ROWS[:, 0] > 7])


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (10, IndexError),
        (-11, IndexError),
        ((), IndexError),
        (tf.constant(1), TypeError),
        (slice(tf.constant(1), None), TypeError),
        (1.5, TypeError),
        ([1, 2], TypeError),
        (True, ValueError),
        (slice(None, None, 0), ValueError),
    ],
)
def test_indices_that_do_not_fit_are_refused(key, error):
    with pytest.raises(error):
        make_table(3)[key]


def test_operators_are_those_of_the_value():
    table, whole = make_table(3), tf.constant(ROWS)
    for found, wanted in [
        (table + 1.0, whole + 1.0),
        (2.0 - table, 2.0 - whole),
        (table * table, whole * whole),
        (-table, -whole),
        (tf.Variable(2.0) * table, 2.0 * whole),
        (table @ tf.ones([2, 1]), whole @ tf.ones([2, 1])),
        (table >= 3.0, whole >= 3.0),
        (table == whole, whole == whole),
        (tf.reduce_sum(table, 0), tf.reduce_sum(whole, 0)),
        (tf.concat([table, whole], 1), tf.concat([whole, whole], 1)),
    ]:
        np.testing.assert_array_equal(found, wanted)
    assert table is not None and len({table}) == 1 and (table == None) is False  # noqa: E711
    before = table
    table += 1.0
    assert not isinstance(table, ShardedVariable) and float(before[0, 0]) == 0


def test_values_are_assigned_by_parts():
    table = make_table(3)
    assert (
        table.assign(ROWS * 2) is table
        and table.assign_add(ROWS) is table
        and table.assign_sub(np.ones_like(ROWS)) is table
    )
    np.testing.assert_array_equal(table.numpy(), ROWS * 3 - 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"shape \(10, 2\).*\(12, 2\)"):
        table.assign(np.zeros([12, 2], "f4"))
    with pytest.raises(ValueError, match=r"dtype float32.*int32"):
        table.assign(tf.ones([10, 2], tf.int32))
    np.testing.assert_array_equal(table.numpy(), ROWS * 3 - 1)


@pytest.mark.parametrize("how", ["add", "sub", "mul", "div", "min", "max", "update"])
@pytest.mark.parametrize("is_traced", [False, True])
def test_rows_are_scattered_as_in_the_whole(how, is_traced):
    table, whole = make_table(3), tf.Variable(ROWS)
    values = [[2.0, 3.0], [4.0, 5.0], [1.0, 0.5], [7.0, 8.0]]

    def scatter(indices):
        getattr(table, f"scatter_{how}")(tf.IndexedSlices(tf.constant(values), indices))

    (tf.function(scatter) if is_traced else scatter)(tf.constant([9, 0, 4, 6], tf.int64))
    getattr(whole, f"scatter_{how}")(slices([9, 0, 4, 6], values))
    np.testing.assert_array_equal(table.numpy(), whole.numpy())


def test_scattered_rows_must_be_there():
    table = make_table(3)
    for row in (10, -1):
        with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
            table.scatter_add(slices([1, row]))
    with pytest.raises(ValueError, match="1D"):
        table.scatter_add(tf.IndexedSlices(tf.ones([1, 1, 2]), tf.constant([[1]])))
    np.testing.assert_array_equal(table.numpy(), ROWS)


def test_parts_of_other_sizes_are_read_and_assigned_but_not_scattered():
    table = ShardedVariable([tf.Variable(ROWS[:1]), tf.Variable(ROWS[1:])])
    np.testing.assert_array_equal(tf.nn.embedding_lookup(table, [0, 5]), ROWS[[0, 5]])
    np.testing.assert_array_equal(table.assign(ROWS + 1).numpy(), ROWS + 1)
    with pytest.raises(NotImplementedError, match=r"div.*\[1, 9\] rows"):
        table.scatter_add(slices([1]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[1, 9\] rows.*tf\.concat"):
        tf.nn.embedding_lookup(table.variables, [0, 5])


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ([], TypeError),
        ([tf.constant([1.0])], TypeError),
        ([tf.Variable(1.0)], IndexError),
        ([tf.Variable([1.0]), tf.Variable([1])], ValueError),
        ([tf.Variable([[1.0]]), tf.Variable([[1.0, 2.0]])], ValueError),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(variables, error):
    with pytest.raises(error, match="variables"):
        ShardedVariable(variables)


@pytest.mark.parametrize("ids", [7, [7, 1, 4, 7], [[9, 0], [3, 4]], np.zeros([0], "i8"), np.array([9, 0], "u1")])
@pytest.mark.parametrize("is_traced", [False, True])
def test_lookups_find_rows_in_their_parts(ids, is_traced):
    table, ids = make_table(3), tf.constant(ids)
    for look_up in (
        lambda ids: tf.nn.embedding_lookup(table, ids),
        lambda ids: tf.nn.embedding_lookup(table.variables, ids),
        lambda ids: tf.nn.embedding_lookup([table], ids),
        lambda ids: tf.gather(table, ids),
    ):
        found = (tf.function(look_up) if is_traced else look_up)(ids)
        np.testing.assert_array_equal(found, ROWS[np.asarray(ids)])


def test_lookups_of_small_integers_find_rows_behind_their_range():
    rows = np.arange(600, dtype="f4")[:, None]
    table = make_table(2, rows)
    found = tf.function(lambda ids: tf.nn.embedding_lookup(table, ids))(tf.constant([3, 100], tf.int8))
    np.testing.assert_array_equal(found, [[3], [100]])


def test_other_lookups():
    table, ids = make_table(3), tf.sparse.from_dense([[7, 1], [4, 0]])
    np.testing.assert_array_equal(tf.nn.embedding_lookup_sparse(table, ids, None, combiner="sum"), [[16, 18], [8, 9]])
    np.testing.assert_array_equal(tf.nn.safe_embedding_lookup_sparse(table, ids, combiner="sum"), [[16, 18], [8, 9]])
    np.testing.assert_array_equal(table.sparse_read(tf.constant([7, 1, 4, 0])), ROWS[[1, 0, 4, 7]])
    np.testing.assert_allclose(tf.norm(tf.nn.embedding_lookup(table, [1, 7], max_norm=1.0), axis=1), [1, 1], rtol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"10 is not in"):
        tf.nn.embedding_lookup(table, [10])
    with pytest.raises(ValueError, match="at least one param"):
        tf.nn.embedding_lookup([], [0])


WEIGHTS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]], "f4")


def gradients(table, ids):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) * WEIGHTS)
    return tape.gradient(loss, table.variables)


def test_gradients_of_lookups_are_rows_of_parts():
    found = gradients(make_table(3), tf.constant([7, 1, 4, 7]))
    assert all(isinstance(grad, tf.IndexedSlices) for grad in found)
    assert [np.asarray(grad.indices).tolist() for grad in found] == [[1], [0], [0, 0]]
    assert [np.asarray(grad.values).tolist() for grad in found] == [[[3, 4]], [[5, 6]], [[1, 2], [7, 8]]]
    assert [np.asarray(grad.dense_shape).tolist() for grad in found] == [[4, 2], [3, 2], [3, 2]]


def test_gradients_in_functions_are_rows_of_parts_and_zeros():
    table = make_table(3)
    found = tf.function(lambda ids: gradients(table, ids))(tf.constant([7, 1, 4, 7]))
    wanted = [tf.convert_to_tensor(grad) for grad in gradients(table, tf.constant([7, 1, 4, 7]))]
    assert all(isinstance(grad, tf.IndexedSlices) and grad.values.shape == (4, 2) for grad in found)
    for grad, dense in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(tf.convert_to_tensor(grad), dense)
        assert float(tf.reduce_sum(grad.values)) == float(tf.reduce_sum(dense))


def test_parts_that_are_not_read_have_no_gradient():
    table = make_table(3)
    with tf.GradientTape(persistent=True) as tape:
        row, some = tf.reduce_sum(table[5] * 2.0), tf.reduce_sum(table[2:5])
    assert [grad is None for grad in tape.gradient(row, table.variables)] == [True, False, True]
    assert [grad is None for grad in tape.gradient(some, table.variables)] == [False, False, True]


def test_gradients_by_the_whole_are_refused_with_the_way():
    table = make_table(3)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(table)
    with pytest.raises(AttributeError, match="give its `variables`"):
        tape.gradient(loss, table)


def test_a_whole_one_is_watched():
    table = make_table(3, trainable=False)
    with tf.GradientTape() as tape:
        tape.watch(table)
        loss = tf.reduce_sum(table * 3.0)
    assert [np.asarray(grad).tolist() for grad in tape.gradient(loss, table.variables)] == [
        [[3.0, 3.0]] * rows for rows in (4, 3, 3)
    ]


def test_modules_have_the_parts_as_variables():
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.table, self.frozen = make_table(2, name="t"), make_table(2, name="f", trainable=False)
            self.same = [self.table]

    model = Model()
    assert [v.name for v in model.variables] == ["f/part_0:0", "f/part_1:0", "t/part_0:0", "t/part_1:0"]
    assert [v.name for v in model.trainable_variables] == ["t/part_0:0", "t/part_1:0"]


def test_structures_hold_it_as_one_or_as_its_parts():
    table = make_table(2)
    assert tf.nest.flatten([table, 1])[0] is table
    assert [type(leaf) for leaf in tf.nest.flatten([table], expand_composites=True)] == [tf.Variable] * 2
    assert tf.function(lambda given: tf.reduce_sum(given))(table) == ROWS.sum()
    twin = copy.deepcopy(table)
    twin.assign(np.zeros_like(ROWS))
    np.testing.assert_array_equal(table.numpy(), ROWS)


def test_workers_change_parts_without_losing_changes(coordinate, meeting):
    strategy, coordinator = coordinate(servers=3, partitioner=Fixed(3))
    meet = meeting(2)
    with strategy.scope():
        table = tf.Variable(np.zeros_like(ROWS))

    @tf.function
    def step(row):
        one = meet(tf.reduce_sum(table) * 0 + 1)
        table.assign_add(tf.fill([10, 2], one))
        table.scatter_add(tf.IndexedSlices(tf.fill([2, 2], one), tf.stack([row, 9 - row])))
        return tf.nn.embedding_lookup(table, row)

    remote = [coordinator.schedule(step, args=(tf.constant(i % 5),)) for i in range(50)]
    coordinator.join()
    np.testing.assert_array_equal(table.numpy(), np.full([10, 2], 60.0))
    assert all(value.fetch()[0] >= 2 for value in remote)


@pytest.mark.parametrize("form", ["orbax", "tensorflow"])
@pytest.mark.parametrize("restored", [1, 2, 5, 7, None])
def test_checkpoints_hold_the_whole_whatever_its_parts(tmp_path, monkeypatch, form, restored):
    monkeypatch.setenv("TFDIST_CHECKPOINT_FORMAT", form)
    path = tf.train.Checkpoint(table=make_table(3)).save(tmp_path / "saved")
    assert dict(tf.train.list_variables(path))["table/.ATTRIBUTES/VARIABLE_VALUE"] == [10, 2]
    zeros = np.zeros_like(ROWS)
    other = tf.Variable(zeros) if restored is None else make_table(restored, zeros)
    tf.train.Checkpoint(table=other).restore(path).assert_consumed()
    np.testing.assert_array_equal(other.numpy(), ROWS)
    back = make_table(4, zeros)
    path = tf.train.Checkpoint(table=other).save(tmp_path / "back")
    tf.train.Checkpoint(table=back).restore(path).assert_consumed()
    np.testing.assert_array_equal(back.numpy(), ROWS)


def test_values_that_were_restored_before_their_variable_was_made(tmp_path):
    path = tf.train.Checkpoint(table=make_table(3)).save(tmp_path / "saved")
    later = tf.train.Checkpoint()
    later.restore(path)
    later.table = make_table(4, np.zeros_like(ROWS))
    np.testing.assert_array_equal(later.table.numpy(), ROWS)


def test_a_checkpoint_of_another_shape_is_refused(tmp_path):
    path = tf.train.Checkpoint(table=make_table(3)).save(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"shape \(10, 2\).*shape \(9, 2\)"):
        tf.train.Checkpoint(table=make_table(3, ROWS[:9])).restore(path).expect_partial()


def test_what_belongs_to_another_variable_is_not_cut():
    strategy = make_strategy(Fixed(3))
    with strategy.scope():
        table = tf.Variable(ROWS)
        with strategy.extended.colocate_vars_with(table.variables[0]):
            beside = tf.Variable(ROWS)
        averages = tf.train.ExponentialMovingAverage(0.5)
        averages.apply(table.variables)
    assert type(beside) is tf.Variable and type(averages.average(table.variables[0])) is tf.Variable


def test_saved_models_hold_the_parts(tmp_path):
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = make_table(3)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
        def look_up(self, ids):
            return tf.nn.embedding_lookup(self.table, ids)

    tf.saved_model.save(Model(), tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    np.testing.assert_array_equal(loaded.look_up(tf.constant([9, 0, 4])), ROWS[[9, 0, 4]])
    np.testing.assert_array_equal(loaded.table.part_1, ROWS[4:7])
