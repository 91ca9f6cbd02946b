"""Every change in Keras, in the order in which they are made: the whole of what this project does to it.

A name that several modules replace is wrapped by one after the other, the last one outermost. What is private in Keras is
listed in `_internals`. `tests/compat/keras/test_internals.py` compares this list with what an installation changes, and
checks for each replaced name that Keras still has it, with the parameters that the replacement counts on.
"""

from tfdist_jax.compat.tensorflow.keras import _data_modules, _downloads, _feature_layers, _messages, _text_layers
from tfdist_jax.compat.tensorflow.keras._change import Change
from tfdist_jax.compat.tensorflow.keras._legacy import (
    _arguments,
    _backend_state,
    _cells,
    _data_functions,
    _files,
    _layer_losses,
    _layers,
    _legacy,
    _legacy_backend,
    _legacy_optimizers,
    _model_forms,
    _optimizer_methods,
    _shapes,
    _symbolic_calls,
    _utilities,
)
from tfdist_jax.compat.tensorflow.keras._resume import _backup, _position
from tfdist_jax.compat.tensorflow.keras._saving import _export, _hdf5, _orbax_folders, _saving, _seeds
from tfdist_jax.compat.tensorflow.keras._training import (
    _adapters,
    _batch_checks,
    _callbacks,
    _cross_entropies,
    _dynamic_scale,
    _loss_scaling,
    _loss_shapes,
    _optimizer,
    _overhead,
    _sync_batch_norm,
    _text_front,
    _threads,
    _train_step_signature,
    _trainer,
    _workers,
)
from tfdist_jax.compat.tensorflow.keras._variables import (
    _initial_values,
    _precision,
    _random,
    _tensor_attributes,
    _tracked,
    _variables,
)

CHANGES: tuple[Change, ...] = (
    *_precision.CHANGES,
    *_variables.CHANGES,
    *_initial_values.CHANGES,
    *_tensor_attributes.CHANGES,
    *_optimizer.CHANGES,
    *_dynamic_scale.CHANGES,
    *_random.CHANGES,
    *_legacy_optimizers.CHANGES,
    *_optimizer_methods.CHANGES,
    *_arguments.CHANGES,
    *_cells.CHANGES,
    *_data_functions.CHANGES,
    *_layer_losses.CHANGES,
    *_model_forms.CHANGES,
    *_shapes.CHANGES,
    *_legacy.CHANGES,
    *_files.CHANGES,
    *_utilities.CHANGES,
    *_layers.CHANGES,
    *_legacy_backend.CHANGES,
    *_backend_state.CHANGES,
    *_symbolic_calls.CHANGES,
    *_downloads.CHANGES,
    *_messages.CHANGES,
    *_data_modules.CHANGES,
    *_text_layers.CHANGES,
    *_feature_layers.CHANGES,
    *_hdf5.CHANGES,
    *_saving.CHANGES,
    *_orbax_folders.CHANGES,
    *_seeds.CHANGES,
    *_export.CHANGES,
    *_sync_batch_norm.CHANGES,
    *_callbacks.CHANGES,
    *_overhead.CHANGES,
    *_tracked.CHANGES,
    *_loss_scaling.CHANGES,
    *_cross_entropies.CHANGES,
    *_loss_shapes.CHANGES,
    *_batch_checks.CHANGES,
    *_adapters.CHANGES,
    *_train_step_signature.CHANGES,
    *_workers.CHANGES,
    *_trainer.CHANGES,
    *_text_front.CHANGES,
    *_threads.CHANGES,
    *_position.CHANGES,
    *_backup.CHANGES,
)
