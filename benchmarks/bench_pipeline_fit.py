"""A Keras model trained over the stages of a pipeline, against the same written for the library and by hand in JAX; interleaved, JSON.

`python benchmarks/bench_pipeline_fit.py [--devices 8] [--rounds 15] [--out benchmarks/results/pipeline_fit.json]`

Residual blocks of two dense layers, trained by SGD with momentum on host batches: `train_on_batch` under `PipelineStrategy`, and under
`MirroredStrategy`; a `td.Staged` whose layers are a list, as a Keras model's are, and one whose layers are stacked; and GPipe as JAX
differentiates a loop over ticks. Devices are virtual and share a few cores, so that waiting takes no time. All losses are compared.
"""

import functools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import jax
import numpy as np
import optax
from _report import describe_machine, emit, parser
from bench_pipeline import MICROBATCHES, STAGES, compare, gradients_by_hand, time_in_turn

import tfdist_jax as td
import tfdist_jax.compat.tensorflow as tf

WIDTH, HIDDEN, CLASSES, BLOCKS, ROWS = 256, 1024, 10, 8, 1024
RATE = 2e-4
OPTIMIZER = optax.sgd(RATE, momentum=0.9)


def make_params():
    """Parameters, those of blocks stacked."""
    random = np.random.default_rng(0)
    normal = lambda *shape: (0.05 * random.normal(size=shape)).astype(np.float32)
    blocks = {"up": normal(BLOCKS, WIDTH, HIDDEN), "down": normal(BLOCKS, HIDDEN, WIDTH)}
    return {"blocks": blocks, "head": normal(WIDTH, CLASSES)}


def apply_block(block, x, batch=None):
    """Two dense layers beside the identity."""
    return x + jax.nn.gelu(x @ block["up"], approximate=False) @ block["down"]


def loss_of(params, x, batch):
    """Behind the blocks."""
    return optax.softmax_cross_entropy_with_integer_labels(x @ params["head"], batch["y"]).mean()


def make_native(devices, layers):
    """Return a function of a host batch that takes a step and returns the loss: "stacked", "listed" or "by hand"."""
    stack = None if layers == "listed" else "blocks"
    strategy = td.Pipeline(
        STAGES, MICROBATCHES, remat="stage", axes={"data": devices // STAGES}, min_size=1, stack=stack
    )
    params = make_params()
    layer = apply_block
    if layers == "listed":
        params["blocks"] = [jax.tree.map(lambda leaf, i=i: leaf[i], params["blocks"]) for i in range(BLOCKS)]
        layer = [lambda params, x, batch, i=i: apply_block(params["blocks"][i], x) for i in range(BLOCKS)]
    state = strategy.init(lambda: (params, OPTIMIZER.init(params)))
    compute = strategy.value_and_grad(td.Staged(lambda params, batch: batch["x"], layer, loss_of), has_aux=False)
    if layers == "by hand":
        specs = jax.tree.map(lambda leaf: leaf.sharding.spec, state[0])
        compute = gradients_by_hand(strategy, specs, lambda outer, batch: batch["x"], apply_block, loss_of)

    @strategy.jit
    def step(state, batch):
        params, opt_state = state
        loss, grads = compute(params, batch)
        updates, opt_state = OPTIMIZER.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    def take(batch):
        nonlocal state
        state, loss = step(state, strategy.put(batch))
        return float(loss)

    return take


def make_keras(strategy):
    """Return the same of a Keras model."""
    params = make_params()
    with strategy.scope():
        inputs = x = tf.keras.Input((WIDTH,))
        for _ in range(BLOCKS):
            inner = tf.keras.layers.Dense(HIDDEN, "gelu", use_bias=False)(x)
            x = x + tf.keras.layers.Dense(WIDTH, use_bias=False)(inner)
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES, use_bias=False)(x))
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.SGD(RATE, momentum=0.9), loss)
    blocks = zip(params["blocks"]["up"], params["blocks"]["down"], strict=True)
    model.set_weights([*(kernel for pair in blocks for kernel in pair), params["head"]])
    return lambda batch: float(model.train_on_batch(batch["x"], batch["y"]))


def measure(devices, rounds):
    """Return times of steps, taken in turn."""
    pipeline = tf.distribute.experimental.PipelineStrategy(STAGES, MICROBATCHES, min_size=1)
    steps = {
        "by hand": make_native(devices, "by hand"),
        "td.Pipeline, stacked": make_native(devices, "stacked"),
        "td.Pipeline, a list": make_native(devices, "listed"),
        "Keras, PipelineStrategy": make_keras(pipeline),
        "Keras, MirroredStrategy": make_keras(tf.distribute.MirroredStrategy()),
    }
    random = np.random.default_rng(1)
    batch = {"x": random.normal(size=(ROWS, WIDTH)).astype(np.float32), "y": random.integers(0, CLASSES, ROWS)}
    times = time_in_turn({name: functools.partial(step, batch) for name, step in steps.items()}, rounds)
    return {
        name: {**compare(own, times["by hand"]), "first step, s": round(own[0] / 1000, 1)}
        for name, own in times.items()
    }


def main():
    """Measure and print."""
    options = parser(__doc__, rounds=15)
    options.set_defaults(devices=8)
    args = options.parse_args()
    td.use_cpu_devices(args.devices)
    found = measure(args.devices, args.rounds)
    emit({"devices": args.devices, **describe_machine("jax", "jaxlib", "keras"), "contenders": found}, args.out)


if __name__ == "__main__":
    main()
