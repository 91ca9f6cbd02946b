"""Optimizers for Keras 2 that hold others, or write variables in conditionals; cells and metrics of that time."""

import functools

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

LEGACY = tf.keras.optimizers.legacy.Optimizer


class Averaging(LEGACY):
    """Lets another optimizer change variables, and keeps their mean over every second step."""

    def __init__(self, optimizer, start=2, name="Averaging", **kwargs):
        super().__init__(name, **kwargs)
        self._optimizer = optimizer
        self._set_hyper("start", start)
        self._set_hyper("nothing", False)
        self._track_trackable(optimizer, "inner")

    def _create_slots(self, var_list):
        self._optimizer._create_slots(var_list=var_list)
        for var in var_list:
            self.add_slot(var, "average")
            self.add_slot(var, "first", initializer=var)
            self.add_slot(var, "count", initializer=tf.zeros([]))

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        self._optimizer._iterations = self.iterations
        return super().apply_gradients(grads_and_vars, name, **kwargs)

    @tf.function
    def _average(self, var, average, count):
        step = tf.cast(self.iterations, tf.int64)
        if step >= self._get_hyper("start", tf.int64):
            count.assign_add(1.0, use_locking=self._use_locking)
            return average.assign(average + (var - average) / count, use_locking=self._use_locking)
        return average

    def _resource_apply_dense(self, grad, var, apply_state=None):
        assert "apply_state" in self._optimizer._dense_apply_args
        self._optimizer._resource_apply_dense(grad, var)
        self._average(var, self.get_slot(var, "average"), self.get_slot(var, "count"))

    def get_config(self):
        return {**super().get_config(), "start": self._serialize_hyperparameter("start")}


