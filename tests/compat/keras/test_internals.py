"""Private Keras names that this project uses: each test names the one that a Keras release took away or changed."""

import inspect
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import keras
import numpy as np
import pytest
from environment import LIMIT_S
from keras.src.backend.common.variables import AutocastScope
from keras.src.utils.tracking import DotNotTrackScope

import tfdist_jax.compat.tensorflow as tf  # noqa: F401 - puts the hooks in
from tfdist_jax._thread_state import restoring_thread_state
from tfdist_jax.compat.tensorflow.keras import _install, _internals
from tfdist_jax.compat.tensorflow.keras._change import Addition, Hook, instead
from tfdist_jax.compat.tensorflow.keras._hooks import CHANGES
from tfdist_jax.compat.tensorflow.keras._internals import (
    BaseOptimizer,
    CallbackList,
    DataAdapter,
    DropoutRNNCell,
    EpochIterator,
    Functional,
    JAXTrainer,
    JaxVariable,
    KerasTensor,
    TrackedDict,
    TrackedList,
    class_weight_to_sample_weights,
    data_adapters,
    dataset_utils,
    export_utils,
    functional,
    get_keras_mask,
    get_stateless_scope,
    global_seed_generator,
    global_state,
    in_symbolic_scope,
    is_default,
    keras_option_scope,
    layer_module,
    lazy_tensorflow,
    legacy_h5_format,
    loss_module,
    map_graph,
    masking,
    register_tree_node_class,
    saving,
    saving_api,
    saving_lib,
    saving_utils,
    serialization_lib,
    set_keras_mask,
)

KINDS = ("train", "test", "predict")
# Called, not replaced.
USED = [
    (keras.callbacks.TensorBoard, "_init_profile_batch", ["self", "profile_batch"]),
    (BaseOptimizer, "_backend_update_step", ["self", "grads", "trainable_variables", "learning_rate"]),
    (JAXTrainer, "_compute_loss", ["self", "x", "y", "y_pred", "sample_weight", "training"]),
    (legacy_h5_format, "load_model_from_hdf5", ["filepath", "custom_objects"]),
    (legacy_h5_format, "save_weights_to_hdf5_group", ["group", "model"]),
    (legacy_h5_format, "load_weights_from_hdf5_group", ["group", "model", "skip_mismatch"]),
    (legacy_h5_format, "load_weights_from_hdf5_group_by_name", ["group", "model", "skip_mismatch"]),
    (legacy_h5_format, "load_attributes_from_hdf5_group", ["group", "name"]),
    (saving_utils, "compile_args_from_training_config", ["training_config", "custom_objects"]),
    (serialization_lib.SafeModeScope, "__init__", ["self", "safe_mode"]),
    (export_utils, "get_input_signature", ["model"]),
    (export_utils, "make_input_spec", ["x"]),
    (saving_lib, "_model_from_config", ["config_json", "custom_objects", "compile", "safe_mode"]),
    (saving_lib, "_load_assets_from_dict", ["model", "assets_dict"]),
    (loss_module, "apply_mask", ["sample_weight", "mask", "dtype", "reduction"]),
    (functional, "operation_fn", ["operation"]),
    (layer_module.CallContext, "__init__", ["self", "entry_layer"]),
    (layer_module.CallContext, "set_value", ["self", "arg_name", "value"]),
    (Functional, "_assert_input_compatibility", ["self"]),
    (keras.DTypePolicy, "convert_input", ["self", "x", "autocast", "dtype"]),
    (DataAdapter, "get_numpy_iterator", ["self"]),
    (DataAdapter, "get_jax_iterator", ["self"]),
]
PROGRAM = Path(__file__).parents[2] / "programs/replaced_names.py"
HOOKS = [change for change in CHANGES if isinstance(change, Hook)]
ADDITIONS = [change for change in CHANGES if not isinstance(change, Hook)]


def key(owner, name):
    """Say where Keras has the name: module, class or "", name."""
    if inspect.ismodule(owner):
        return (owner.__name__, "", name)
    return (owner.__module__, owner.__qualname__, name)


