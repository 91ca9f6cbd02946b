"""Private Keras names that this project uses: each test names the one that a Keras release took away or changed."""

import inspect

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf  # noqa: F401 - puts the hooks in
from tfdist_jax.compat.tensorflow.keras import _internals
from tfdist_jax.compat.tensorflow.keras._internals import (
    BaseOptimizer,
    DataAdapter,
    JAXTrainer,
    JaxVariable,
    SeedGenerator,
    backend,
    class_weight_to_sample_weights,
    data_adapters,
    get_keras_mask,
    get_stateless_scope,
    jax_trainer,
    jax_utils,
    loss_module,
    set_keras_mask,
)

HOOKED = [
    (backend, "compute_output_spec", ["fn"]),
    (BaseOptimizer, "apply", ["self", "grads", "trainable_variables"]),
    (JAXTrainer, "__init__", ["self"]),
    (JAXTrainer, "jax_state_sync", ["self"]),
    (JAXTrainer, "make_train_function", ["self", "force"]),
    (JAXTrainer, "make_test_function", ["self", "force"]),
    (JAXTrainer, "make_predict_function", ["self", "force"]),
    (JAXTrainer, "_aggregate_additional_loss", ["self", "loss"]),
    (JaxVariable, "_direct_assign", ["self", "value"]),
    (JaxVariable, "_initialize", ["self", "value"]),
    (JaxVariable, "_initialize_with_initializer", ["self", "initializer"]),
    (SeedGenerator, "next", ["self", "ordered"]),
    (data_adapters, "get_data_adapter", ["x", "y", "sample_weight"]),
    (jax_trainer, "_distribute_data", ["data", "layouts"]),
    (jax_utils, "is_in_jax_tracing_scope", ["x"]),
    (loss_module, "scale_loss_for_distribution", ["value"]),
    (loss_module, "unscale_loss_for_distribution", ["value"]),
]


@pytest.mark.parametrize(("owner", "name", "parameters"), HOOKED, ids=[name for _, name, _ in HOOKED])
def test_hooked_name_is_there_with_its_parameters(owner, name, parameters):
    signature = inspect.signature(inspect.unwrap(getattr(owner, name)))
    assert list(signature.parameters)[: len(parameters)] == parameters


def test_every_private_name_is_tested_here():
    assert set(_internals.__all__) <= set(globals())


def source_of(function):
    return inspect.getsource(inspect.unwrap(function))


def compiled_model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def test_training_step_is_made_of_the_parts_that_ours_uses():
    source = source_of(JAXTrainer.train_step)
    for part in ("compute_loss_and_updates", "stateless_apply", "_update_metrics_variables", "has_aux=True"):
        assert part in source


def test_compute_loss_and_updates_returns_loss_and_four_parts():
    source = source_of(JAXTrainer.compute_loss_and_updates).replace("\n", "").replace(" ", "")
    assert "returnloss,(unscaled_loss,y_pred,non_trainable_variables,metrics_variables,)" in source


def test_loops_call_functions_with_state_and_iterator_and_pass_state_on():
    for method, kind in (("fit", "train"), ("evaluate", "test"), ("predict", "predict")):
        source = source_of(getattr(JAXTrainer, method))
        assert f"state = self.{kind}_function(state, iterator)" in source
        assert "self._jax_state_synced" in source


def test_jax_state_names_the_optimizers_values():
    assert '_jax_state.get("optimizer_variables"' in source_of(JAXTrainer.jax_state_sync)


def test_jax_variable_keeps_its_array_in_value():
    variable = keras.Variable(np.zeros(2))
    assert isinstance(variable, JaxVariable)
    assert variable._value is variable.value
    assert variable._layout is None
    assert variable._maybe_autocast(variable.value) is variable.value


def test_optimizer_holds_accumulators_and_iterations():
    model = compiled_model()
    assert len(model.optimizer._accumulated_gradients) == 2
    assert any(variable is model.optimizer._iterations for variable in model.optimizer.variables)


def test_seed_state_has_the_name_by_which_it_is_known():
    assert keras.random.SeedGenerator(1).state.name == "seed_generator_state"


def test_metrics_add_up_over_replicas():
    assert {v.aggregation for v in keras.metrics.Mean().variables} == {"sum"}


def test_losses_scale_means_through_the_module():
    assert "scale_loss_for_distribution(loss)" in source_of(loss_module.reduce_values)


def test_epoch_iterator_asks_the_module_for_adapters():
    from keras.src.trainers import epoch_iterator

    assert "data_adapters.get_data_adapter(" in source_of(epoch_iterator.EpochIterator.__init__)
    assert "isinstance(x, data_adapter.DataAdapter)" in source_of(data_adapters.get_data_adapter)


def test_data_adapter_asks_for_what_ours_offers():
    for name in ("get_numpy_iterator", "get_jax_iterator", "num_batches", "batch_size"):
        assert hasattr(DataAdapter, name)


def test_class_weights_become_sample_weights():
    weights = class_weight_to_sample_weights(np.array([0, 1, 0]), {0: 2.0})
    np.testing.assert_array_equal(weights, [2, 1, 2])


def test_stateless_scope_is_known_while_it_is_open():
    assert get_stateless_scope() is None
    with keras.StatelessScope() as scope:
        assert get_stateless_scope() is scope


def test_masks_are_attached_to_arrays():
    array, mask = keras.ops.zeros(2), keras.ops.ones(2)
    assert get_keras_mask(array) is None
    set_keras_mask(array, mask)
    assert get_keras_mask(array) is mask
