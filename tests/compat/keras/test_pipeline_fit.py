"""`PipelineStrategy`: functional and sequential models train over stages as on one device, and what cannot is refused."""

import communication
import jax
import keras
import numpy as np
import pytest
from keras import layers

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.keras._internals import set_keras_mask
from tfdist_jax.compat.tensorflow.keras._training import _programs

PipelineStrategy = tf.distribute.experimental.PipelineStrategy
ONE_DEVICE = tf.distribute.OneDeviceStrategy("/cpu:0")
CPUS = [f"/cpu:{i}" for i in range(8)]
RANDOM = np.random.default_rng(0)
ROWS = 21
X, Y, W = RANDOM.normal(size=(ROWS, 16)), RANDOM.integers(0, 5, ROWS), RANDOM.random(ROWS)
TOKENS, TOKEN_WEIGHTS = RANDOM.integers(0, 20, (ROWS, 7)), RANDOM.random((ROWS, 7))
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy


@pytest.fixture(autouse=True)
def in_float64():
    """Let what differs be wrong, and not rounded."""
    before = keras.config.floatx(), keras.config.dtype_policy(), jax.config.jax_enable_x64
    keras.config.set_floatx("float64")  # JAX has 64 bits from then on.
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])
    jax.config.update("jax_enable_x64", before[2])


def residual(inputs):
    x = layers.Dense(32)(inputs)
    for i in range(3):
        inner = layers.Dense(48, activation="gelu", name=f"up_{i}")(x)
        x = layers.LayerNormalization()(x + layers.Dense(32, name=f"down_{i}")(inner))
    return layers.Dense(5, activation="softmax", name="head")(x)


def two_outputs(inputs):
    x = layers.Dense(16, activation="relu", kernel_regularizer="l2")(inputs)
    x = layers.Dense(16, activity_regularizer="l1")(x)
    return {"kind": layers.Dense(5, activation="softmax", name="kind")(x), "size": layers.Dense(1, name="size")(x)}


def language_model(inputs):
    x = layers.Embedding(20, 16, mask_zero=True)(inputs)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.Dense(16)(layers.Dense(24, activation="gelu")(x)))
    return layers.Dense(20)(x)


def attending(inputs):
    embedding = layers.Embedding(20, 16)
    x = embedding(inputs)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True))
    return keras.ops.matmul(x, keras.ops.transpose(layers.Dense(16)(x), (0, 2, 1))) / 100


def nested_and_shared(inputs):
    inner = [layers.Dense(24, activation="tanh", name="wide"), layers.Dense(16, name="narrow")]
    backbone = keras.Sequential([keras.Input((16,)), *inner], name="backbone")
    frozen = layers.Dense(16, name="frozen")
    frozen.trainable = False
    return layers.Dense(5, activation="softmax")(backbone(frozen(backbone(inputs))))


class AddsLosses(layers.Layer):
    def call(self, x):
        self.add_loss(0.1 * keras.ops.mean(x**2))
        return x


def adding_losses(inputs):
    x = AddsLosses()(layers.Dense(16, activation="relu")(inputs))
    return layers.Dense(5, activation="softmax")(AddsLosses()(layers.Dense(16)(x)))


def recurrent(inputs):
    x = layers.LSTM(16, return_sequences=True)(layers.Embedding(20, 16, mask_zero=True)(inputs))
    return layers.Dense(5)(layers.LSTM(12)(x))


def two_inputs(inputs):
    x = layers.Concatenate()([layers.Dense(8)(inputs["a"]), layers.Dense(8)(layers.Dense(4)(inputs["b"]))])
    return layers.Dense(5, activation="softmax")(x)


class TwoResults(layers.Layer):
    def call(self, x):
        return {"tripled": 3 * x, "places": keras.ops.argmax(x, -1)}


