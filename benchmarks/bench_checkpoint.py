"""How long a training stands still when it saves: in the background, synchronously, and with Orbax's manager; as JSON.

`python benchmarks/bench_checkpoint.py [--devices 4] [--rounds 9] [--strategy fsdp] [--out benchmarks/results/checkpoint.json]`
`tfdist-jax launch --workers 2 benchmarks/bench_checkpoint.py --folder /tmp/saved`

In each round every contender takes a step that saves and then steps that do not, in turn, so that a change of the
machine's speed meets all of them. Each step is waited for. What a background save costs the steps after it counts too:
`round_ms_more` is what the whole round takes more than one without a save.
"""

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _report import describe_machine, emit, parser

SIZES = (784, 1024, 1024, 10)
ROWS = 256


def make_training(strategy):
    """A multilayer perceptron with Adam: its state, and `step(state, batch)`."""
    import jax
    import jax.numpy as jnp
    import optax

    optimizer = optax.adam(1e-3)

    def make_state():
        keys = jax.random.split(jax.random.key(0), len(SIZES))
        shapes = zip(keys, SIZES[:-1], SIZES[1:], strict=False)
        params = [(jax.random.normal(key, (i, o)) / i**0.5, jnp.zeros(o)) for key, i, o in shapes]
        return params, optimizer.init(params)

    def loss_fn(params, batch):
        x, y = batch
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        return optax.softmax_cross_entropy_with_integer_labels(x @ params[-1][0] + params[-1][1], y).mean()

    @strategy.jit
    def step(state, batch):
        loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(state[0], batch)
        updates, opt_state = optimizer.update(grads, state[1], state[0])
        return (optax.apply_updates(state[0], updates), opt_state), loss

    return strategy.init(make_state), step


def contenders(folder):
    """Return `save(step, state)` and `wait()` by name."""
    import orbax.checkpoint as ocp

    import tfdist_jax as td

    ours = {
        "background": td.Checkpointer(folder / "background", max_to_keep=2),
        "synchronous": td.Checkpointer(folder / "synchronous", max_to_keep=2, asynchronous=False),
    }
    orbax = ocp.CheckpointManager(folder / "orbax", options=ocp.CheckpointManagerOptions(max_to_keep=2, create=True))
    return {
        "none": (lambda step, state: None, lambda: None),
        **{name: (checkpointer.save, checkpointer.wait) for name, checkpointer in ours.items()},
        "orbax": (
            lambda step, state: orbax.save(step, args=ocp.args.StandardSave(state)),
            orbax.wait_until_finished,
        ),
    }


def measure(args, folder):
    """Return seconds by contender: of saving, of the step that saves, of those that do not, and of the whole round."""
    import jax
    import numpy as np

    import tfdist_jax as td

    strategy = {"mirrored": td.Mirrored, "fsdp": td.FSDP}[args.strategy]()
    state, step = make_training(strategy)
    random = np.random.default_rng(0)
    share = ROWS // jax.process_count()
    batch = strategy.put((random.normal(size=(share, SIZES[0])).astype("f4"), random.integers(0, 10, share)))

    def take():
        nonlocal state
        state, loss = step(state, batch)
        jax.block_until_ready((state, loss))

    for _ in range(3):
        take()
    savers = contenders(folder)
    times = {name: {"save": [], "saving_step": [], "other_steps": [], "round": []} for name in savers}
    for i in range(args.rounds + 1):  # The first one warms up.
        for name, (save, wait) in savers.items():
            moments = [time.perf_counter()]
            save(i, state)
            saved = time.perf_counter()
            for _ in range(args.steps + 1):
                take()
                moments.append(time.perf_counter())
            wait()
            if i:
                took = np.diff(moments)
                times[name]["save"].append(saved - moments[0])
                times[name]["saving_step"].append(took[0])
                times[name]["other_steps"].append(statistics.median(took[1:]))
                times[name]["round"].append(moments[-1] - moments[0])
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    return times, size


def quartiles(values):
    """Return median and quartiles in milliseconds."""
    low, middle, high = statistics.quantiles([1000 * float(value) for value in values], n=4)
    return {"median": middle, "quartiles": [low, high]}


def main():
    """Measure and print; with several processes, the first one does."""
    options = parser(__doc__, rounds=9)
    options.add_argument("--strategy", choices=("mirrored", "fsdp"), default="mirrored")
    options.add_argument("--steps", type=int, default=20, help="steps of a round that do not save")
    options.add_argument("--folder", type=Path, help="where to save, if there are several processes")
    args = options.parse_args()

    import tfdist_jax as td

    if td.initialize() is None:
        td.use_cpu_devices(args.devices)
    import jax

    if jax.process_count() > 1 and args.folder is None:
        options.error("several processes need the same --folder")
    folder = args.folder or Path(tempfile.mkdtemp())
    times, size = measure(args, folder)
    if jax.process_index():
        return
    shutil.rmtree(folder)
    without = times["none"]
    more = lambda name, what: [a - b for a, b in zip(times[name][what], without[what], strict=True)]
    emit(
        {
            "strategy": args.strategy,
            "processes": jax.process_count(),
            "devices": jax.device_count(),
            "state_megabytes": round(size / 1e6, 1),
            "steps_per_round": args.steps + 1,
            "rounds": args.rounds,
            **describe_machine("jax"),
            "ms_per_step_without_saving": quartiles(without["other_steps"]),
            "save_ms": {name: quartiles(times[name]["save"]) for name in times if name != "none"},
            "stall_ms": {name: quartiles(more(name, "saving_step")) for name in times if name != "none"},
            "round_ms_more": {name: quartiles(more(name, "round")) for name in times if name != "none"},
        },
        args.out,
    )


if __name__ == "__main__":
    main()
