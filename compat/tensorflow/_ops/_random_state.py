"""Where random numbers come from: streams of keys that programs read and move on."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax import _state
from tfdist_jax.compat.tensorflow._context import replica_context
from tfdist_jax.compat.tensorflow._ops._arguments import invalid

_IMPL = "threefry2x32"
_WORD = 0xFFFFFFFF
# TensorFlow's seed for operations that have a seed of their own while there is no global one.
_DEFAULT_SEED = 87654321


class KeyStream:
    """A cell with a key and a count of draws, `[key, key, count]` uint32.

    Compiled functions take it as an input and give it back moved on, so that every call draws new numbers. All
    replicas move it on equally, and each draws numbers of its own from it.
    """

    trainable = False
    per_replica = False

    def __init__(self, seed: int | None) -> None:
        """Start the stream of a seed; of a random one if None."""
        self.restart(seed)

    def restart(self, seed: int | None) -> None:
        """Go to the start of the stream of a seed."""
        number = int.from_bytes(os.urandom(8), "little") if seed is None else int(seed)
        self._words: Any = np.array([number >> 32 & _WORD, number & _WORD, 0], np.uint32)

    @property
    def stored(self) -> jax.Array:
        """The key and the count."""
        if isinstance(self._words, np.ndarray):
            # Not before the first draw: making an array starts JAX.
            with jax.ensure_compile_time_eval():
                self._words = jnp.asarray(self._words)
        return self._words

    @stored.setter
    def stored(self, words: Any) -> None:
        self._words = words

    def draw(self, seed: int | None = None) -> jax.Array:
        """Return the next key of this replica; of a substream if `seed` is given."""
        words = self._present()
        _state.write(self, words.at[2].add(1))
        key = jax.random.fold_in(jax.random.wrap_key_data(words[:2], impl=_IMPL), words[2])
        if seed is not None:
            key = jax.random.fold_in(key, int(seed) & _WORD)
        context = replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return key
        return jax.random.fold_in(key, context.replica_id_in_sync_group)

    def skip(self, delta: int) -> None:
        """Move on as if `delta` keys had been drawn."""
        _state.write(self, self._present().at[2].add(delta))

    def _present(self) -> jax.Array:
        words = _state.read(self)
        if _state.current_frame() is not None or isinstance(words, Tracer):
            return words
        # A strategy's program leaves the key on all its devices. What is drawn outside must not be bound to them.
        return jnp.asarray(np.asarray(words))


_process = KeyStream(None)
_default = KeyStream(_DEFAULT_SEED)
_is_seeded = False


def set_seed(seed: int) -> None:
    """Set the global seed: from here on the same draws give the same numbers.

    See https://www.tensorflow.org/api_docs/python/tf/random/set_seed. Difference: JAX's generators give other numbers
    than TensorFlow's for the same seed.
    """
    global _is_seeded
    _process.restart(seed)
    _is_seeded = True


def next_key(seed: int | None = None) -> jax.Array:
    """Return the key for the next draw of an operation with its own seed, or without."""
    stream = _default if seed is not None and not _is_seeded else _process
    return stream.draw(seed)


def stateless_key(seed: Any) -> jax.Array:
    """Return the key that two numbers name.

    Raises:
        InvalidArgumentError: If `seed` is not two numbers.
    """
    words = jnp.asarray(seed)
    if words.shape != (2,):
        raise invalid(f"seed must have shape [2], got {words.shape}.")
    return jax.random.wrap_key_data(words.astype(jnp.uint32), impl=_IMPL)
