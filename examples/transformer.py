"""A language model of characters with Flax (nnx): on any mesh of devices its losses are those of one.

`python examples/transformer.py --mesh data=2,fsdp=2,tensor=2`, or `data=8`, `fsdp=8`, `data=2,sequence=4`, or `expert=4`
with `--experts 8`, or `data=2` with `--pipeline 1f1b --stages 4`; in two processes
`tfdist-jax launch --workers 2 examples/transformer.py --devices 4 --mesh data=2,fsdp=4`
"""

import argparse

import tfdist_jax as td

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--mesh", default="data=8", help="axes and their sizes, such as data=2,tensor=4")
parser.add_argument("--devices", type=int, default=8, help="virtual devices where there is no accelerator")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--experts", type=int, default=0, help="experts in each layer, in place of one dense part")
parser.add_argument(
    "--sequence", type=int, default=1, help="devices that share the tokens of a row, as `sequence` of the mesh"
)
parser.add_argument("--pipeline", metavar="SCHEDULE", help="1f1b, gpipe, interleaved or zb-h1")
parser.add_argument("--stages", type=int, default=2, help="devices over which a pipeline's layers lie")
parser.add_argument("--checkpoint", metavar="DIR", help="save there, and go on from there")
args = parser.parse_args()
td.use_cpu_devices(args.devices)
td.initialize()

import importlib
import math

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import PartitionSpec as P

VOCABULARY, WIDTH, HEADS, HIDDEN, LAYERS, LENGTH, ROWS = 128, 64, 8, 256, 4, 64, 16
# Axes that `--mesh` does not name have size 1, so that one set of rules does for all of them.
axes = {
    "data": 1,
    "stage": args.stages if args.pipeline else 1,
    "fsdp": 1,
    "expert": 1,
    "sequence": args.sequence,
    "tensor": 1,
}
axes |= {name: int(size) for name, size in (axis.split("=") for axis in args.mesh.split(","))}
# The first dimension in blocks is the layers', and the second that of experts, if there are any.
experts = ("expert",) if args.experts else ()
rules = {
    "qkv/kernel": P(None, None, None, "tensor"),
    "(out|head)/kernel": P(None, "tensor"),
    "up/kernel": P(None, *experts, None, "tensor"),
    "down/kernel": P(None, *experts, "tensor"),
}
devices = tuple(jax.devices()[: math.prod(axes.values())])
if args.pipeline:
    strategy = td.Pipeline(args.stages, 4, args.pipeline, axes=axes, rules=rules, devices=devices)
else:
    strategy = td.Sharded(axes, rules, devices=devices)
