"""Keras random numbers in replicas and compiled functions: own masks for each replica, nothing frozen."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tfdist_jax import _state
from tfdist_jax.compat.tensorflow._context import replica_context
from tfdist_jax.compat.tensorflow._ops._random_state import drawing_from
from tfdist_jax.compat.tensorflow.keras._internals import SeedGenerator, backend, get_stateless_scope, jax_utils


def install() -> None:
    """Fold the replica's number into the seeds it draws; allow unseeded draws where state is captured or shapes asked."""
    backend.compute_output_spec = _drawing_nothing(backend.compute_output_spec)
    SeedGenerator.next = _per_replica(SeedGenerator.next)
    jax_utils.is_in_jax_tracing_scope = _outside_of_programs(jax_utils.is_in_jax_tracing_scope)


def _drawing_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Where only shapes are found out, `tf.random` may draw from anything, and must not move on."""

    @functools.wraps(original)
    def compute_output_spec(*args: Any, **kwargs: Any) -> Any:
        with drawing_from(np.zeros(3, np.uint32)):
            return original(*args, **kwargs)

    return compute_output_spec


def _per_replica(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def next_seed(self: Any, ordered: bool = True) -> Any:
        seed = original(self, ordered)
        context = replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return seed
        key = jax.random.wrap_key_data(seed, impl="threefry2x32")
        return jax.random.key_data(jax.random.fold_in(key, context.replica_id_in_sync_group))

    return next_seed


def _outside_of_programs(original: Callable[..., bool]) -> Callable[..., bool]:
    """Keras refuses unseeded draws while JAX traces, as they would be frozen; captured programs thread the state."""

    @functools.wraps(original)
    def is_in_jax_tracing_scope(x: Any = None) -> bool:
        # In a stateless scope, as in Keras's own steps, the advanced state would be lost.
        if x is None and _state.current_frame() is not None and get_stateless_scope() is None:
            return False
        return original(x)

    return is_in_jax_tracing_scope