@pytest.fixture(scope="module")
def pristine():
    """What Keras has before an installation, what that changes, and what is left of it, seen in a process of its own."""
    command = [sys.executable, str(PROGRAM), json.dumps([key(hook.owner, hook.name) for hook in HOOKS])]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("i", range(len(HOOKS)), ids=[".".join(key(h.owner, h.name)[1:]).lstrip(".") for h in HOOKS])
def test_replaced_name_is_there_with_its_parameters(i, pristine):
    found, expected = pristine["parameters"][i], HOOKS[i].parameters
    if expected is None:
        assert found is None
    else:
        assert found[: len(expected.split())] == expected.split()


def test_list_of_hooks_is_what_an_installation_replaces(pristine):
    listed = {key(owner, hook.name) for hook in HOOKS for owner in (hook.owner, *hook.elsewhere)}
    assert {tuple(entry) for entry in pristine["replaced"]} == listed


def test_list_of_additions_is_what_an_installation_adds(pristine):
    listed = {key(change.owner, change.name) for change in ADDITIONS}
    # Tensors get attributes, too, but are JAX's.
    of_keras = {entry for entry in listed if entry[0].partition(".")[0] == "keras"}
    assert {tuple(entry) for entry in pristine["added"]} == of_keras


def test_keras_is_as_it_was_when_the_changes_are_taken_back(pristine):
    assert pristine["left"] == []


def test_changes_that_were_taken_back_can_be_made_again(pristine):
    assert pristine["again"]


def test_an_installation_that_misses_a_name_leaves_keras_as_it_was(monkeypatch):
    changes = (Addition(keras, "added", 1), Hook(keras, "no_such_name", instead(2), None, ""))
    monkeypatch.setattr(_install, "CHANGES", changes)
    with pytest.raises(AttributeError, match="no_such_name"):
        _install.install.__wrapped__()
    assert not hasattr(keras, "added")


@pytest.mark.parametrize(("owner", "name", "parameters"), USED, ids=[name for _, name, _ in USED])
def test_used_name_is_there_with_its_parameters(owner, name, parameters):
    signature = inspect.signature(inspect.unwrap(getattr(owner, name)))
    assert list(signature.parameters)[: len(parameters)] == parameters


def test_every_private_name_is_tested_here():
    replaced_in = {hook.owner for hook in HOOKS}
    untested = {name for name in _internals.__all__ if name not in globals()}
    assert {name for name in untested if getattr(_internals, name) not in replaced_in} == set()


def source_of(function):
    return inspect.getsource(inspect.unwrap(function))


def compiled_model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def test_a_functional_model_keeps_the_graph_that_is_mapped():
    inputs = keras.Input((2,))
    outputs = keras.layers.Dense(1)(inputs)
    model = keras.Model(inputs, outputs)
    nodes, nodes_by_depth, operations, operations_by_depth = map_graph([inputs], [outputs])
    assert isinstance(outputs, KerasTensor) and outputs._keras_history.operation is operations[-1]
    assert model._nodes == nodes and [node.operation for node in operations[0]._outbound_nodes] == operations[1:]
    assert model._operations == operations and model._operations_by_depth == operations_by_depth
    assert model._nodes_by_depth == nodes_by_depth
    assert operations[-1]._inbound_nodes[0].outputs == [outputs] and model._tracker.locked in (True, False)


def test_a_functional_model_runs_its_graph_with_the_parts_that_stages_use():
    source = source_of(Functional._run_through_graph) + source_of(Functional.call)
    for part in ("_standardize_inputs", "operation_fn(", "arguments.fill_in(", "node.is_input", "unpack_singleton"):
        assert part in source
    inputs = {name: keras.Input((2,), name=name) for name in "ab"}
    model = keras.Model(inputs, [keras.layers.Dense(1)(inputs["a"]), inputs["b"]])
    assert model._outputs_struct == model.outputs and not model._convert_input_args
    (node,) = (node for nodes in model._nodes_by_depth.values() for node in nodes if not node.is_input)
    assert node.input_tensors == [inputs["a"]] and node.arguments.kwargs == {}
    assert [each.shape for each in model._standardize_inputs({"b": np.ones((3, 2)), "a": np.ones((3, 2))})] == [
        (3, 2)
    ] * 2
    sequential = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    assert isinstance(sequential._functional, Functional) and sequential._convert_input_args


