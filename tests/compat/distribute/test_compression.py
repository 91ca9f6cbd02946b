"""`CommunicationOptions(compression=...)`: gradients that optimizers sum travel in fewer bytes, and everything else as it was."""

import keras
import numpy as np
import pytest
from communication import collectives_of, compile_step, sent_arrays, sent_bytes

import tfdist_jax as td
import tfdist_jax.compat.tensorflow as tf

FORMS = ["bf16", "int8", "powersgd", td.TopK(0.1)]
WITH_MEMORY = FORMS[1:]
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(64, 64)).astype(np.float32)
Y = np.tanh(X @ RANDOM.normal(size=(64, 8))).astype(np.float32)


def make_strategy(compression, devices=8):
    options = tf.distribute.experimental.CommunicationOptions(compression=compression)
    names = [f"/cpu:{i}" for i in range(devices)]
    return tf.distribute.MirroredStrategy(names, communication_options=options)


def make_model(strategy, optimizer=None, units=128, **options):
    keras.utils.set_random_seed(0)
    with strategy.scope():
        hidden = [keras.layers.Dense(units, activation="relu"), keras.layers.BatchNormalization()]
        model = keras.Sequential([keras.layers.Input((64,)), *hidden, keras.layers.Dense(8)])
        model.compile(optimizer or keras.optimizers.Adam(3e-3), "mse", metrics=["mae"], **options)
    return model


def sent_types(compiled):
    return {(kind, array.dtype) for kind, array in sent_arrays(compiled)}


def test_fit_sends_as_many_bytes_as_the_form_has(bound):
    found = {}
    for form in (None, "bf16", "int8", "powersgd"):
        strategy = make_strategy(form)
        model = make_model(strategy, units=256)
        model.fit(X, Y, batch_size=64, epochs=1, verbose=0)
        found[form] = sent_bytes(collectives_of(compile_step(model, (X, Y)), strategy))
    rest = 7 / 8 * 4 * 2 * (256 + 8 + 2 * 256 + 2 * 256 + 8)  # Biases, batch normalization's, and what metrics add up.
    exact = found[None] - rest
    assert (found["bf16"] - rest) / exact == pytest.approx(0.5, abs=0.01)
    bound("bytes of gradients in int8 in fit, of those in float32", (found["int8"] - rest) / exact, 0.27)
    assert (found["powersgd"] - rest) / exact == pytest.approx(
        (4 * (64 + 256) + 8 * 256) / (64 * 256 + 8 * 256), abs=0.01
    )


def train(form, epochs=40):
    model = make_model(make_strategy(form))
    history = model.fit(X, Y, batch_size=32, epochs=epochs, verbose=0, shuffle=False).history
    return model, history


@pytest.mark.slow("a training of 80 steps for each form")
def test_fit_comes_as_far_as_without_compression():
    exact = train(None)[1]["loss"]
    assert exact[-1] < 0.1 * exact[0]
    for form in ("bf16", "int8", td.PowerSGD(rank=4), td.TopK(0.3)):
        assert train(form)[1]["loss"][-1] < 1.15 * exact[-1] + 0.01 * exact[0], form


def test_statistics_and_metrics_are_exact():
    one, other = train(td.TopK(0.01), epochs=1)[0], train(None, epochs=1)[0]
    first = lambda model: model.evaluate(X, Y, verbose=0)
    assert first(one) != first(other)
    one, other = make_model(make_strategy(td.TopK(0.01))), make_model(make_strategy(None))
    logs = [model.train_on_batch(X, Y, return_dict=True) for model in (one, other)]
    assert logs[0] == pytest.approx(logs[1], rel=1e-6)
    for mine, exact in zip(one.non_trainable_variables, other.non_trainable_variables, strict=True):
        np.testing.assert_allclose(mine, exact, rtol=1e-6, atol=1e-8)


