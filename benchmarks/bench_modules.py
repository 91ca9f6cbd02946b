"""How many of the project's modules, calls and changes of module a warm training step passes, in each way to train.

`python bench_modules.py [--devices 4] [--names]` prints JSON. The figures are exact: they do not depend on the machine.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tfdist_jax
import tfdist_jax.compat.tensorflow as tf

keras = tf.keras
ROOTS = tuple(str(path.resolve()) for path in {Path(tfdist_jax.__file__).parent, Path(tf.__file__).parents[1]})
ROWS, FEATURES, CLASSES = 16, 8, 4


def passed(step: Callable[[], Any]) -> dict[str, Any]:
    """Return which modules of the project one call of `step` passes, with their calls, and how often the module changes."""
    calls: Counter[str] = Counter()
    changes, last = 0, ""

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal changes, last
        path = frame.f_code.co_filename
        if event == "call" and str(Path(path).resolve()).startswith(ROOTS):
            calls[path] += 1
            changes += path != last
            last = path

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        step()
    finally:
        sys.setprofile(before)
    names = sorted({str(Path(path).resolve()) for path in calls})
    return {"modules": len(names), "calls": calls.total(), "changes": changes, "names": names}


def make_parts() -> tuple[Any, Any, Any, tuple[np.ndarray, np.ndarray]]:
    """Return a strategy over all devices, and a model, a dataset and a batch under it."""
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(16), keras.layers.Dense(CLASSES)])
        model.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random = np.random.default_rng(0)
    batch = random.normal(size=(ROWS, FEATURES)).astype("f4"), random.integers(0, CLASSES, ROWS)
    dataset = tf.data.Dataset.from_tensor_slices(batch).repeat().batch(ROWS)
    return strategy, model, dataset, batch


def loop_step(*, compiled: bool) -> Callable[[], Any]:
    """Return a warm step of a custom loop, its batch included."""
    strategy, model, dataset, _ = make_parts()
    model.optimizer.build(model.trainable_variables)

    def replica(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), from_logits=True)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=ROWS)
        weights = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    run = lambda x, y: strategy.run(replica, args=(x, y))
    run = tf.function(run) if compiled else run
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    step = lambda: run(*next(iterator))
    for _ in range(3):
        step()
    return step


def fit_step() -> Callable[[], Any]:
    """Return a warm step of `fit`, its batch included."""
    _, model, dataset, _ = make_parts()
    steps: list[Callable[[], Any]] = []

    class Keep(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            model: Any = self.model
            function = model.train_function

            def train(state: Any, iterator: Any) -> Any:
                steps[:] = [lambda: function(state, iterator)]
                return function(state, iterator)

            model.train_function = train

    model.fit(dataset, steps_per_epoch=3, epochs=1, verbose=0, callbacks=[Keep()])
    return steps[0]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--names", action="store_true", help="name the modules")
    args = parser.parse_args()
    tfdist_jax.use_cpu_devices(args.devices)
    steps = {"loop": loop_step(compiled=False), "tf.function loop": loop_step(compiled=True), "fit": fit_step()}
    figures = {name: passed(step) for name, step in steps.items()}
    if not args.names:
        for figure in figures.values():
            del figure["names"]
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
