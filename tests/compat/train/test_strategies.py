"""What was saved under one strategy is restored under another, bit for bit."""

import itertools

import jax
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._checkpoint import _checkpoint

CPUS = [f"/cpu:{i}" for i in range(4)]
STRATEGIES = {
    "four": lambda: tf.distribute.MirroredStrategy(CPUS),
    "two": lambda: tf.distribute.MirroredStrategy(CPUS[:2]),
    "one": lambda: tf.distribute.OneDeviceStrategy("/cpu:3"),
    "none": tf.distribute.get_strategy,
}
DTYPES = ["float32", "bfloat16", "float64", "int64", "bool", "complex64", "uint8"]


def _variables(strategy, fill=False):
    numbers = np.random.default_rng(0)
    values = [numbers.normal(size=(3, 2)) * 3 if fill else np.zeros((3, 2)) for _ in DTYPES]
    with strategy.scope():
        return [tf.Variable(tf.cast(value, dtype)) for value, dtype in zip(values, DTYPES, strict=True)]


def _bits(variables):
    return [variable.numpy().tobytes() for variable in variables]


@pytest.mark.parametrize(("before", "after"), list(itertools.product(STRATEGIES, repeat=2)))
def test_values_of_all_types_move_between_strategies_bit_for_bit(tmp_path, before, after):
    saved = _variables(STRATEGIES[before](), fill=True)
    path = tf.train.Checkpoint(saved=saved).write(tmp_path / "ckpt")
    restored = _variables(STRATEGIES[after]())
    where = [variable.stored.sharding for variable in restored]
    tf.train.Checkpoint(saved=restored).read(path).assert_consumed()
    assert _bits(restored) == _bits(saved)
    assert [variable.stored.sharding for variable in restored] == where


def test_restoring_inside_a_scope_is_restoring_outside(tmp_path):
    path = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0])).write(tmp_path / "ckpt")
    strategy = STRATEGIES["four"]()
    with strategy.scope():
        variable = tf.Variable([0.0, 0.0])
        tf.train.Checkpoint(v=variable).read(path).assert_consumed()
        waiting = tf.train.Checkpoint()
        waiting.read(path)
        waiting.v = tf.Variable([0.0, 0.0])
    assert _bits([variable]) == _bits([waiting.v])
    assert len(variable.stored.sharding.device_set) == 4


class Lazy(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = None

    def __call__(self, x):
        if self.w is None:
            self.w = tf.Variable(tf.zeros([2]))
        return x + self.w


@pytest.mark.parametrize("compiled", [False, True])
def test_a_variable_made_by_the_replicas_starts_with_the_saved_value(tmp_path, compiled):
    saved = Lazy()
    saved.w = tf.Variable([5.0, 6.0])
    path = tf.train.Checkpoint(m=saved).write(tmp_path / "ckpt")
    strategy = STRATEGIES["two"]()
    module = Lazy()
    status = tf.train.Checkpoint(m=module).read(path)
    step = lambda: strategy.run(module, (tf.ones([2]),))
    result = strategy.reduce("SUM", (tf.function(step) if compiled else step)(), axis=None)
    status.assert_consumed()
    assert result.tolist() == [12.0, 14.0] and module.w.numpy().tolist() == [5.0, 6.0]


def test_a_generator_repeats_the_replicas_numbers_after_a_restore(tmp_path):
    strategy = STRATEGIES["four"]()
    generator = tf.random.Generator.from_seed(3)
    draw = lambda: [
        x.tolist() for x in strategy.experimental_local_results(strategy.run(lambda: generator.normal([2])))
    ]
    draw()
    checkpoint = tf.train.Checkpoint(generator=generator)
    path = checkpoint.write(tmp_path / "ckpt")
    drawn = draw()
    checkpoint.read(path).assert_consumed()
    assert draw() == drawn != draw()


def test_steps_that_reuse_the_variables_memory_do_not_reach_what_was_saved(tmp_path):
    strategy = STRATEGIES["four"]()
    with strategy.scope():
        variable = tf.Variable(tf.zeros([256, 256]), aggregation=tf.VariableAggregation.MEAN)
    checkpoint = tf.train.Checkpoint(v=variable)

    @tf.function
    def step():
        strategy.run(lambda: variable.assign_add(tf.ones([256, 256])))

    paths = []
    for i in range(5):
        step()
        paths.append(checkpoint.write(tmp_path / f"ckpt-{i}"))
        for _ in range(3):
            step()
    for i, path in enumerate(paths):
        assert (tf.train.load_variable(path, "v/.ATTRIBUTES/VARIABLE_VALUE") == 4 * i + 1).all()


def test_arrays_in_parts_are_read_in_other_parts(tmp_path):
    def split(count):
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:count]), ("data",))
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))

    numbers = np.arange(64, dtype="float32").reshape(16, 4)
    _checkpoint.begin_saving(tmp_path / "a", {"x": jax.device_put(numbers, split(8)), "y": numbers}, {"step": 3})()
    found = _checkpoint.load_arrays(tmp_path / "a", ["x"], lambda name: split(4))
    assert list(found) == ["x"] and found["x"].sharding == split(4)
    assert (np.asarray(found["x"]) == numbers).all()
    arrays, about = _checkpoint.read_about(tmp_path / "a")
    assert about == {"step": 3} and arrays["y"] == ((16, 4), np.dtype("float32"))


def test_checkpoints_cost_nothing_until_they_are_used(run_script):
    program = """
    import sys
    import tfdist_jax.compat.tensorflow as tf
    tf.train.Checkpoint, tf.train.CheckpointManager, tf.train.latest_checkpoint("nowhere")
    tf.train.Checkpoint(v=tf.Variable(1.0))
    print("orbax" in sys.modules, "keras" in sys.modules)
    """
    ran = run_script(program)
    assert ran.stdout.split() == ["False", "False"], ran.stderr