class Loop:
    """A custom loop with plain gradient descent, so that a step is the gradient."""

    def __init__(self, form, devices=8, optimizer=None, run=tf.function):
        self.strategy = make_strategy(form, devices)
        with self.strategy.scope():
            self.table = tf.Variable(np.random.default_rng(5).normal(size=(64, 32)).astype(np.float32))
            self.bias = tf.Variable(tf.zeros([32]))
            self.optimizer = optimizer or keras.optimizers.SGD(1.0)
        self.step = run(lambda x: self.strategy.run(self.replica, (x,)))

    def replica(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(x @ self.table / 8 + self.bias + 1.0))
        variables = [self.table, self.bias]
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return tf.distribute.get_replica_context().all_reduce("SUM", loss)

    def run_step(self, rows, seed):
        x = np.random.default_rng(seed).normal(size=(rows, 64)).astype(np.float32)
        batches = iter(self.strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(x)))
        return self.step(next(batches))

    def residual(self):
        return self.optimizer._gradient_memory["0"]["residual"].numpy()


@pytest.mark.parametrize("rows", [16, 13])
@pytest.mark.parametrize("form", WITH_MEMORY)
def test_what_a_loop_loses_is_kept(form, rows):
    """Also where the replicas' batches differ in size: then they are traced one by one."""
    loop, exact = Loop(form), Loop(None)
    for seed in (0, 1):
        exact.table.assign(loop.table)
        exact.bias.assign(loop.bias)
        before = loop.residual() if seed else 0
        old = loop.table.numpy()
        losses = [each.run_step(rows, seed).values[0] for each in (loop, exact)]
        np.testing.assert_allclose(*losses, rtol=1e-6)
        np.testing.assert_allclose(loop.bias, exact.bias, rtol=1e-5, atol=1e-6)
        sent, true = old - loop.table.numpy(), old - exact.table.numpy()
        assert not np.allclose(sent, true, atol=1e-4)
        np.testing.assert_allclose(sent + loop.residual(), true + before, rtol=1e-4, atol=1e-5)
    assert loop.optimizer._gradient_memory["0"]["residual"].synchronization is tf.VariableSynchronization.ON_READ
    assert list(loop.optimizer._gradient_memory) == ["0"]


@pytest.mark.parametrize("form", WITH_MEMORY)
def test_replicas_that_are_traced_apart_compute_the_same(form):
    """As one program, in lock-step and with values, one after another."""

    class WithValues(Loop):
        def replica(self, x):
            if float(tf.reduce_sum(x)) > 1e9:
                return x
            return super().replica(x)

    loops = [Loop(form), Loop(form, run=lambda step: step), WithValues(form, run=lambda step: step)]
    for loop in loops:
        for seed in (0, 1):
            loop.run_step(16, seed)
        # The last bit of a sum decides which way a number is rounded: then more of it is sent, and less is kept.
        np.testing.assert_allclose(loop.table, loops[0].table, atol=2e-2)
        together = lambda loop: loop.residual() - loop.table.numpy()
        np.testing.assert_allclose(together(loop), together(loops[0]), rtol=1e-4, atol=1e-4)


def test_steps_in_a_loop_of_the_program_keep_what_each_loses():
    loops = [Loop(td.TopK(0.1)) for _ in range(2)]
    x = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)

    @tf.function
    def run_three(x):
        for _ in tf.range(3):
            loops[0].strategy.run(loops[0].replica, (x,))

    run_three(tf.constant(x))
    for _ in range(3):
        loops[1].step(tf.constant(x))
    np.testing.assert_allclose(loops[0].table, loops[1].table, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loops[0].residual(), loops[1].residual(), rtol=1e-4, atol=1e-5)


def test_variables_that_an_optimizer_does_not_know_are_refused():
    loop = Loop("int8")
    loop.run_step(16, 0)
    with loop.strategy.scope():
        other = tf.Variable(tf.zeros([64, 32]))
    loop.table = other
    with pytest.raises(ValueError, match="Unknown variable"):
        loop.strategy.run(loop.replica, (tf.ones([4, 64]),))


def test_a_loops_program_communicates_in_int8_and_gathers_no_memory():
    loop = Loop("int8")
    x = tf.ones([16, 64])
    compiled = loop.step.lower(x).compile()
    assert sent_types(compiled) == {("all-reduce", "f32"), ("all-to-all", "s8"), ("all-gather", "s8")}
    assert all(np.prod(array.shape) <= 32 for kind, array in sent_arrays(compiled) if kind == "all-reduce")