def of_all_kinds(inputs):
    """Dictionaries, integers and an input go through stages; a model is told that it does not train; a layer is called in two stages."""
    inner = keras.Sequential([keras.Input((16,)), layers.Dense(8), layers.Dense(16)], name="inner")
    shared = layers.Dense(16, activation="tanh")
    found = TwoResults()(shared(inner(shared(inputs), training=False)))
    x = layers.Add(name="kind")([layers.Dense(5)(found["tripled"]), layers.Embedding(16, 5)(found["places"])])
    return [x, inputs, layers.Dense(1, name="size")(x)]


class OwnLoss(keras.Model):
    """Half of everything, which it counts as well."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.halves = keras.metrics.Mean("halves")

    def compute_loss(self, *args, **kwargs):
        loss = 0.5 * super().compute_loss(*args, **kwargs)
        self.halves.update_state(loss)
        return loss


def with_own_loss(inputs):
    x = AddsLosses()(layers.Dense(16, activation="relu", kernel_regularizer="l2")(inputs))
    return OwnLoss(inputs, layers.Dense(5, activation="softmax")(layers.Dense(16)(x)))


def numbers():
    return keras.Input((16,))


def tokens():
    return keras.Input((7,), dtype="int32")


def of_two():
    return {name: keras.Input((16,), name=name) for name in "ab"}


LABELS = "sparse_categorical_crossentropy"
# The body and its inputs; what `compile` gets, made when 64 bits are what losses have; the data, and weights if there are some.
CASES = {
    "blocks": (residual, numbers, lambda: {"loss": LABELS, "metrics": ["accuracy"]}, (X, Y)),
    "two outputs": (
        two_outputs,
        numbers,
        lambda: {
            "loss": {"kind": LABELS, "size": "mse"},
            "loss_weights": {"kind": 1.0, "size": 0.3},
            "metrics": {"kind": ["accuracy"]},
        },
        (X, {"kind": Y, "size": X[:, :1]}),
    ),
    "masks": (
        language_model,
        tokens,
        lambda: {"loss": CROSS_ENTROPY(from_logits=True), "metrics": ["accuracy"]},
        (TOKENS,) * 2,
    ),
    "nested": (nested_and_shared, numbers, lambda: {"loss": LABELS}, (X, Y, W)),
    "a sum": (residual, numbers, lambda: {"loss": CROSS_ENTROPY(reduction="sum")}, (X, Y)),
    "masks and weights": (
        language_model,
        tokens,
        lambda: {"loss": CROSS_ENTROPY(from_logits=True, reduction="mean_with_sample_weight")},
        (TOKENS, TOKENS, TOKEN_WEIGHTS),
    ),
    "an ignored class": (residual, numbers, lambda: {"loss": CROSS_ENTROPY(ignore_class=2)}, (X, Y, W)),
    "weights": (
        residual,
        numbers,
        lambda: {"loss": LABELS, "weighted_metrics": ["accuracy", keras.metrics.SparseCategoricalCrossentropy()]},
        (X, Y, W),
    ),
    "added losses": (adding_losses, numbers, lambda: {"loss": LABELS}, (X, Y)),
    "attention": (attending, tokens, lambda: {"loss": "mse"}, (TOKENS, RANDOM.random((ROWS, 7, 7)))),
    "recurrent": (recurrent, tokens, lambda: {"loss": CROSS_ENTROPY(from_logits=True)}, (TOKENS, Y)),
    "two inputs": (two_inputs, of_two, lambda: {"loss": LABELS}, ({"a": X, "b": X[:, ::-1]}, Y)),
    "all kinds": (
        of_all_kinds,
        numbers,
        lambda: {"loss": [CROSS_ENTROPY(from_logits=True), None, "mae"]},
        (X, [Y, X, X[:, :1]]),
    ),
    "a loss of its own": (with_own_loss, numbers, lambda: {"loss": LABELS}, (X, Y)),
    "no targets": (adding_losses, numbers, lambda: {"loss": None}, (X, None)),
    "several steps in one": (residual, numbers, lambda: {"loss": LABELS, "steps_per_execution": 2}, (X, Y)),
}
OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "averaged and clipped": lambda: keras.optimizers.AdamW(0.01, use_ema=True, global_clipnorm=0.1),
    "accumulating": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
}


def make_model(strategy, case="blocks", optimizer="momentum", **options):
    body, make_inputs, compiled, _ = CASES[case]
    keras.utils.set_random_seed(1)
    with strategy.scope():
        inputs = make_inputs()
        model = body(inputs)
        if not isinstance(model, keras.Model):
            model = keras.Model(inputs, model)
        model.compile(OPTIMIZERS[optimizer](), **(compiled() | options))
    return model


def train(strategy, case="blocks", optimizer="momentum", epochs=2, **options):
    """Train on batches of 16 and 5 rows, then evaluate and predict; return all that comes of it."""
    model = make_model(strategy, case, optimizer, **options)
    x, y, *weights = CASES[case][3]
    weights = {"sample_weight": weights[0]} if weights else {}
    history = model.fit(x, y, batch_size=16, epochs=epochs, shuffle=False, verbose=0, **weights).history
    evaluated = model.evaluate(x, y, batch_size=13, verbose=0, return_dict=True, **weights)
    return history | evaluated, model.get_weights(), model.predict(x, batch_size=13, verbose=0)


def compare(strategy, *args, **options):
    results, expected = (train(each, *args, **options) for each in (strategy, ONE_DEVICE))
    assert keras.tree.map_structure(np.shape, results) == keras.tree.map_structure(np.shape, expected)
    # JAX computes the scores of attention in 32 bits.
    error = 1e-5 if args == ("attention",) else 1e-11
    for one, other in zip(keras.tree.flatten(results), keras.tree.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=error)


@pytest.mark.parametrize(
    ("case", "make"),
    [
        ("blocks", lambda: PipelineStrategy(2, 4, "interleaved")),
        pytest.param(
            "two outputs", lambda: PipelineStrategy(4, 3, devices=CPUS[:4], remat="none"), marks=pytest.mark.exhaustive
        ),
        pytest.param("masks", lambda: PipelineStrategy(4, 4), marks=pytest.mark.exhaustive),
        ("masks and weights", lambda: PipelineStrategy(2, 3)),
        pytest.param(
            "a sum",
            lambda: PipelineStrategy(2, 4, "gpipe", remat="layer", devices=CPUS[:4]),
            marks=pytest.mark.exhaustive,
        ),
        pytest.param("a loss of its own", lambda: PipelineStrategy(2, 2), marks=pytest.mark.exhaustive),
        ("nested", lambda: PipelineStrategy(3, 4, "zb-h1", split_before=["narrow", "frozen"], devices=CPUS[:6])),
    ],
)
def test_training_over_stages_is_that_on_one_device(case, make):
    compare(make(), case)


def test_weights_may_have_more_entries_than_losses():
    class Squared(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return (y_pred - y_true) ** 2

    weights, losses = RANDOM.random((13, 3)), []
    for strategy in (PipelineStrategy(2, 4), ONE_DEVICE):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = keras.Sequential([numbers(), layers.Dense(8), layers.Dense(1)])
            model.compile("sgd", Squared(reduction="mean_with_sample_weight"))
        losses.append(model.train_on_batch(X[:13], X[:13, :1], weights))
    np.testing.assert_allclose(*losses, rtol=1e-11)


def test_operations_of_a_model_in_mixed_precision_read_variables_as_its_layers_do():
    def body(inputs):
        dense = layers.Dense(16, dtype="mixed_bfloat16")
        product = keras.ops.matmul(layers.Dense(16, dtype="mixed_bfloat16")(dense(inputs)), dense.kernel)
        look = layers.Lambda(
            lambda x: seen.append(keras.backend.standardize_dtype(x.dtype)) or x, dtype="mixed_bfloat16", autocast=False
        )
        return layers.Dense(1, dtype="float32")(look(product))

    seen = []
    keras.config.set_dtype_policy("mixed_bfloat16")
    with PipelineStrategy(2, 2).scope():
        inputs = numbers()
        model = keras.Model(inputs, body(inputs))
        model.compile("sgd", "mse")
    del seen[:]
    model.train_on_batch(X[:8], X[:8, :1])
    assert {*seen} == {"bfloat16"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: PipelineStrategy(4, 4),
        lambda: PipelineStrategy(3, 5, "gpipe", devices=CPUS[:3], remat="layer"),
        lambda: PipelineStrategy(2, 4, "interleaved", devices=CPUS[:6], remat="none"),
        lambda: PipelineStrategy(4, 8, "zb-h1", devices=CPUS[:4]),
    ],
    ids=["1f1b", "gpipe", "interleaved", "zb-h1"],
)
def test_every_model_over_every_schedule_is_that_on_one_device(case, make):
    compare(make(), case)


@pytest.mark.exhaustive  # Each trains in another test, too, but for averages and clipping.
@pytest.mark.parametrize("optimizer", list(OPTIMIZERS)[1:])
def test_optimizers_do_over_stages_what_they_do_on_one_device(optimizer):
    compare(PipelineStrategy(4, 4), optimizer=optimizer)


def test_several_steps_in_one_program_are_a_loop_on_accelerators(monkeypatch):
    monkeypatch.setattr(_programs, "runs_on_cpu", lambda mesh: False)
    models = [make_model(each, steps_per_execution=2) for each in (PipelineStrategy(4, 4), ONE_DEVICE)]
    one, other = (model.fit(X[:16], Y[:16], batch_size=8, epochs=2, shuffle=False, verbose=0) for model in models)
    np.testing.assert_allclose(one.history["loss"], other.history["loss"], rtol=1e-11)
    for weights in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(*weights, rtol=0, atol=1e-11)


def step_of(strategy, width=256, metrics=None):
    with strategy.scope():
        blocks = [layers.Dense(width, activation="relu", dtype="float32", name=f"block_{i}") for i in range(8)]
        model = keras.Sequential([keras.Input((width,)), *blocks])
        model.compile("adam", "mse", metrics=metrics)
    batch = np.zeros((32, width), "f4"), np.zeros((32, width), "f4")
    model.fit(*batch, batch_size=32, verbose=0)
    compiled = communication.compile_step(model, batch)
    collectives = {
        (one.kind, one.axes): (one.count, one.bytes) for one in communication.collectives_of(compiled, strategy)
    }
    return model, compiled.memory_analysis(), collectives


def test_a_device_has_its_stages_layers_and_a_part_of_all_that_is_kept(bound):
    model, memory, collectives = step_of(PipelineStrategy(8, 8))
    layer = 256 * 256 * 4
    for variable in [*model.trainable_variables, *model.optimizer.variables]:
        if variable.shape == (256, 256):
            assert {shard.data.nbytes for shard in variable.stored.addressable_shards} == {layer / 8}
    # Kernels come to their stages, and gradients go back; activations go on, and gradients by them back, in each tick.
    assert collectives[("all-to-all", ("stage",))] == (2, 2 * layer)
    assert collectives[("collective-permute", ("stage",))][0] == 2
    assert {kind for kind, _ in collectives} == {"all-to-all", "collective-permute", "all-reduce"}
    assert collectives[("all-reduce", ("stage",))][1] < 8 * 256 * 4 + 100
    mirrored = step_of(tf.distribute.MirroredStrategy())[1]
    bound(
        "arguments of a device, of what mirrored ones have",
        memory.argument_size_in_bytes / mirrored.argument_size_in_bytes,
        0.15,
    )
    bound("temporary memory, of what mirrored ones have", memory.temp_size_in_bytes / mirrored.temp_size_in_bytes, 0.4)


def test_outputs_are_kept_for_all_rows_only_where_metrics_need_them():
    strategy = PipelineStrategy(8, 8)
    outputs = 32 * 256 * 4
    without, with_metrics = (step_of(strategy, metrics=metrics)[2] for metrics in (None, ["mae"]))
    sent = lambda found: sum(size for (kind, _), (_, size) in found.items() if kind == "all-reduce")
    assert sent(without) < outputs <= sent(with_metrics)


def test_random_layers_draw_for_each_microbatch_and_step():
    with PipelineStrategy(4, 4).scope():
        keras.utils.set_random_seed(1)
        inputs = keras.Input((1,))
        dropped = layers.Activation("linear")(layers.Dropout(0.5)(layers.Dense(1, use_bias=False)(inputs)))
        model = keras.Model(inputs, layers.Activation("linear")(dropped))
        model.compile(keras.optimizers.SGD(0.0), "mse")
    model.set_weights([np.ones((1, 1)), *model.get_weights()[1:]])
    (seed,) = (variable for variable in model.non_trainable_variables if "seed" in variable.path)
    before = np.asarray(seed.value)
    # Rows that are kept give 2, and others 0.
    kept = [model.train_on_batch(np.ones((512, 1)), np.zeros((512, 1))) / 4 * 512 for _ in range(3)]
    np.testing.assert_allclose(kept, np.round(kept), rtol=1e-6)
    assert all(200 < count < 312 for count in kept) and len({*np.round(kept)}) == 3
    # If the two replicas or the four microbatches drew alike, each number would be a multiple.
    assert any(round(count) % 2 for count in kept) and any(round(count) % 4 for count in kept)
    np.testing.assert_array_equal(np.asarray(seed.value) - before, [0, 3])


def refused(error, match, body, fit=None, strategy=None, data=(X, Y), loss=LABELS):
    with (strategy or PipelineStrategy(4, 4)).scope():
        inputs = numbers()
        model = body(inputs)
        if not isinstance(model, keras.Model):
            model = keras.Model(inputs, model)
        model.compile("sgd", loss)
    model.build((None, 16))
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    before = [np.asarray(variable.value) for variable in variables]
    with pytest.raises(error, match=match):
        model.fit(*data, verbose=0)
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(np.asarray(variable.value), value)


class OwnStep(keras.Model):
    def train_step(self, data):
        return super().train_step(data)


class OwnCall(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(5, activation="softmax")

    def call(self, x):
        return self.dense(x)


class MasksByWeights(layers.Layer):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)

    def call(self, x):
        y = x * 1
        set_keras_mask(y, self.dense(x)[..., 0] > 0)
        return y


class MasksAtRandom(layers.Layer):
    def __init__(self):
        super().__init__()
        self.seed = keras.random.SeedGenerator(1)

    def call(self, x):
        y = x * 1
        set_keras_mask(y, keras.random.uniform(keras.ops.shape(x)[:1], seed=self.seed) < 0.5)
        return y


class Centres(layers.Layer):
    def call(self, x):
        return x - keras.ops.mean(x, 0, keepdims=True)


class Counts(layers.Layer):
    def __init__(self):
        super().__init__()
        self.seen = keras.metrics.Mean("seen")

    def call(self, x):
        self.seen.update_state(x)
        return x


def with_layer(layer):
    return lambda inputs: layers.Dense(5)(layer()(layers.Dense(8)(layers.Dense(8)(inputs))))


def with_own_step(inputs):
    return OwnStep(inputs, residual(inputs))


def frozen(inputs):
    model = keras.Model(inputs, residual(inputs))
    model.trainable = False
    return model


@pytest.mark.parametrize(
    ("error", "match", "body", "options"),
    [
        (
            NotImplementedError,
            "batch_normalization.*moving_mean changes.*LayerNormalization",
            with_layer(layers.BatchNormalization),
            {},
        ),
        (NotImplementedError, "`train_step` of its own.*compute_loss", with_own_step, {}),
        (
            NotImplementedError,
            r"OwnCall with a `call` of its own.*keras.Model\(inputs, outputs\)",
            lambda _: OwnCall(),
            {},
        ),
        (
            NotImplementedError,
            "masks follows from its weights or from random numbers",
            with_layer(MasksByWeights),
            {"loss": "mse", "data": (X, X[:, :5])},
        ),
        (
            NotImplementedError,
            "masks follows from its weights or from random numbers",
            with_layer(MasksAtRandom),
            {"loss": "mse", "data": (X, X[:, :5])},
        ),
        (NotImplementedError, "depends on other rows.*test_pipeline_fit.py", with_layer(Centres), {}),
        (NotImplementedError, "seen/total changes.*count it in a metric", with_layer(Counts), {}),
        (
            ValueError,
            "does not follow from those of a pipeline's microbatches.*sample_weight",
            residual,
            {"loss": lambda y, y_pred: keras.ops.max(y_pred), "data": (X, X[:, :5])},
        ),
        (ValueError, "no weights to train", frozen, {}),
        (ValueError, "calls 1 layers.*4 stages", lambda x: layers.Dense(5)(x), {}),
    ],
)
def test_what_stages_cannot_do_is_refused_and_changes_nothing(error, match, body, options):
    refused(error, match, body, **options)


def test_models_that_take_strings_or_keep_states_are_refused():
    with PipelineStrategy(2, 2).scope():
        texts = keras.Input((1,), dtype="string")
        looked_up = layers.Embedding(3, 4)(layers.StringLookup(vocabulary=["a", "b"])(texts))
        model = keras.Model(texts, layers.Dense(1)(layers.Flatten()(looked_up)))
        model.compile("sgd", "mse")
        steps = keras.Input((3, 4), batch_size=8)
        stateful = keras.Model(steps, layers.Dense(1)(layers.LSTM(4, stateful=True)(steps)))
        stateful.compile("sgd", "mse")
    with pytest.raises(NotImplementedError, match=r"takes strings.*dataset map strings"):
        model.fit(np.array([["a"], ["b"]] * 4), np.zeros((8, 1)), verbose=0)
    with pytest.raises(NotImplementedError, match=r"stateful=True.*microbatch"):
        stateful.fit(np.zeros((8, 3, 4)), np.zeros((8, 1)), batch_size=8, verbose=0)


@pytest.mark.parametrize(
    ("error", "match", "names"),
    [
        (ValueError, "'nope', and none is called so.*'up_0', 'down_0'", ["nope"]),
        (ValueError, "'up_1' leaves no layer.*called in the order", ["up_1", "up_1"]),
        (ValueError, "several are called so: .*'one/inner'.*'two/inner'", ["inner"]),
    ],
)
def test_names_that_begin_no_stage_are_refused(error, match, names):
    def body(inputs):
        if names != ["inner"]:
            return residual(inputs)
        make = lambda name: keras.Sequential([keras.Input((16,)), layers.Dense(16, name="inner")], name=name)
        return layers.Dense(5, activation="softmax")(make("two")(make("one")(inputs)))

    strategy = PipelineStrategy(len(names) + 1, 2, split_before=names, devices=CPUS[: len(names) + 1])
    refused(error, match, body, strategy=strategy)


@pytest.mark.parametrize(
    ("error", "match", "arguments", "options"),
    [
        (ValueError, "8 devices cannot be divided into 3 stages", (3, 4), {}),
        (TypeError, "must be a list of names of layers, got 'up_2'", (2, 4), {"split_before": "up_2"}),
        (ValueError, "for 4 stages it takes 3, got", (2, 4, "interleaved"), {"split_before": ["up_2"]}),
        (ValueError, "`min_size` must be a number", (2, 4), {"min_size": 0}),
        (ValueError, "`stages`, `microbatches` and `chunks` are numbers", (2, 0), {}),
        (ValueError, "in groups of as many as there are devices", (2, 3, "interleaved"), {}),
    ],
)
def test_numbers_that_do_not_fit_are_refused(error, match, arguments, options):
    with pytest.raises(error, match=match):
        PipelineStrategy(*arguments, **options)


def test_stages_are_cut_where_names_say():
    _, _, collectives = step_of(PipelineStrategy(2, 2, split_before=["block_1"], devices=CPUS[:2]))
    layer = 256 * 256 * 4
    # The second stage has seven of eight layers, and the exchange is of as many for each device.
    assert collectives[("all-to-all", ("stage",))] == (2, 2 * 7 * layer)


def test_a_strategy_says_which_layers_each_stage_has():
    strategy = PipelineStrategy(2, 2, "interleaved", devices=CPUS[:2])
    assert strategy.stages is None
    model = make_model(strategy)
    model.train_on_batch(X[:4], Y[:4])
    names = [layer.name for layer in model.layers[1:]]
    assert [name for stage in strategy.stages for name in stage if name in names] == names
    assert [len({"up_0", "up_1", "up_2", "head"} & {*stage}) for stage in strategy.stages] == [1, 1, 1, 1]
    nested = PipelineStrategy(2, 2, split_before=["narrow"], devices=CPUS[:2])
    make_model(nested, "nested").predict(X[:4], verbose=0)
    first, second = nested.stages
    assert first == ["backbone/wide"]
    # The other call of "narrow" is the same layer.
    assert second[:-1] == ["backbone/narrow", "frozen", "backbone/wide"]


def test_training_goes_on_under_other_strategies_and_numbers_of_stages(tmp_path):
    strategies = [PipelineStrategy(4, 4), tf.distribute.MirroredStrategy(CPUS[:2]), PipelineStrategy(2, 2, "gpipe")]
    # An epoch ends between the two batches of an update, and replicas have as many rows.
    straight = make_model(ONE_DEVICE, optimizer="accumulating")
    expected = straight.fit(X[:12], Y[:12], batch_size=4, epochs=3, shuffle=False, verbose=0).history["loss"]
    losses, saved = [], None
    for i, strategy in enumerate(strategies):
        model = make_model(strategy, optimizer="accumulating")
        model.optimizer.build(model.trainable_variables)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        if saved:
            checkpoint.restore(saved).assert_consumed()
        losses += model.fit(X[:12], Y[:12], batch_size=4, shuffle=False, verbose=0).history["loss"]
        saved = checkpoint.save(str(tmp_path / f"{i}"))
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    model.save(tmp_path / "model.keras")
    with PipelineStrategy(8, 4).scope():
        loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(X, verbose=0), model.predict(X, verbose=0), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:A step whose replicas' batches differ in size, or that is not compiled")
def test_debugging_own_evaluation_and_loops_compute_all_layers():
    class OwnTest(keras.Model):
        def test_step(self, data):
            return super().test_step(data)

    strategy = PipelineStrategy(4, 4)
    with strategy.scope():
        keras.utils.set_random_seed(1)
        inputs = numbers()
        model = OwnTest(inputs, residual(inputs))
        model.compile(OPTIMIZERS["momentum"](), LABELS)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, model(x, training=True)))
            scaled = loss / 2
        weights = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(scaled, weights), weights, strict=True))
        return loss

    expected = make_model(ONE_DEVICE, metrics=None)
    expected_loss = expected.evaluate(X, Y, verbose=0)
    np.testing.assert_allclose(model.evaluate(X, Y, verbose=0), expected_loss, rtol=1e-6)
    loss = strategy.reduce("MEAN", strategy.run(step, (X[:16], Y[:16])), axis=None)
    np.testing.assert_allclose(loss, expected.train_on_batch(X[:16], Y[:16]), rtol=1e-6)
    model.compile(model.optimizer, LABELS, run_eagerly=True)
    np.testing.assert_allclose(model.train_on_batch(X[:16], Y[:16]), expected.train_on_batch(X[:16], Y[:16]), rtol=1e-6)


def test_one_row_and_one_stage_are_enough():
    sizes = (1, 3)
    losses = lambda model: [model.train_on_batch(X[:rows], Y[:rows])[0] for rows in sizes]
    expected = losses(make_model(ONE_DEVICE))
    for strategy in (PipelineStrategy(4, 4), PipelineStrategy(1, 2, devices=CPUS[:1])):
        model = make_model(strategy)
        np.testing.assert_allclose(losses(model), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="no batch of data"):
        model.fit(X[:0], Y[:0], verbose=0)
