"""Random numbers: own masks for each replica, nothing frozen in compiled functions; and where the host's generators are."""

import functools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from tfdist_jax._coordinator import current_worker
from tfdist_jax._stateful import _state
from tfdist_jax.compat.tensorflow._platform._context import replica_context
from tfdist_jax.compat.tensorflow.distribute._cluster_coordinator import worker_to_draw_as
from tfdist_jax.compat.tensorflow.keras._change import Hook, instead
from tfdist_jax.compat.tensorflow.keras._internals import (
    SeedGenerator,
    backend,
    get_stateless_scope,
    jax_utils,
    rng_utils,
)
from tfdist_jax.compat.tensorflow.keras._real_tensorflow import TensorFlowIfLoaded
from tfdist_jax.compat.tensorflow.random._random_state import drawing_from, set_seed


def _drawing_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Where only shapes are found out, `tf.random` may draw from anything, and must not move on."""

    @functools.wraps(original)
    def compute_output_spec(*args: Any, **kwargs: Any) -> Any:
        with drawing_from(np.zeros(3, np.uint32)):
            return original(*args, **kwargs)

    return compute_output_spec


def _per_replica(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def next_seed(self: SeedGenerator, ordered: bool = True) -> Any:
        seed = original(self, ordered)
        context = replica_context()
        if self.state.storage.is_served and current_worker() is not None:
            number = worker_to_draw_as()
        elif context is None or context.num_replicas_in_sync == 1:
            number = None
        else:
            number = context.replica_id_in_sync_group
        if number is None:
            return seed
        key = jax.random.wrap_key_data(seed, impl="threefry2x32")
        return jax.random.key_data(jax.random.fold_in(key, number))

    return next_seed


def _outside_of_programs(original: Callable[..., bool]) -> Callable[..., bool]:
    """Keras refuses unseeded draws while JAX traces, as they would be frozen; captured programs thread the state."""

    @functools.wraps(original)
    def is_in_jax_tracing_scope(x: Any = None) -> bool:
        # In a stateless scope, as in Keras's own steps, the advanced state would be lost.
        if x is None and _state.current_scope() is not None and get_stateless_scope() is None:
            return False
        return original(x)

    return is_in_jax_tracing_scope


def host_state() -> dict[str, Any]:
    """Return where the host's random generators are, which shuffle data; JSON can hold it."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return {"numpy": [name, np.asarray(keys).tolist(), *rest], "python": random.getstate()}


def set_host_state(state: dict[str, Any]) -> None:
    """Put the host's random generators where `host_state` has found them."""
    np.random.set_state(tuple(state["numpy"]))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))


def _set_all_seeds(seed: int) -> None:
    set_seed(seed)
    real = TensorFlowIfLoaded()
    if real.available:
        real.random.set_seed(seed)


# What `set_random_seed` takes for TensorFlow.
_SEEDED = SimpleNamespace(available=True, random=SimpleNamespace(set_seed=_set_all_seeds))


CHANGES = (
    Hook(
        rng_utils,
        "tf",
        instead(_SEEDED),
        None,
        "`set_random_seed` seeds `tf.random` and the shuffling of datasets",
    ),
    Hook(
        backend,
        "compute_output_spec",
        _drawing_nothing,
        "fn",
        "`tf.random` does not move on where only shapes are asked",
    ),
    Hook(SeedGenerator, "next", _per_replica, "self ordered", "each replica draws its own dropout mask"),
    Hook(
        jax_utils,
        "is_in_jax_tracing_scope",
        _outside_of_programs,
        "x",
        "unseeded draws are fine where a program threads their state",
    ),
)
