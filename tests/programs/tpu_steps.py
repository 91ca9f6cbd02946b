"""Compile three training steps for TPU chips that are not there; prints what each costs on each topology, as JSON.

`python tpu_steps.py v5e:2x4 v5e:4x4*2`: eight chips of two hosts, two slices of sixteen chips.
"""

import json
import math
import os
import re
import sys

os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-8", "TPU_WORKER_HOSTNAMES": "localhost"}

import jax
import numpy as np
import optax
from flax import nnx
from jax.experimental import topologies
from jax.extend.core import jaxpr_as_fun
from jax.sharding import NamedSharding, PartitionSpec

import tfdist_jax as td
import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._stateful._capture import capture
from tfdist_jax.compat.tensorflow.distribute import Strategy
from tfdist_jax.compat.tensorflow.keras._training._batch_feeder import SPLIT_STEPS
from tfdist_jax.compat.tensorflow.keras._training._programs import run_steps
from tfdist_jax.compat.tensorflow.keras._training._steps import make_train_step
from tfdist_jax.compat.tensorflow.random._random_state import drawing_from

BATCH = 64
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter")
keras = tf.keras


def chips_of(topology):
    """The chips of a topology, such as "v5e:2x4" or, for two slices, "v5e:2x4*2"."""
    shape, _, slices = topology.partition("*")
    return tuple(topologies.get_topology_desc(shape, platform="tpu", num_slices=int(slices or 1)).devices)


def on(strategy, tree, specs=None):
    """Types of arrays laid out over the strategy's mesh: by `specs`, or whole."""
    specs = jax.tree.map(lambda _: PartitionSpec(), tree) if specs is None else specs
    typed = lambda leaf, spec: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(strategy.mesh, spec))
    return jax.tree.map(typed, tree, specs)


def images(strategy):
    """Types of a batch of images and labels, split over the chips."""
    types = (jax.ShapeDtypeStruct((BATCH, 8, 8, 1), "float32"), jax.ShapeDtypeStruct((BATCH,), "int32"))
    return on(strategy, types, (PartitionSpec(td.DATA),) * 2)


def figures(lowered):
    """Collectives of a program before and after compilation, and its memory."""
    compiled = lowered.compile()
    text = compiled.as_text()
    memory = compiled.memory_analysis()
    found = re.findall(rf" ({'|'.join(COLLECTIVES)})(?:-start)?\(.*replica_groups=(.*)", text)
    # Between slices the chips' hosts carry the data, each its chips' part.
    sent = re.findall(r"= \(f32\[([\d,]+)\].* send\(.*_xla_megascale_transfer_type=\"(\w+)\"", text)
    return {
        "asked": [lowered.as_text().count(f'"stablehlo.{name.replace("-", "_")}"') for name in COLLECTIVES],
        "compiled": [[name for name, _ in found].count(name) for name in COLLECTIVES],
        "group_sizes": sorted({group_size(groups) for _, groups in found}),
        "between_slices": [(kind, math.prod(map(int, shape.split(",")))) for shape, kind in sent],
        "argument_bytes": memory.argument_size_in_bytes,
        "alias_bytes": memory.alias_size_in_bytes,
        "temp_bytes": memory.temp_size_in_bytes,
    }


def group_size(groups):
    """How many chips of a slice work together: XLA writes one group of all as a list, or as the axis of a mesh."""
    if listed := re.match(r"\{\{([\d,]+)\}\}", groups):
        return len(set(listed[1].split(",")))
    axis = re.match(r"mesh\['(\w+)'=(\d+)\] \{'(\w+)'\}", groups)
    if axis is None or axis[1] != axis[3]:
        raise ValueError(f"These are no groups of all: {groups}")
    return int(axis[2])


def model():
    """The demo's model."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def keras_step(chips):
    """The step of `model.fit`."""
    strategy, net = Strategy(td.Mirrored(chips)), model()
    net.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    net.optimizer.build(net.trainable_variables)
    step, sizes = make_train_step(net, len(chips)), (BATCH // len(chips),) * len(chips)
    one_step = lambda types: jax.ShapeDtypeStruct((1, *types.shape), types.dtype)
    batches = on(strategy.native, tuple(map(one_step, images(strategy.native))), (SPLIT_STEPS,) * 2)

    def run(*batches):
        with drawing_from(np.zeros(3, np.uint32)):
            return run_steps(step, strategy, sizes, batches)

    return lower_with_cells(strategy, run, batches)


def custom_loop_step(chips):
    """The step of a custom loop: `strategy.run`, a tape, an optimizer, `reduce`."""
    strategy, net = Strategy(td.Mirrored(chips)), model()
    optimizer = keras.optimizers.Adam()
    optimizer.build(net.trainable_variables)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(losses(y, net(x, training=True)), global_batch_size=BATCH)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables, strict=True)
        )
        return loss

    def step(x, y):
        args = tuple(td.PerReplica(leaf, len(chips), is_rows=True) for leaf in (x, y))
        return strategy.reduce("SUM", strategy.run(train_step, args=args), axis=None)

    batch = images(strategy.native)
    return lower_with_cells(strategy, step, batch)


def lower_with_cells(strategy, fn, arrays):
    """Lower a function of arrays and variables, of which those that it writes are replaced."""
    captured = capture(fn, arrays)
    written = {id(cell) for cell in captured.written}
    kept = [cell for cell in captured.cells if id(cell) not in written]
    split = [on(strategy.native, [cell.stored for cell in cells]) for cells in (captured.written, kept)]

    def run(new, old, arrays):
        values = dict(zip(map(id, [*captured.written, *kept]), [*new, *old], strict=True))
        return jaxpr_as_fun(captured.jaxpr)(*arrays, *(values[id(cell)] for cell in captured.cells))

    return jax.jit(run, donate_argnums=0).lower(*split, arrays)


def fsdp_step(chips):
    """The step of a Flax program under FSDP."""
    strategy, optimizer = td.FSDP(chips), optax.adam(1e-3)
    net = nnx.eval_shape(
        lambda: nnx.Sequential(nnx.Linear(64, 4096, rngs=nnx.Rngs(0)), nnx.Linear(4096, 512, rngs=nnx.Rngs(1)))
    )
    graph, params = nnx.split(net)
    state = (params, jax.eval_shape(optimizer.init, params))

    def loss_fn(params, batch):
        x, y = batch
        logits = nnx.merge(graph, params)(x.reshape(len(x), -1))
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    @strategy.jit
    def step(state, batch):
        params, opt_state = state
        loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    specs = jax.tree.map(lambda sharding: sharding.spec, strategy.shardings(state))
    return step.lower(on(strategy, state, specs), images(strategy))


STEPS = {"keras": keras_step, "custom loop": custom_loop_step, "fsdp": fsdp_step}
print(json.dumps({t: {name: figures(make(chips_of(t))) for name, make in STEPS.items()} for t in sys.argv[1:]}))