def train(strategy=None):
    with (strategy or tf.distribute.get_strategy()).scope():
        model = keras.Sequential(
            [keras.layers.Input((2,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
        )
        optimizer = Averaging(keras.optimizers.SGD(0.1))
        model.compile(optimizer, "mse")
    x = np.arange(16, dtype="float32").reshape(8, 2) / 10
    model.fit(x, x[:, :1], batch_size=2, shuffle=False, verbose=0)
    return model, optimizer


def expected():
    x = np.arange(16, dtype="float64").reshape(8, 2) / 10
    w, seen = np.ones((2, 1)), []
    for i in range(4):
        rows = x[2 * i : 2 * i + 2]
        w = w - 0.1 * 2 * rows.T @ (rows @ w - rows[:, :1]) / 2
        seen.append(w)
    return w, np.mean(seen[2:], axis=0)


@pytest.mark.parametrize("make", [lambda: None, lambda: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])])
def test_an_optimizer_around_another_writes_in_conditionals_while_fit_trains(make):
    model, optimizer = train(make())
    kernel = model.trainable_variables[0]
    w, average = expected()
    np.testing.assert_allclose(kernel.numpy(), w, rtol=1e-5)
    np.testing.assert_allclose(optimizer.get_slot(kernel, "average").numpy(), average, rtol=1e-5)
    np.testing.assert_allclose(optimizer.get_slot(kernel, "first").numpy(), np.ones((2, 1)))
    assert optimizer.get_config()["start"] == 2 and isinstance(optimizer.get_config()["start"], int)
    assert optimizer._get_hyper("nothing").dtype == "bool"
    kernel.assign(optimizer.get_slot(kernel, "average"), use_locking=True)
    np.testing.assert_allclose(kernel.numpy(), average, rtol=1e-5)


def test_variables_of_an_optimizer_inside_are_counted():
    optimizer = Averaging(keras.optimizers.SGD(0.1, momentum=0.9))
    optimizer.build([keras.Variable([1.0, 2.0], name="v")])
    names = [variable.name for variable in optimizer.variables]
    assert sum("momentum" in name for name in names) == 1 and len({id(v) for v in optimizer.variables}) == len(names)


@pytest.mark.parametrize("given", [{"weight_decay": 0.1}, {"use_ema": True}, {"gradient_accumulation_steps": 2}])
def test_what_an_optimizer_inside_does_outside_of_its_steps_is_refused(given):
    optimizer = Averaging(keras.optimizers.SGD(0.1, **given))
    with pytest.raises(NotImplementedError, match=f"`{next(iter(given))}` of SGD has no effect inside"):
        optimizer.build([keras.Variable([1.0])])


def test_optimizers_with_rules_for_rows_alone_and_with_none_are_refused():
    class Lazy(tf.keras.optimizers.legacy.Adam):
        def _resource_apply_sparse(self, grad, var, indices):
            raise AssertionError

    class Several(LEGACY):
        def __init__(self):
            super().__init__("Several")

    with pytest.raises(NotImplementedError, match=r"gradients here have all rows. Use the class .* Adam"):
        Lazy()
    with pytest.raises(NotImplementedError, match="write a `train_step`"):
        Several()


def test_old_names_give_old_optimizers():
    assert type(tf.keras.optimizers.get("sgd", use_legacy_optimizer=True)) is tf.keras.optimizers.legacy.SGD
    assert keras.optimizers.Adam(0.1, jit_compile=False).name


def test_cells_of_ones_own_start_with_zeros():
    class Adding(tf.keras.layers.AbstractRNNCell):
        state_size = output_size = 3

        def call(self, inputs, states):
            new = states[0] + inputs
            return new, [new]

    assert Adding().get_initial_state(tf.ones((2, 3))).shape == (2, 3)
    np.testing.assert_array_equal(tf.keras.layers.RNN(Adding())(tf.ones((2, 5, 3))), np.full((2, 3), 5.0))
    with pytest.raises(ValueError, match="needs `inputs` or `batch_size`"):
        Adding().get_initial_state()


def test_metrics_name_their_variables_first():
    class Rows(keras.metrics.Metric):
        def __init__(self):
            super().__init__()
            self.total = self.add_weight(
                "total", shape=None, initializer="zeros", aggregation=tf.VariableAggregation.SUM
            )
            self.table = self.add_weight("table", (2, 2), dtype="int32")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.total.assign_add(tf.reduce_sum(y_pred))

        def result(self):
            return self.total

    metric = Rows()
    metric.update_state(None, tf.ones(3))
    assert float(metric.result()) == 3 and metric.table.shape == (2, 2) and not metric.table.numpy().any()
    with pytest.raises(NotImplementedError, match="aggregation"):
        keras.metrics.Mean().add_weight("x", aggregation=tf.VariableAggregation.MEAN)


def test_a_constructor_may_be_decorated():
    def checked(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    class Scale(keras.layers.Layer):
        @checked
        def __init__(self, by=2.0, **kwargs):
            super().__init__(**kwargs)
            self.by = by

        def call(self, x):
            return x * self.by

    assert Scale(3.0)(tf.ones(1)).numpy().tolist() == [3.0] and Scale(3.0).get_config()["by"] == 3.0


def test_models_that_are_not_compiled_have_no_compiled_loss():
    model = keras.Sequential([keras.layers.Dense(1)])
    assert model.compiled_loss is None and model.compiled_metrics is None


def test_a_slice_may_end_at_a_size_that_is_not_known_yet():
    class Positions(keras.layers.Layer):
        def build(self, shape):
            self.table = self.add_weight(shape=(7, 3), initializer="ones")

        def call(self, x):
            return x + self.table[: tf.shape(x)[1], :]

    given = keras.Input((None, 3))
    model = keras.Model(given, Positions()(given))
    assert model.output_shape == (None, None, 3) and model(tf.zeros((2, 5, 3))).shape == (2, 5, 3)


def test_tensors_in_a_list_take_the_type_that_is_asked_for():
    found = tf.convert_to_tensor([tf.constant(1), 2.5], tf.float32)
    assert found.dtype == tf.float32 and found.numpy().tolist() == [1.0, 2.5]


@pytest.mark.parametrize(
    "says", [{}, {"experimental_aggregate_gradients": False}, {"skip_gradients_aggregation": True}]
)
def test_gradients_that_the_program_has_summed_are_not_summed_again(says):
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        variable, optimizer = keras.Variable(np.ones(2, "f4")), keras.optimizers.SGD(0.5)
        optimizer.build([variable])

    def step():
        context = tf.distribute.get_replica_context()
        gradient = tf.ones(2) * tf.cast(context.replica_id_in_sync_group + 1, tf.float32)
        gradient = context.all_reduce("sum", gradient) if says else gradient
        optimizer.apply_gradients([(gradient, variable)], **says)

    tf.function(lambda: strategy.run(step))()
    total = sum(range(1, strategy.num_replicas_in_sync + 1))
    np.testing.assert_allclose(variable.numpy(), 1 - 0.5 * total)


def test_what_a_class_for_keras_2_cannot_do_is_refused():
    class Decaying(keras.optimizers.Adam):
        def _resource_apply_dense(self, grad, var, apply_state=None):
            return super()._resource_apply_dense(grad, var, apply_state)

    class Before(keras.optimizers.Optimizer):
        def get_updates(self, loss, params):
            return []

    with pytest.raises(NotImplementedError, match="had no `weight_decay`"):
        Decaying(0.1, weight_decay=0.5)
    with pytest.raises(NotImplementedError, match="is an optimizer for Keras before"):
        Before(0.1)
    assert Decaying(0.1, 0.9, 0.999, 1e-7, False, "MyAdam").name == "MyAdam"  # In Keras 2's order.