def test_layers_losses_can_be_given_and_are_forgotten():
    layer = keras.layers.Dense(1, kernel_regularizer="l2")
    layer.build((None, 2))
    layer._losses_override = [3.0]
    assert layer.losses == [3.0]
    layer._losses_override = []
    assert len(layer.losses) == 1
    layer._losses.append(1.0)
    layer._clear_losses()
    assert layer._losses == []
    assert compiled_model()._compile_metrics is None


@pytest.mark.parametrize(
    "scope",
    [
        lambda: AutocastScope("bfloat16"),
        DotNotTrackScope,
        lambda: keras.name_scope("outer"),
        keras.RematScope,
        keras.StatelessScope,
        keras.SymbolicScope,
    ],
)
def test_scopes_that_do_not_end_are_left_with_the_block_around(scope):
    def copy():
        held = vars(global_state.GLOBAL_STATE_TRACKER).items()
        return {name: [*value] if isinstance(value, list) else value for name, value in held if value}

    with scope():
        pass
    before = copy()
    with pytest.raises(KeyError), restoring_thread_state():
        scope().__enter__()
        assert copy() != before
        raise KeyError
    assert copy() == before


def test_variables_whose_first_values_are_late_get_them_once_though_an_interrupt_came_in_between():
    with pytest.raises(KeyError), restoring_thread_state(), keras.StatelessScope() as scope:
        first, second = (keras.Variable(lambda shape, dtype: np.full(shape, 2.0, dtype), (2,)) for _ in range(2))
        global_state.set_global_attribute("stateless_scope", None)
        first._deferred_initialize()
        global_state.set_global_attribute("stateless_scope", scope)
        scope.initialize_variables = False
        raise KeyError
    with keras.StatelessScope():
        pass
    assert first.numpy().tolist() == second.numpy().tolist() == [2.0, 2.0]


def test_a_layers_call_is_told_of_training_through_the_global_state():
    seen = []

    class Seeing(keras.layers.Layer):
        def call(self, inputs, training=None):
            context = global_state.get_global_attribute("current_call_ctx")
            seen.append((context.training, in_symbolic_scope()))
            return inputs

    Seeing()(np.ones(1), training=True)
    Seeing()(keras.Input((2,)))
    assert seen[0] == (True, False) and seen[1][1]


def test_training_step_is_made_of_the_parts_that_ours_uses():
    source = "".join(
        source_of(part)
        for part in (JAXTrainer.train_step, JAXTrainer.compute_loss_and_updates, JAXTrainer._update_metrics_variables)
    )
    for part in (
        "stateless_compute_loss",
        "scale_loss",
        "stateless_apply",
        "_loss_tracker.update_state",
        "compute_metrics",
    ):
        assert part in source


def test_models_know_their_loss_and_whether_call_is_told_of_training():
    model = compiled_model()
    assert model._loss_tracker is model.metrics[0] and model._call_has_training_arg


def test_loops_call_functions_with_state_and_iterator_and_pass_state_on():
    for method, kind in (("fit", "train"), ("evaluate", "test"), ("predict", "predict")):
        source = source_of(getattr(JAXTrainer, method))
        assert f"state = self.{kind}_function(state, iterator)" in source
        assert "self._jax_state_synced" in source


def test_keras_asks_a_lazy_module_whether_tensorflow_is_there():
    assert lazy_tensorflow.name == "tensorflow" and "available" in dir(type(lazy_tensorflow))


def test_makers_of_datasets_import_tensorflow_when_they_run():
    for name in ("index_directory", "split_dataset"):
        assert callable(getattr(dataset_utils, name))
    imports = re.findall(
        r"^ +(from .* import tensorflow as tf|import tensorflow.*)$", source_of(dataset_utils), re.MULTILINE
    )
    assert imports and set(imports) == {"from keras.src.utils.module_utils import tensorflow as tf"}


@pytest.mark.peers
def test_old_files_are_read_with_tensorflows_classes_whether_it_is_loaded_or_not(run_prepared):
    program = """
        import sys
        import tensorflow, keras
        from keras.src.legacy.saving import json_utils
        assert "tensorflow" not in sys.modules
        shape = json_utils.decode('{"class_name": "TensorShape", "items": [null, 3]}')
        assert type(shape).__module__.startswith("tensorflow.") and shape.as_list() == [None, 3], shape
    """
    ran = run_prepared(program)
    assert ran.returncode == 0, ran.stderr


