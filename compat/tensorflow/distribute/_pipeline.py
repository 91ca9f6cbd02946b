"""`PipelineStrategy` in `tf.distribute.experimental`: a Keras model's layers on different devices, which TensorFlow's do not have."""

import functools
from collections.abc import Sequence
from typing import final

import jax

import tfdist_jax
from tfdist_jax._pipeline import PipelinePlan, Remat, Schedule
from tfdist_jax._stateful._storage import ShardedStorage, Storage
from tfdist_jax.compat.tensorflow._platform._devices import resolve_devices
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


@final
class PipelineStrategy(Strategy):
    """Pipeline parallelism for `fit`: groups of devices have some of a model's layers each, and compute one microbatch after another.

    Not one of TensorFlow's: a functional or sequential Keras model that is made in its scope trains with `fit` as on one device.
    Devices that are left are replicas, which split batches: 8 devices and 4 stages are 2 of them. `evaluate` and `predict` go over the
    stages, too. Each device keeps 1/`stages` of each large variable, optimizers' included, and has of its own stages' layers the whole
    while a step runs. A loop of one's own with `run` computes all layers on each device of a replica.

    Attributes:
        plan: The schedule, and what is kept for backward passes.
        split_before: The layers that begin the second stage and all further ones; None if they are found by what layers compute.
        stages: The names of the layers that each stage computes, of the model whose step was compiled last; None before any was.

    Example::

        strategy = tf.distribute.experimental.PipelineStrategy(4, microbatches=16)
        with strategy.scope():
            model = make_model()
            model.compile("adam", "sparse_categorical_crossentropy")
        model.fit(x, y, batch_size=256)
        print(strategy.plan.schedule, strategy.stages)
    """

    def __init__(
        self,
        stages: int,
        microbatches: int,
        schedule: str | Schedule = "1f1b",
        *,
        split_before: Sequence[str] | None = None,
        chunks: int | None = None,
        remat: Remat = "stage",
        devices: Sequence[str] | None = None,
        min_size: int = 1024,
    ) -> None:
        """Divide models over devices.

        Args:
            stages: Over how many groups of devices layers are divided, in order.
            microbatches: In how many parts the rows of a replica are computed. Devices wait less the more there are.
            schedule: When which device computes what: "1f1b", "gpipe", "interleaved", "zb-h1", or a `td.Schedule`.
            split_before: Names of the layers that begin the second stage and all further ones, also in models that are layers
                themselves: "block_4", or "backbone/block_4". If None, layers are divided so that the slowest stage computes the least.
            chunks: For "interleaved", how many stages each device has; 2 if None.
            remat: What is kept for backward passes, which compute the rest again: what a "stage" takes; or what each "layer" takes; or
                "none", all that they need.
            devices: Such as ["/gpu:0", "/gpu:1"]; all of JAX's default devices if None.
            min_size: Variables with fewer elements stay whole on every device.

        Raises:
            TypeError: If `split_before` is no list of names.
            ValueError: If the numbers do not fit together.
        """
        if not isinstance(min_size, int) or min_size < 1:
            raise ValueError(f"`min_size` must be a number of elements, 1 or more, got {min_size!r}.")
        chosen = tuple(jax.local_devices() if devices is None else resolve_devices(devices))
        native = tfdist_jax.Pipeline(
            stages, microbatches, schedule, chunks, remat, stack=None, devices=chosen, min_size=min_size
        )
        if len(chosen) % stages:
            raise ValueError(
                f"{len(chosen)} devices cannot be divided into {stages} stages of as many each. Take another number of `stages`, or name "
                "the `devices`."
            )
        self.plan: PipelinePlan = native.pipeline
        self.split_before = _check_names(split_before, native.pipeline.schedule.num_stages)
        self.stages: list[list[str]] | None = None
        super().__init__(native)

    @functools.cached_property
    def storage(self) -> Storage:
        """How variables are kept: a part on each device of a replica."""
        return ShardedStorage(self.native)


def _check_names(names: Sequence[str] | None, num_stages: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"`split_before` must be a list of names of layers, got {names!r}.")
    if len(names) != num_stages - 1:
        raise ValueError(
            f"`split_before` names the layers that begin all stages but the first: for {num_stages} stages it takes {num_stages - 1}, got "
            f"{list(names)}."
        )
    return tuple(names)