make_stacked = lambda make, count, rngs: nnx.vmap(make)(rngs.split(count))


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(WIDTH, HIDDEN, use_bias=False, rngs=rngs)
        self.down = nnx.Linear(HIDDEN, WIDTH, use_bias=False, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.gelu(self.up(x)))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm1, self.norm2 = nnx.RMSNorm(WIDTH, rngs=rngs), nnx.RMSNorm(WIDTH, rngs=rngs)
        self.qkv = nnx.LinearGeneral(WIDTH, (3, HEADS, WIDTH // HEADS), use_bias=False, rngs=rngs)
        self.out = nnx.LinearGeneral((HEADS, WIDTH // HEADS), WIDTH, axis=(-2, -1), use_bias=False, rngs=rngs)
        self.mlp = make_stacked(MLP, args.experts, rngs) if args.experts else MLP(rngs)
        self.router = nnx.Linear(WIDTH, args.experts, use_bias=False, rngs=rngs) if args.experts else None

    def __call__(self, x):
        """Return the next block's input, and a loss for each row that chooses experts unevenly, or with large logits."""
        query, key, value = jnp.moveaxis(self.qkv(self.norm1(x)), 2, 0)
        x += self.out(td.attend(query, key, value, is_causal=True))
        h = self.norm2(x)
        if self.router is None:
            return x + self.mlp(h), jnp.zeros(len(x))
        logits, (graph, experts) = self.router(h), nnx.split(self.mlp)
        apply = lambda expert, tokens: nnx.merge(graph, expert)(tokens)
        routed = td.run_experts(apply, experts, h, nnx.softmax(logits))
        return x + routed.outputs, 0.01 * routed.balance_loss + 0.001 * td.compute_router_z_loss(logits)


class Transformer(nnx.Module):
    def __init__(self, rngs):
        self.characters = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.places = nnx.Embed(LENGTH, WIDTH, rngs=rngs)
        self.blocks = make_stacked(Block, LAYERS, rngs)
        self.norm = nnx.RMSNorm(WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, VOCABULARY, use_bias=False, rngs=rngs)


graph = nnx.graphdef(nnx.eval_shape(lambda: Transformer(nnx.Rngs(0))))
block_graph = nnx.graphdef(nnx.eval_shape(lambda: Transformer(nnx.Rngs(0)).blocks))


def embed(params, batch):
    model, tokens = nnx.merge(graph, params), batch["x"]
    x = model.characters(tokens) + model.places(td.token_positions(tokens))
    return x, jnp.zeros(len(x))


def apply_block(block, state, batch):
    x, router_loss = state
    x, more = nnx.merge(block_graph, block)(x)
    return x, router_loss + more


def compute_logits(params, state, batch):
    model = nnx.merge(graph, params)
    return model.head(model.norm(state[0]))


def compute_loss(params, state, batch):
    losses = optax.softmax_cross_entropy_with_integer_labels(compute_logits(params, state, batch), batch["y"])
    return (losses + state[1][:, None]).mean()


optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.linear_schedule(0, 3e-3, 20)))
loss_fn = td.Staged(embed, td.layer(apply_block), compute_loss)


def make_state():
    params = nnx.state(Transformer(nnx.Rngs(0)), nnx.Param)
    return params, optimizer.init(params)


@strategy.jit
def train_step(state, batch):
    params, opt_state = state
    loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(params, batch)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return (optax.apply_updates(params, updates), opt_state), loss


predict = strategy.evaluate(td.Staged(embed, apply_block, compute_logits))

# The text is what Python's library says of itself.
modules = "argparse collections datetime decimal difflib functools inspect itertools json logging random statistics"
members = [value for name in modules.split() for _, value in sorted(vars(importlib.import_module(name)).items())]
words = " ".join(dict.fromkeys(str(value.__doc__) for value in members)).split()
characters = np.frombuffer(" ".join(words).encode("ascii", "replace"), np.uint8).astype(np.int32)
pieces = list(np.lib.stride_tricks.sliding_window_view(characters, LENGTH + 1)[::LENGTH])
pieces = grain.MapDataset.source(pieces).map(lambda piece: {"x": piece[:-1], "y": piece[1:]})
batches = strategy.prefetch(iter(pieces.shuffle(seed=0).repeat().batch(ROWS).to_iter_dataset()))

checkpointer = td.Checkpointer(args.checkpoint, max_to_keep=2) if args.checkpoint else None
if checkpointer and checkpointer.latest_step():
    restored = checkpointer.restore(jax.eval_shape(make_state), strategy=strategy, position=batches)
    done, state = restored.step, restored.state
else:
    done, state = 0, strategy.init(make_state)

for step in range(done + 1, args.steps + 1):
    state, loss = train_step(state, next(batches))
    if step % 5 == 0:
        print(f"step {step} loss {loss:.6g}", flush=True)
        if checkpointer:
            checkpointer.save(step, state, position=batches)
if checkpointer:
    checkpointer.close()

# As many rows as in training, so that every replica has some; all are the same.
random, said = np.random.default_rng(0), np.full((ROWS, LENGTH), ord("R"), np.int32)
for place in range(1, LENGTH):
    logits = strategy.fetch(predict(state[0], strategy.put({"x": said})))[0, place - 1]
    said[:, place] = (2 * logits + random.gumbel(size=VOCABULARY)).argmax()
print("".join(map(chr, said[0])))