def test_the_state_of_steps_is_set_past_the_search_for_layers(monkeypatch):
    model, searched = keras.Sequential([keras.Input((1,))]), []
    monkeypatch.setattr(keras.Layer, "__setattr__", lambda self, name, value: searched.append(name))
    model._jax_state = {"trainable_variables": []}
    model.other = 1
    assert model._jax_state == {"trainable_variables": []} and searched == ["other"]


def test_each_thread_has_its_own_place_between_steps():
    source = source_of(JAXTrainer.fit)
    assert "if self._jax_state_synced:" in source and "self._jax_state_synced = False" in source
    model = keras.Sequential([keras.Input((1,))])
    model._jax_state_synced = False
    found = []
    thread = threading.Thread(target=lambda: found.append(model._jax_state_synced))
    thread.start()
    thread.join()
    assert found == [True] and not model._jax_state_synced


def test_callbacks_methods_of_their_own_are_told_from_the_base_classs():
    class Own(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            pass

    names = [f"on_{kind}_batch_{when}" for kind in KINDS for when in ("begin", "end")]
    assert [name for name in names if not is_default(getattr(Own(), name))] == ["on_test_batch_end"]
    made = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: None)
    assert not is_default(made.on_train_batch_begin) and is_default(made.on_train_batch_end)
    assert is_default(Own().on_batch_begin) and "self.on_batch_begin(" in source_of(Own.on_train_batch_begin)


def test_layers_and_metrics_keep_what_they_hold_by_kind():
    norm, dropout = keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)
    norm.build((None, 2))
    assert [v.name for v in norm._trainable_variables] == ["gamma", "beta"]
    assert [v.name for v in norm._non_trainable_variables] == ["moving_mean", "moving_variance"]
    assert len(dropout._seed_generators) == 1
    assert [v.name for v in keras.metrics.Mean()._variables] == ["total", "count"]


def test_a_variable_made_in_a_stateless_scope_gets_its_value_from_its_initializer_later():
    with keras.StatelessScope():
        variable = keras.Variable(lambda shape, dtype: keras.ops.zeros(shape, dtype), shape=(2,))
        assert variable.stored is None
        variable._initializer = lambda shape, dtype: keras.ops.ones(shape, dtype)
    assert variable.numpy().tolist() == [1.0, 1.0]


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


def test_optimizers_keep_their_state_under_the_names_that_older_formulas_use():
    held = {
        keras.optimizers.Adagrad(): ["_accumulators"],
        keras.optimizers.RMSprop(centered=True): ["_velocities", "_average_gradients"],
        keras.optimizers.Nadam(): ["_momentums", "_velocities"],
    }
    variables = [keras.Variable(np.zeros(3)), keras.Variable(np.zeros(2))]
    for optimizer, names in held.items():
        optimizer.build(variables)
        assert optimizer._get_variable_index(variables[1]) == 1
        for name in names:
            assert [v.shape for v in getattr(optimizer, name)] == [(3,), (2,)]
    assert isinstance(optimizer._u_product, keras.Variable) and "_u_product" in source_of(
        keras.optimizers.Nadam._backend_update_step
    )


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


def test_one_function_reads_configurations():
    read = serialization_lib.deserialize_keras_object
    for module in (masking, saving, saving_lib, keras.saving, keras.utils):
        assert module.deserialize_keras_object is read
    assert "serialization_lib.deserialize_keras_object(" in source_of(keras.models.model_from_json)
    for kind in ("layers", "initializers", "activations", "regularizers"):
        assert "serialization_lib.deserialize_keras_object(" in source_of(getattr(keras, kind).deserialize)


def test_files_are_written_and_read_through_their_modules():
    assert "saving_lib.save_model(" in source_of(saving_api.save_model)
    assert "legacy_h5_format.save_model_to_hdf5(" in source_of(saving_api.save_model)
    assert "saving_lib.save_weights_only(" in source_of(saving_api.save_weights)
    assert "saving_lib.load_weights_only(" in source_of(saving_api.load_weights)
    assert "saving_lib.load_model(" in source_of(saving_api.load_model)
    for name in ("save", "save_weights", "load_weights"):
        assert "saving_api." in source_of(getattr(keras.Model, name))


