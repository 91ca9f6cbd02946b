r"""TensorFlow Addons, Orbit and tf-models train as their tutorials do, where they are installed.

They are no extra of this package, since they ask for TensorFlow 2.15. They are installed without what they ask for::

    pip install --no-deps --target libraries/site-packages tensorflow-addons==0.23.0 'typeguard<3' tf-models-official==2.15.0 \
        gin-config tf-slim
    PYTHONPATH=$PWD/libraries/site-packages pytest -m exhaustive tests/compat/test_real_libraries.py
"""

import importlib.util
import os

import pytest

pytestmark = pytest.mark.exhaustive

ADDONS = """
import numpy as np, tensorflow as tf, tensorflow_addons as tfa

x = np.random.default_rng(0).random((32, 4)).astype("float32")
y = x.sum(1, keepdims=True)
makers = {
    "LAMB": lambda: tfa.optimizers.LAMB(0.01, weight_decay=0.1, exclude_from_weight_decay=["bias"]),
    "AdamW": lambda: tfa.optimizers.AdamW(weight_decay=1e-2, learning_rate=0.01),
    "Lookahead": lambda: tfa.optimizers.Lookahead(tfa.optimizers.RectifiedAdam(0.01), sync_period=3),
    "SWA": lambda: tfa.optimizers.SWA(tf.keras.optimizers.SGD(0.01), start_averaging=2, average_period=2),
    "NovoGrad": lambda: tfa.optimizers.NovoGrad(0.01),
}
for name, make in makers.items():
    with tf.distribute.MirroredStrategy().scope():
        model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(3), tfa.layers.GELU(), tf.keras.layers.Dense(1)])
        model.compile(make(), "mse")
    losses = model.fit(x, y, batch_size=8, epochs=3, verbose=0).history["loss"]
    assert losses[2] < losses[0], (name, losses)

# The first step of LAMB: after correction of their bias, m is g and v is g * g.
w, g = np.array([3.0, 4.0], "float32"), np.array([0.5, -2.0], "float32")
variable = tf.keras.Variable(w, name="w")
tfa.optimizers.LAMB(0.1, weight_decay=0.01).apply_gradients([(g, variable)])
update = g / (np.abs(g) + 1e-6) + 0.01 * w
np.testing.assert_allclose(variable.numpy(), w - 0.1 * np.linalg.norm(w) / np.linalg.norm(update) * update, rtol=1e-5)

p = np.array([0.97, 0.91, 0.03])
focal = 0.25 * (1 - p[:2]) ** 2 * -np.log(p[:2]), 0.75 * p[2:] ** 2 * -np.log(1 - p[2:])
loss = tfa.losses.sigmoid_focal_crossentropy(tf.constant([[1.0], [1.0], [0.0]]), tf.constant(p[:, None], tf.float32))
np.testing.assert_allclose(loss.numpy(), np.concatenate(focal), rtol=1e-3)
metric = tfa.metrics.F1Score(2, average="macro", threshold=0.5)
metric.update_state(tf.constant([[1.0, 0.0], [1.0, 1.0]]), tf.constant([[0.9, 0.7], [0.2, 0.8]]))
np.testing.assert_allclose(metric.result().numpy(), 2 / 3, rtol=1e-6)
image = np.arange(9, dtype="float32").reshape(3, 3, 1)
np.testing.assert_allclose(tfa.image.rotate(image, np.pi / 2).numpy(), np.rot90(image), atol=1e-5)
try:
    tfa.text.parse_time("2019-05-17", "%Y-%m-%d", "SECOND")
except tf.errors.NotFoundError as error:
    assert "compiled files" in str(error)
print("trained")
"""

MODELS = """
import numpy as np, tensorflow as tf
from official.modeling import optimization
from official.nlp.modeling import models, networks

schedule = {"type": "polynomial", "polynomial": {"initial_learning_rate": 0.01, "decay_steps": 20, "end_learning_rate": 0.001}}
config = optimization.OptimizationConfig({"optimizer": {"type": "adamw"}, "learning_rate": schedule,
    "warmup": {"type": "linear", "linear": {"warmup_steps": 4, "warmup_learning_rate": 0.0}}})
factory = optimization.OptimizerFactory(config)
rate = factory.build_learning_rate()
np.testing.assert_allclose([float(rate(i)) for i in (0, 4, 10, 20)], [0.0, 0.0082, 0.0055, 0.001], rtol=1e-5)
with tf.distribute.MirroredStrategy().scope():
    encoder = networks.BertEncoderV2(
        vocab_size=30, hidden_size=8, num_layers=1, num_attention_heads=2, inner_dim=16, max_sequence_length=12)
    model = models.BertClassifier(encoder, num_classes=2)
    model.compile(factory.build_optimizer(rate), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
ids = np.random.default_rng(0).integers(0, 30, (8, 6))
x = {"input_word_ids": ids, "input_mask": np.ones_like(ids), "input_type_ids": np.zeros_like(ids)}
losses = model.fit(x, ids[:, 0] % 2, epochs=4, batch_size=4, verbose=0).history["loss"]
assert np.isfinite(losses).all()
print("trained")
"""

ORBIT = """
import numpy as np, orbit, tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
x = np.random.default_rng(0).random((64, 4)).astype("float32")

class Trainer(orbit.StandardTrainer):
    def __init__(self):
        self.model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
        self.optimizer = tf.keras.optimizers.SGD(0.1)
        self.loss = tf.keras.metrics.Mean("loss")
        data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).repeat().batch(16)
        super().__init__(orbit.utils.make_distributed_dataset(strategy, data))

    def train_loop_begin(self):
        self.loss.reset_states()

    def train_step(self, iterator):
        def step(inputs):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.model(inputs[0]) - inputs[1]) ** 2) / strategy.num_replicas_in_sync
            weights = self.model.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            self.loss.update_state(loss * strategy.num_replicas_in_sync)

        strategy.run(step, args=(next(iterator),))

    def train_loop_end(self):
        return {"loss": self.loss.result()}

with strategy.scope():
    trainer = Trainer()
    controller = orbit.Controller(
        trainer=trainer, strategy=strategy, global_step=trainer.optimizer.iterations, steps_per_loop=5, summary_dir="summaries")
    controller.train(5)
    first = float(trainer.loss.result())
    controller.train(20)
assert int(controller.global_step) == 20 and float(trainer.loss.result()) < first
print("trained")
"""


@pytest.mark.parametrize(
    ("library", "program"),
    [("tensorflow_addons", ADDONS), ("official", MODELS), ("orbit", ORBIT)],
    ids=["addons", "models", "orbit"],
)
def test_library_trains(run_script, library, program):
    if importlib.util.find_spec(library) is None:  # It cannot be imported here, where TensorFlow is the real one.
        pytest.skip(f"{library} is not installed")
    named = "official,orbit,tf_slim" if library == "official" else library
    runner = ("-m", "tfdist_jax", "run", "--devices", "2", "--alias-for", named)
    ran = run_script(program, runner=runner, env={"PYTHONPATH": os.environ.get("PYTHONPATH", "")})
    assert ran.stdout.splitlines()[-1:] == ["trained"], ran.stderr