@pytest.mark.parametrize("devices", [1, 2, 8])
@pytest.mark.parametrize("form", WITH_MEMORY)
def test_checkpoints_have_what_is_still_to_be_sent(form, devices, tmp_path):
    """Also for another number of replicas, which share it; before the optimizer has made anything, too."""
    loop = Loop(form)
    loop.run_step(16, 0)
    path = tf.train.Checkpoint(table=loop.table, bias=loop.bias, optimizer=loop.optimizer).save(str(tmp_path / "saved"))
    names = [name for name, _ in tf.train.list_variables(path)]
    assert "optimizer/_gradient_memory/0/residual/.ATTRIBUTES/VARIABLE_VALUE" in names
    other = Loop(form, devices)
    checkpoint = tf.train.Checkpoint(table=other.table, bias=other.bias, optimizer=other.optimizer)
    status = checkpoint.restore(path)
    before, old = loop.residual(), loop.table.numpy()
    exact = Loop(None)
    exact.table.assign(loop.table)
    exact.bias.assign(loop.bias)
    for each in (exact, other):
        each.run_step(16, 1)
    status.assert_consumed()
    sent, true = old - other.table.numpy(), old - exact.table.numpy()
    assert np.abs(before).max() > 1e-3
    np.testing.assert_allclose(sent + other.residual(), true + before, rtol=1e-4, atol=1e-5)
    assert other.residual().any() == (devices > 1)


