"""Old forms that a program's text shows, for those who read it without running it, and how each is written today.

The forms themselves are told by whoever understands them, with `tell_old_form`, when a program meets one.
"""

_PUBLIC = "the public names under `tf.`"
_DATA = "an argument of `keras.utils.PyDataset`; without effect"
_UPDATE = "`update_step` of a `keras.optimizers.Optimizer`"

NAMES = {
    "tf.python": _PUBLIC,
    "tf.compat.v2": "`import tensorflow as tf`",
    "tf.keras.backend.function": "`keras.Model(inputs, outputs)`",
    "tf.keras.backend.placeholder": "`keras.Input`",
    "tf.keras.callbacks.experimental": "`keras.callbacks`",
    "tf.keras.experimental": "`keras.optimizers.schedules`",
    "tf.keras.layers.CuDNNGRU": "`keras.layers.GRU`",
    "tf.keras.layers.CuDNNLSTM": "`keras.layers.LSTM`",
    "tf.keras.layers.experimental": "`keras.layers`",
    "tf.keras.mixed_precision.experimental": "`keras.mixed_precision`",
    "tf.keras.optimizers.experimental": "`keras.optimizers`",
    "tf.keras.optimizers.legacy": "`keras.optimizers`",
}
"""Names, and namespaces with all that is below them."""

SERIALIZED = ("activations", "constraints", "initializers", "layers", "losses", "metrics", "optimizers", "regularizers")
"""The namespaces of Keras whose objects `serialize` turns into dictionaries."""

ARGUMENTS = {
    "tf.keras.Layer": {
        "batch_input_shape": "`keras.Input(batch_shape=...)`",
        "weights": "`layer.set_weights(weights)`",
    },
    "tf.keras.callbacks.ModelCheckpoint": {"period": "`save_freq=` in batches"},
    "tf.keras.layers.Embedding": {"input_length": "`keras.Input((length,))` before it"},
    "tf.keras.optimizers.Optimizer": {
        "decay": "`keras.optimizers.schedules.InverseTimeDecay`",
        "lr": "`learning_rate=`",
    },
    "tf.keras.utils.image_dataset_from_directory": {"smart_resize": "`crop_to_aspect_ratio=`"},
    "tf.keras.utils.load_img": {"grayscale": "`color_mode=`"},
    "tf.keras.utils.to_categorical": {"dtype": "`.astype` of what it returns", "y": "`to_categorical(x)`"},
    **{f"tf.keras.{module}.serialize": {"use_legacy_format": "`serialize` without it"} for module in SERIALIZED},
}
"""Arguments by function, or by class for those that are derived from it, too."""

_LOADING = {"max_queue_size": _DATA, "use_multiprocessing": _DATA, "workers": _DATA}
# The key stands for a first argument that is a text.
_NAMED_FIRST = {'"..."': "`add_weight(shape=..., name=...)`"}

METHODS: dict[str, str | dict[str, str]] = {
    "_create_slots": _UPDATE,
    "_resource_apply_dense": _UPDATE,
    "_set_hyper": _UPDATE,
    "add_metric": "a `keras.metrics.Mean` of the layer's or the model's",
    "add_variable": "`add_weight(shape=..., name=...)`",
    "add_weight": _NAMED_FIRST,
    "auto_shard": "`experimental_distribute.auto_shard_policy`",
    "compiled_loss": "`self.compute_loss(x, y, y_pred, sample_weight)`",
    "compiled_metrics": "`self.compute_metrics(x, y, y_pred, sample_weight)`",
    "evaluate": _LOADING,
    "evaluate_generator": "`model.evaluate`",
    "fit": _LOADING,
    "fit_generator": "`model.fit`",
    "get_initial_state": dict.fromkeys(("dtype", "inputs"), "`cell.get_initial_state(batch_size)`"),
    "predict": _LOADING,
    "predict_classes": "`model.predict(x).argmax(-1)`",
    "predict_generator": "`model.predict`",
    "predict_proba": "`model.predict`",
    "reset_states": "`reset_state()` of metrics and layers",
    "save_weights": {"save_format": "a name that ends in `.weights.h5`"},
    "test_on_batch": {"reset_metrics": "`model.reset_metrics()` before it"},
    "train_on_batch": {"reset_metrics": "`model.reset_metrics()` before it"},
}
"""Methods and attributes of objects that a program makes, or arguments of such; what has the same name in other libraries is left out."""
