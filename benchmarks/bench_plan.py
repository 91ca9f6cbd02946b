"""What `td.plan` predicts of meshes, and what their programs then are: memory as XLA says, and time on virtual devices; as JSON.

`python benchmarks/bench_plan.py [--devices 8] [--rounds 7] [--timed 24] [--out benchmarks/results/plan.json]`

The plan sees a loss and shapes alone; each of its meshes is then compiled as a whole training step with Adam, and some are run. Orders are
compared by Spearman's rank correlation.
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _report import describe_machine, emit, parser

import tfdist_jax as td

WIDTH, HIDDEN, LAYERS, HEADS, VOCABULARY, TOKENS, ROWS = 64, 256, 8, 8, 512, 64, 32


def make_training():
    """Return a transformer's loss, how its state is made, what an update does, and rules for its tensors."""
    import jax
    import jax.numpy as jnp
    import optax

    normal = lambda key, *shape: 0.02 * jax.random.normal(jax.random.key(key), shape)
    norm = lambda x: x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)

    def block(params, x, batch):
        query, key, value = jnp.moveaxis(jnp.einsum("btd,dchk->btchk", norm(x), params["qkv"]), 2, 0)
        x += jnp.einsum("bthk,hkd->btd", td.attend(query, key, value, is_causal=True), params["out"])
        return x + jax.nn.gelu(norm(x) @ params["up"]) @ params["down"]

    def last(params, x, batch):
        return optax.softmax_cross_entropy_with_integer_labels(norm(x) @ params["head"], batch["y"]).mean()

    def make_params():
        blocks = {
            "qkv": normal(0, LAYERS, WIDTH, 3, HEADS, WIDTH // HEADS),
            "out": normal(1, LAYERS, HEADS, WIDTH // HEADS, WIDTH),
            "up": normal(2, LAYERS, WIDTH, HIDDEN),
            "down": normal(3, LAYERS, HIDDEN, WIDTH),
        }
        return {"embed": normal(4, VOCABULARY, WIDTH), "blocks": blocks, "head": normal(5, WIDTH, VOCABULARY)}

    optimizer = optax.adam(1e-3)
    loss = td.Staged(lambda params, batch: params["embed"][batch["x"]], td.layer(block), last)
    rules = {
        "qkv": jax.P(None, None, None, "tensor"),
        "out": jax.P(None, "tensor"),
        "up": jax.P(None, None, "tensor"),
        "down": jax.P(None, "tensor"),
        "head": jax.P(None, "tensor"),
    }

    def make_state():
        params = make_params()
        return params, optimizer.init(params)

    return loss, make_state, optimizer, rules


class Training:
    """A training over one mesh of a plan."""

    def __init__(self, mesh, loss, make_state, optimizer) -> None:
        """Compile the step."""
        import numpy as np
        import optax

        accumulate = 1 if mesh.schedule else mesh.microbatches
        strategy = self._strategy = mesh.strategy

        def step(state, batch):
            params, opt_state = state
            compute = strategy.value_and_grad(loss, has_aux=False, accumulate=accumulate)
            value, grads = compute(params, batch)
            updates, opt_state = optimizer.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), value

        numbers = np.random.default_rng(0).integers(VOCABULARY, size=(2, ROWS, TOKENS), dtype=np.int32)
        self._batch = strategy.put({"x": numbers[0], "y": numbers[1]})
        self._step, self._program, self._make_state, self._state = step, strategy.jit(step), make_state, None

    def read_memory(self) -> int:
        """Return what XLA says that a device needs where a step reuses its state's memory, as on accelerators, in bytes."""
        import jax

        shapes = jax.eval_shape(self._make_state)
        layout = (self._strategy.shardings(shapes), None)
        step = jax.jit(self._step, donate_argnums=0, out_shardings=layout)
        return self._strategy.explain(step, shapes, self._batch).memory.total

    def run(self) -> float:
        """Return the seconds that a step takes."""
        import jax

        if self._state is None:
            self._state = self._strategy.init(self._make_state)
        started = time.perf_counter()
        self._state, value = self._program(self._state, self._batch)
        jax.block_until_ready((self._state, value))
        return time.perf_counter() - started


def main() -> None:
    """Plan, compile, measure and print."""
    options = parser(__doc__, rounds=7)
    options.add_argument("--programs", type=int, default=20, help="how many programs the plan compiles")
    options.add_argument("--compiled", type=int, default=48, help="of how many meshes the whole step is compiled")
    options.add_argument("--timed", type=int, default=24, help="how many meshes are run")
    options.set_defaults(devices=8)
    args = options.parse_args()
    td.use_cpu_devices(args.devices)
    import jax

    loss, make_state, optimizer, rules = make_training()
    batch = {name: jax.ShapeDtypeStruct((ROWS, TOKENS), "int32") for name in "xy"}
    given = {"devices": args.devices, "hardware": "cpu", "has_aux": False, "rules": rules, "programs": args.programs}
    started = time.perf_counter()
    plan = td.plan(loss, jax.eval_shape(make_state), batch, **given)
    planned_s = time.perf_counter() - started
    make = lambda count: [
        (mesh, Training(mesh, loss, make_state, optimizer))
        for mesh in plan.meshes[:: max(1, len(plan.meshes) // count)]
    ]
    memory = [describe_memory(mesh, training) for mesh, training in make(args.compiled)]
    told = [abs(one["error"]) for one in memory if not one["was_compiled"]]
    timed = make(args.timed)
    seconds = measure([training for _, training in timed], args.rounds)
    times = [
        {"mesh": str(mesh), "predicted_ms": 1e3 * mesh.seconds, "measured_ms": 1e3 * each}
        for (mesh, _), each in zip(timed, seconds, strict=True)
    ]
    order = correlate_ranks([one["predicted_ms"] for one in times], [one["measured_ms"] for one in times])
    emit(
        {
            **describe_machine("jax"),
            "devices": args.devices,
            "planned_s": round(planned_s, 1),
            "programs": sum(mesh.is_compiled for mesh in plan.meshes),
            "predicted_only": {
                "meshes": len(told),
                "largest_error": max(told, default=None),
                "median_error": statistics.median(told) if told else None,
            },
            "rank_correlation": round(order, 3),
            "times": [
                {name: each if name == "mesh" else round(each, 2) for name, each in one.items()} for one in times
            ],
            "memory": memory,
        },
        args.out,
    )


def correlate_ranks(ones, others) -> float:
    """Return Spearman's rank correlation of two rows of different numbers."""
    import numpy as np

    first, second = (np.argsort(np.argsort(numbers)) for numbers in (ones, others))
    return float(np.corrcoef(first, second)[0, 1])


def describe_memory(mesh, training):
    """Return what was predicted of a mesh's memory, and what XLA says."""
    predicted, found = mesh.memory if mesh.predicted_memory is None else mesh.predicted_memory, training.read_memory()
    return {
        "mesh": str(mesh),
        "predicted_mib": round(predicted / 2**20, 3),
        "mib": round(found / 2**20, 3),
        "error": round(predicted / found - 1, 4),
        "was_compiled": mesh.predicted_memory is None,
    }


def measure(trainings, rounds) -> list[float]:
    """Return the median seconds of each, of interleaved rounds after one to compile."""
    times = [[] for _ in trainings]
    for number in range(rounds + 1):
        for training, found in list(zip(trainings, times, strict=True))[:: 1 if number % 2 else -1]:
            found.append(training.run())
    return [statistics.median(found[1:]) for found in times]


if __name__ == "__main__":
    main()