def test_models_tell_what_they_were_compiled_with_and_classes_with_their_modules():
    model = compiled_model()
    assert model._compile_config.config["loss"] == "mse" and model._functional.output_names == [model.layers[-1].name]
    assert (
        keras.losses.Huber(0.5)._fn_kwargs
        == keras.metrics.MeanMetricWrapper(print, delta=0.5)._fn_kwargs
        == {"delta": 0.5}
    )
    for is_old in (True, False):
        with keras_option_scope(use_legacy_config=is_old):
            assert ("module" in model.get_config()["layers"][-1]) == (not is_old)


def test_models_are_built_by_a_symbolic_call():
    class Pair(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = keras.layers.Dense(1)

        def call(self, inputs):
            return self.layer(inputs)

    model = Pair()
    assert model._build_by_run_for_single_pos_arg((None, 2)) is True and model.layer.built and not model.built
    assert keras.Model.build._is_default and not keras.Sequential.build.__dict__.get("_is_default")


def test_scopes_of_custom_objects_keep_their_own_and_what_was_there_before():
    scope = keras.saving.custom_object_scope({"a": 1})
    with scope, keras.saving.custom_object_scope({"b": 2}) as inner:
        assert global_state.get_global_attribute("custom_objects_scope_dict").items() >= {"b": 2}.items()
        assert (inner.custom_objects, inner.backup) == ({"b": 2}, {"a": 1})
        assert keras.saving.get_registered_object("a") == 1 and keras.saving.get_registered_object("b") == 2
    assert keras.saving.get_registered_object("a") is None


def test_backup_keeps_its_place_under_the_names_that_ours_changes(tmp_path):
    backup = keras.callbacks.BackupAndRestore(tmp_path)
    assert backup._weights_path.endswith("latest.weights.h5")
    assert (backup._current_epoch, backup._last_batch_seen, backup._batches_seen_since_last_saving) == (0, 0, 0)
    assert "self.model._initial_epoch = epoch" in source_of(keras.callbacks.BackupAndRestore._load_model)
    assert "self._initial_epoch or initial_epoch" in source_of(JAXTrainer.fit)


def test_epoch_iterator_keeps_its_iterator_and_counts_steps():
    iterator = EpochIterator(np.zeros((4, 1)), batch_size=2)
    assert iterator._current_iterator is None and iterator._steps_seen == 0 and iterator._num_batches == 2
    assert "self._epoch_iterator = self._enumerate_iterator()" in source_of(EpochIterator.__iter__)


def test_batch_logs_and_tensorboard_go_through_their_modules():
    assert "python_utils.pythonify_logs(logs)" in source_of(CallbackList._on_train_batch_end)
    assert "keras_model_summary(" in source_of(keras.callbacks.TensorBoard._write_keras_model_summary)
    assert "self.summary.scalar(" in source_of(keras.callbacks.TensorBoard._log_epoch_metrics)


def test_unseeded_draws_have_one_generator():
    assert global_seed_generator() is global_seed_generator()
    assert global_seed_generator().state.name == "seed_generator_state"


def test_keras_looks_into_registered_classes():
    class Pair(tuple):
        def tree_flatten(self):
            return tuple(self), None

        @classmethod
        def tree_unflatten(cls, metadata, children):
            return cls(children)

    assert keras.tree.flatten([Pair((1, 2))]) == [(1, 2)]
    register_tree_node_class(Pair)
    assert keras.tree.flatten([Pair((1, 2))]) == [1, 2]


def test_attributes_that_hold_structures_are_keras_own_kinds():
    layer = keras.layers.Layer()
    layer.by_name, layer.listed = {"a": 1}, [1]
    assert type(layer.by_name) is TrackedDict and type(layer.listed) is TrackedList
    assert TrackedDict({"a": 1}) == {"a": 1} and TrackedList([1]) == [1]


def test_cells_with_dropout_have_one_class():
    assert all(issubclass(cell, DropoutRNNCell) for cell in (keras.layers.LSTMCell, keras.layers.GRUCell))
    assert keras.layers.LSTMCell(2).recurrent_dropout == 0
