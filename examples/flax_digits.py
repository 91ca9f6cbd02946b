"""Handwritten digits with Flax (nnx) and optax: one program for one device, all devices, or sharded state.

`python examples/flax_digits.py --strategy fsdp --devices 8`, or over two processes
`tfdist-jax launch --workers 2 examples/flax_digits.py --strategy fsdp --devices 4`
"""

import argparse

import tfdist_jax as td

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--strategy", choices=["single", "mirrored", "fsdp"], default="mirrored")
parser.add_argument("--devices", type=int, default=8, help="virtual devices where there is no accelerator")
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()
td.use_cpu_devices(args.devices)
td.initialize()

import jax
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits
from tqdm import tqdm

strategy = {"single": td.SingleDevice, "mirrored": td.Mirrored, "fsdp": td.FSDP}[args.strategy]()


class CNN(nnx.Module):
    """Two convolutions and two dense layers."""

    def __init__(self, rngs):
        self.conv1 = nnx.Conv(1, 32, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(32, 64, (3, 3), rngs=rngs)
        self.dense1 = nnx.Linear(8 * 8 * 64, 64, rngs=rngs)
        self.dense2 = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.conv2(nnx.relu(self.conv1(x))))
        return self.dense2(nnx.relu(self.dense1(x.reshape(len(x), -1))))


optimizer = optax.adam(1e-3)
graph = nnx.graphdef(nnx.eval_shape(lambda: CNN(nnx.Rngs(0))))


def make_state():
    params = nnx.state(CNN(nnx.Rngs(0)), nnx.Param)
    return params, optimizer.init(params)


def loss_fn(params, batch):
    logits = nnx.merge(graph, params)(batch["x"])
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])
    return losses.mean(), {"accuracy": (logits.argmax(-1) == batch["y"]).astype(np.float32).mean()}


@strategy.jit
def train_step(state, batch):
    params, opt_state = state
    (loss, _), grads = strategy.value_and_grad(loss_fn)(params, batch)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return (optax.apply_updates(params, updates), opt_state), loss


images, labels = load_digits(return_X_y=True)
x, y = (images / 16).reshape(-1, 8, 8, 1).astype(np.float32), labels.astype(np.int32)
batches = [{"x": x[i : i + 64], "y": y[i : i + 64]} for i in range(0, 1437, 64)]
state = strategy.init(make_state)
for epoch in range(args.epochs):
    losses = []
    for batch in (bar := tqdm(strategy.prefetch(batches), f"epoch {epoch + 1}", total=len(batches))):
        state, loss = train_step(state, batch)
        losses.append(loss)
    print(f"epoch {epoch + 1} loss {np.mean(jax.device_get(losses)):.5f}")
_, metrics = jax.jit(loss_fn)(state[0], {"x": x[1437:], "y": y[1437:]})
print(f"{args.strategy} on {strategy.num_replicas} device(s): test accuracy {float(metrics['accuracy']):.4f}")