@pytest.mark.parametrize("kind", ["orbax", "tensorflow"])
def test_what_is_kept_is_restored_into_an_optimizer_that_has_some(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDIST_CHECKPOINT_FORMAT", kind)
    loop = Loop("int8")
    loop.run_step(16, 0)
    checkpoint = tf.train.Checkpoint(table=loop.table, bias=loop.bias, optimizer=loop.optimizer)
    path = checkpoint.save(str(tmp_path / "saved"))
    before = loop.residual()
    loop.run_step(16, 1)
    checkpoint.restore(path).assert_consumed()
    np.testing.assert_allclose(loop.residual(), before, rtol=1e-6, atol=1e-9)


def test_accumulated_gradients_are_compressed_as_they_come():
    models = [
        make_model(make_strategy(form), keras.optimizers.SGD(0.01, gradient_accumulation_steps=2))
        for form in (None, "int8")
    ]
    for model in models:
        model.fit(X, Y, batch_size=32, epochs=2, verbose=0, shuffle=False)
    assert ("all-to-all", "s8") in sent_types(compile_step(models[1], (X, Y)))
    for exact, near in zip(models[0].trainable_variables, models[1].trainable_variables, strict=True):
        np.testing.assert_allclose(near, exact, atol=2e-3)


class TwoOptimizers(keras.Model):
    """Trains each of two layers by an optimizer of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.second = keras.layers.Dense(64, use_bias=False), keras.layers.Dense(32, use_bias=False)
        self.optimizers = [keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.1)]

    def call(self, x):
        return self.second(self.first(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean((self(x, training=True)[:, :8] - y) ** 2) / 8
        for layer, optimizer in zip((self.first, self.second), self.optimizers, strict=True):
            optimizer.apply_gradients(zip(tape.gradient(loss, layer.weights), layer.weights, strict=True))
        return {"loss": loss}


def test_a_train_step_with_several_optimizers_keeps_something_for_each():
    strategy = make_strategy(td.TopK(0.05))
    with strategy.scope():
        model = TwoOptimizers()
        model.compile()
    model.fit(X, Y, batch_size=64, epochs=2, verbose=0)
    # Replicas read what is theirs: the program that has made it does not put it together.
    assert {dtype for kind, dtype in sent_types(compile_step(model, (X, Y))) if kind == "all-gather"} == {"s32"}
    for optimizer in model.optimizers:
        assert list(optimizer._gradient_memory) == ["0"]
        assert optimizer._gradient_memory["0"]["residual"].numpy().any()


@pytest.mark.parametrize("make_optimizer", [keras.optimizers.Adam, lambda: tf.keras.optimizers.legacy.Adam()])
def test_steps_of_uneven_rows_are_compressed_too(make_optimizer):
    model = make_model(make_strategy("int8"), make_optimizer())
    model.fit(X[:37], Y[:37], batch_size=20, epochs=2, verbose=0)
    residual = model.optimizer._gradient_memory["0"]["residual"]
    assert np.abs(residual.numpy()).max() > 0 and len(residual.values) == 8


@pytest.mark.exhaustive
def test_run_eagerly_compresses_as_the_program_does():
    models = [
        make_model(make_strategy("int8"), keras.optimizers.SGD(0.1), run_eagerly=eager) for eager in (False, True)
    ]
    for model in models:
        for _ in range(2):
            model.train_on_batch(X, Y)
    for one, other in zip(*(model.trainable_variables for model in models), strict=True):
        np.testing.assert_allclose(
            one, other, atol=2e-3
        )  # The last bit of a sum decides which way a number is rounded.
    kept = [model.optimizer._gradient_memory["0"]["residual"].numpy() for model in models]
    assert np.abs(kept[0]).max() > 0
    together = [each - np.asarray(model.weights[0]) / 0.1 for each, model in zip(kept, models, strict=True)]
    np.testing.assert_allclose(*together, rtol=1e-5, atol=1e-4)


def test_what_a_program_reduces_itself_is_exact():
    strategy = make_strategy("int8")
    values = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    reduce = lambda options=None: strategy.run(
        lambda: tf.distribute.get_replica_context().all_reduce("MEAN", tf.constant(values), options)
    )
    np.testing.assert_allclose(reduce().values[0], values, rtol=1e-6)
    options = tf.distribute.experimental.CommunicationOptions(compression="int8")
    with pytest.raises(ValueError, match=r"for gradients that optimizers sum.*Give it to the strategy"):
        reduce(options)


def test_loss_scales_that_change_are_refused_where_something_is_kept():
    model = make_model(make_strategy("int8"), keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
    with pytest.raises(ValueError, match=r"Int8.* changes the scale of gradients.*mixed_bfloat16"):
        model.fit(X, Y, verbose=0)
    loop = Loop("int8", optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
    with pytest.raises(ValueError, match=r"Int8.* changes the scale of gradients"):
        loop.run_step(16, 0)
    allowed = make_model(make_strategy("bf16"), keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
    assert np.isfinite(allowed.train_on_batch(X, Y)[0])


def test_backups_have_none_of_it_and_say_so(tmp_path, caplog):
    backup = lambda: keras.callbacks.BackupAndRestore(str(tmp_path), delete_checkpoint=False)
    for epochs in (1, 2):
        model = make_model(make_strategy("int8"))
        model.fit(X, Y, epochs=epochs, verbose=0, callbacks=[backup()])
        assert ("what replicas had still to send" in caplog.text) == (epochs == 2)


def test_options_are_checked_and_merged():
    options = tf.distribute.experimental.CommunicationOptions
    assert options(compression="powersgd").compression == td.PowerSGD()
    assert options(4).merge(options(compression="topk")) == options(4, compression=td.TopK())
    assert options(compression="bf16").merge(options(bytes_per_pack=8)).compression == td.BFloat16()
    with pytest.raises(ValueError, match=r"one of \['bf16', 'int8', 'powersgd', 'topk'\].* got 'int4'"):
        options(compression="int4")
    with pytest.raises(
        ValueError, match="`communication_options` must be an instance of CommunicationOptions, got 'int8'"
    ):
        tf.distribute.MirroredStrategy(communication_options="int8")

    class Own(tf.distribute.CrossDeviceOps):
        def reduce_implementation(self, reduce_op, per_replica_value, destinations, options):
            return per_replica_value

    with pytest.raises(ValueError, match="Leave one of the two out"):
        tf.distribute.MirroredStrategy(cross_device_ops=Own(), communication_options=options(compression="int8"))


def test_several_workers_strategy_takes_it_too():
    options = tf.distribute.experimental.CommunicationOptions(compression="int8")
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    model = make_model(strategy)
    model.train_on_batch(X, Y)
    assert ("all-to-all", "s8") in sent_types(compile_step(model, (X, Y)))
