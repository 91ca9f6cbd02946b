"""Every name of Keras's own that this project replaces, where, and why: the whole of what it changes in Keras.

The modules named here put the replacements in when Keras is loaded (`_install`). A replacement calls the original,
except where the reason says otherwise. What Keras does not have and TensorFlow 2's programs use is added by `_legacy`.
`tests/compat/keras/test_internals.py` compares this list with what an installation changes, and checks for each name
that Keras still has it, with the parameters that the replacement counts on.
"""

from typing import Any, NamedTuple

import keras

from tfdist_jax.compat.tensorflow.keras._internals import (
    BaseOptimizer,
    CallbackList,
    EpochIterator,
    JAXTrainer,
    JaxVariable,
    PyDatasetAdapter,
    SeedGenerator,
    backend,
    data_adapters,
    file_utils,
    jax_trainer,
    jax_utils,
    legacy_backend,
    legacy_h5_format,
    loss_module,
    python_utils,
    rng_utils,
    saving_api,
    saving_lib,
    serialization_lib,
    tensorboard,
)


class Hook(NamedTuple):
    """One replaced name.

    Attributes:
        owner: The class or module that has it.
        name: What is replaced.
        parameters: The first parameters of the original, separated by blanks; None for what is not a function.
        reason: Why the original does not do.
    """

    owner: Any
    name: str
    parameters: str | None
    reason: str


def _batch_events(reason: str, when: str) -> tuple[Hook, ...]:
    names = (f"on_{kind}_batch_{when}" for kind in ("train", "test", "predict"))
    return tuple(Hook(CallbackList, name, "self batch logs", reason) for name in names)


_SAVES = "write beside the file and rename it, with the seeds: a crash leaves the old file"
_LOADS = "give the seeds of dropout layers back, which Keras does not save"
_NAMES = "TensorFlow 2's names without suffix: a folder for a model, a checkpoint for weights"
_SCOPE = "run in the strategy of the model, as if the script had opened its scope"
_PROGRAM = "one program over the replicas for each step"
_BOTH_FORMS = "`super()`'s step also takes the data alone, as under TensorFlow; not called then"
_PREEMPTED = "after SIGTERM, save and leave before the next batch"
_ROWS = "small first values of all shapes come from few programs; the numbers are the same"
_LOADED = "nothing is TensorFlow's before the program has loaded it, which takes seconds"
_TELLS = "tell restored checkpoints of new variables"

