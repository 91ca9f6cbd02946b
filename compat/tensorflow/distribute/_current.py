"""`tf.distribute.get_strategy` and its like: what the running code belongs to."""

import functools
from typing import Any

from tfdist_jax.compat.tensorflow._platform._context import current_strategy, replica_context, set_current_strategy
from tfdist_jax.compat.tensorflow.distribute._execution_contexts import OnlyReplicaContext
from tfdist_jax.compat.tensorflow.distribute._strategy import DefaultStrategy, Strategy


@functools.cache
def _default_strategy() -> DefaultStrategy:
    return DefaultStrategy()


def get_strategy() -> Strategy:
    """Return the strategy in whose scope or `run` the code is, or the default one."""
    return current_strategy() or _default_strategy()


def has_strategy() -> bool:
    """Tell whether the code is in the scope or `run` of a strategy that is not the default one."""
    strategy = current_strategy()
    return strategy is not None and not isinstance(strategy, DefaultStrategy)


def in_cross_replica_context() -> bool:
    """Tell whether the code is in a strategy's scope, outside of its replicas."""
    return current_strategy() is not None and replica_context() is None


def get_replica_context() -> Any:
    """Return the replica the code runs on; None in cross-replica context."""
    if in_cross_replica_context():
        return None
    return replica_context() or _only_replica()


@functools.cache
def _only_replica() -> OnlyReplicaContext:
    return OnlyReplicaContext(_default_strategy())


def experimental_set_strategy(strategy: Strategy | None) -> None:
    """Make `strategy` the current one for the rest of the program, as if everything were in its scope.

    Raises:
        RuntimeError: In the scope or `run` of a strategy.
    """
    set_current_strategy(strategy)