HOOKS: dict[str, tuple[Hook, ...]] = {
    "_variables": (
        Hook(JaxVariable, "value", None, "reads become inputs of compiled functions and are seen by tapes"),
        Hook(JaxVariable, "_direct_assign", "self value", "writes become outputs, merged over replicas"),
        Hook(
            JaxVariable, "_initialize", "self value", "values lie on the strategy's devices, also if a trace makes them"
        ),
        Hook(JaxVariable, "_initialize_with_initializer", "self initializer", "the same"),
    ),
    "_first_values": (
        Hook(backend.random, "normal", "shape", _ROWS),
        Hook(backend.random, "truncated_normal", "shape", _ROWS),
        Hook(backend.random, "uniform", "shape", _ROWS),
        Hook(backend.numpy, "ones", "shape", _ROWS),
        Hook(backend.numpy, "zeros", "shape", _ROWS),
    ),
    "_trainer": (
        Hook(JAXTrainer, "__init__", "self", "a model belongs to the strategy in whose scope it is made"),
        Hook(JAXTrainer, "make_train_function", "self force", _PROGRAM),
        Hook(JAXTrainer, "make_test_function", "self force", _PROGRAM),
        Hook(JAXTrainer, "make_predict_function", "self force", _PROGRAM),
        Hook(JAXTrainer, "jax_state_sync", "self", "accumulated gradients become equal before variables get them"),
        Hook(JAXTrainer, "_symbolic_build", "self iterator data_batch", "a model without `call` has nothing to build"),
        Hook(JAXTrainer, "fit", "self x y", _SCOPE),
        Hook(JAXTrainer, "evaluate", "self x y", _SCOPE),
        Hook(JAXTrainer, "predict", "self x", _SCOPE),
        Hook(JAXTrainer, "train_on_batch", "self x y", _SCOPE),
        Hook(JAXTrainer, "test_on_batch", "self x y", _SCOPE),
        Hook(JAXTrainer, "predict_on_batch", "self x", _SCOPE),
        Hook(jax_trainer, "_distribute_data", "data layouts", "no whole batch visits the first device"),
    ),
    "_forms": (
        Hook(JAXTrainer, "train_step", "self state data", _BOTH_FORMS),
        Hook(JAXTrainer, "test_step", "self state data", _BOTH_FORMS),
        Hook(JAXTrainer, "predict_step", "self state data", _BOTH_FORMS),
    ),
    "_loss_scaling": (
        Hook(loss_module, "scale_loss_for_distribution", "value", "a replica's mean is one of R parts; not called"),
        Hook(loss_module, "unscale_loss_for_distribution", "value", "metrics show the whole loss; not called"),
        Hook(JAXTrainer, "_aggregate_additional_loss", "self loss", "regularisers, too, count once"),
        Hook(
            keras.Layer,
            "_get_regularization_losses",
            "self",
            "tapes see the variables, and replicas without rows count; not called",
        ),
    ),
    "_optimizer": (
        Hook(BaseOptimizer, "apply", "self grads trainable_variables", "sum gradients over replicas in custom loops"),
        Hook(
            keras.optimizers.SGD, "update_step", "self gradient variable learning_rate", "sparse gradients stay sparse"
        ),
    ),
    "_dynamic_scale": (
        Hook(
            keras.optimizers.LossScaleOptimizer,
            "apply",
            "self grads trainable_variables",
            "gradients are summed before they are checked; not called in custom loops",
        ),
    ),
    "_random": (
        Hook(SeedGenerator, "next", "self ordered", "each replica draws its own dropout mask"),
        Hook(backend, "compute_output_spec", "fn", "`tf.random` does not move on where only shapes are asked"),
        Hook(jax_utils, "is_in_jax_tracing_scope", "x", "unseeded draws are fine where a program threads their state"),
    ),
    "_sync_batch_norm": (
        Hook(keras.layers.BatchNormalization, "__init__", "self axis momentum", "`synchronized` on this backend"),
        Hook(keras.layers.BatchNormalization, "_moments", "self inputs mask", "moments of all replicas' rows"),
    ),
    "_adapters": (
        Hook(data_adapters, "get_data_adapter", "x y sample_weight", "datasets, distributed ones and own iterables"),
        Hook(
            PyDatasetAdapter, "_finite_enqueuer_generator", "self", "begin with the first batch if workers fetched some"
        ),
    ),
    "_overhead": (
        Hook(keras.Model, "_setattr_hook", "self name value", "the state of a step is not searched for layers"),
        Hook(rng_utils, "tf", None, _LOADED),
        Hook(serialization_lib, "tf", None, _LOADED),
        *_batch_events("no event, and so no wait for logs, if no callback has a method for it", "begin"),
        *_batch_events("the same; values of logs are waited for by whoever reads them (`_callbacks`)", "end"),
    ),
    "_callbacks": (
        Hook(python_utils, "pythonify_logs", "logs", "lazy logs stay lazy"),
        Hook(
            tensorboard, "keras_model_summary", "name data step", "the graph of layers without TensorFlow; not called"
        ),
        Hook(keras.callbacks.TensorBoard, "__init__", "self log_dir", "profiles under every Python"),
        Hook(keras.callbacks.TensorBoard, "on_train_batch_end", "self batch logs", "no wait for logs nobody records"),
        Hook(keras.callbacks.TensorBoard, "summary", None, "this project's `tf.summary`; not called"),
    ),
    "_saving": (
        Hook(saving_lib, "save_model", "model filepath weights_format zipped", _SAVES),
        Hook(saving_lib, "save_weights_only", "model filepath max_shard_size", _SAVES),
        Hook(legacy_h5_format, "save_model_to_hdf5", "model filepath overwrite include_optimizer", _SAVES),
        Hook(saving_lib, "get_attr_skipset", "obj_type", "the objects it makes to look at belong to no strategy"),
        Hook(saving_api, "save_model", "model filepath overwrite zipped", _NAMES),
        Hook(saving_api, "load_model", "filepath", _NAMES),
        Hook(saving_api, "save_weights", "model filepath overwrite", _NAMES),
        Hook(saving_api, "load_weights", "model filepath", _NAMES),
        Hook(keras.Model, "load_weights", "self filepath", "return a status, for `expect_partial`"),
        Hook(keras.callbacks.ModelCheckpoint, "__init__", "self filepath", _NAMES),
    ),
    "_seeds": (
        Hook(saving_lib, "load_model", "filepath", _LOADS),
        Hook(saving_lib, "load_weights_only", "model filepath", _LOADS),
    ),
    "_backup": (
        Hook(CallbackList, "__init__", "self callbacks", "backups are made when other callbacks are done"),
        Hook(CallbackList, "on_train_begin", "self logs", "other callbacks see what was restored, and go on counting"),
        Hook(keras.callbacks.BackupAndRestore, "_load_model", "self", "go on in the middle of an epoch"),
        Hook(
            keras.callbacks.BackupAndRestore, "_save_model", "self", "data's position and random state in the same file"
        ),
        Hook(keras.callbacks.BackupAndRestore, "on_epoch_begin", "self epoch logs", "half-done metrics go on"),
        Hook(keras.callbacks.BackupAndRestore, "on_epoch_end", "self epoch logs", "an epoch's end is noted"),
        Hook(keras.callbacks.BackupAndRestore, "on_train_batch_begin", "self batch logs", _PREEMPTED),
        Hook(keras.callbacks.BackupAndRestore, "on_train_batch_end", "self batch logs", "a batch is done"),
        Hook(keras.callbacks.BackupAndRestore, "on_test_begin", "self logs", "validation is done again from here"),
        Hook(keras.callbacks.BackupAndRestore, "on_test_batch_begin", "self batch logs", _PREEMPTED),
        Hook(keras.callbacks.BackupAndRestore, "on_test_end", "self logs", "what steps have changed is settled"),
        Hook(keras.callbacks.BackupAndRestore, "on_train_end", "self logs", "later trainings are not followed"),
    ),
    "_position": (
        Hook(EpochIterator, "_enumerate_iterator", "self", "count the batches of a training that is backed up"),
    ),
    "_workers": (
        Hook(keras.callbacks.ModelCheckpoint, "_save_model", "self epoch batch logs", "of several workers one writes"),
    ),
    "_tracked": (
        Hook(keras.Layer, "__setattr__", "self name value", _TELLS),
        Hook(keras.Metric, "__setattr__", "self name value", _TELLS),
        Hook(keras.optimizers.Optimizer, "__setattr__", "self name value", _TELLS),
    ),
    "_downloads": (Hook(file_utils, "urlretrieve", "url filename", "without a network, say where the file belongs"),),
    "_legacy_optimizers": (Hook(BaseOptimizer, "__init__", "self learning_rate", "`lr=` is the learning rate"),),
    "_legacy": (
        Hook(BaseOptimizer, "set_weights", "self weights", "also weights of optimizers inside it; not called"),
        Hook(loss_module, "standardize_reduction", "reduction", "`Reduction.AUTO` is the mean"),
    ),
    "_legacy_backend": (
        Hook(legacy_backend, "tf", None, "`tf.keras.backend` is written with TensorFlow: here with this one"),
        Hook(legacy_backend, "softmax", "x axis", "hangs no logits on traced tensors; not called"),
        Hook(legacy_backend, "int_shape", "x", "a plain tuple; not called"),
    ),
}
