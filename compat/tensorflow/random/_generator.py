"""`tf.random.Generator`: random numbers from a state of one's own."""

import enum
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._internals import known_value
from tfdist_jax._stateful import _state
from tfdist_jax.compat.tensorflow._platform._context import replica_context
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._variables._variable_creators import note_creation
from tfdist_jax.compat.tensorflow.random import _distributions
from tfdist_jax.compat.tensorflow.random._random_state import KeyStream


class Algorithm(enum.Enum):
    """TensorFlow's choices; JAX's Threefry is used for all of them."""

    PHILOX = 1
    THREEFRY = 2
    AUTO_SELECT = 3


@final
class Generator:
    """SeedLog random numbers from a state that moves on with each draw, also inside compiled functions.

    Inside `strategy.run` every replica draws numbers of its own.
    See https://www.tensorflow.org/api_docs/python/tf/random/Generator. Differences: the numbers are those of JAX's
    Threefry whatever `alg` says; `state` is a tensor `[3]`, a key and a count, not a variable.

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> tf.random.Generator.from_seed(1).normal([2]).shape
        TensorShape([2])
    """

    def __init__(self, copy_from: "Generator | None" = None, state: Any = None, alg: Any = None) -> None:
        """Start with the state of another generator, or with a state; use the `from_` methods for anything else."""
        if (copy_from is None) == (state is None):
            raise ValueError("Give one of `copy_from` and `state`, or use tf.random.Generator.from_seed(seed).")
        self._stream = KeyStream(0)
        words = _checked(state if copy_from is None else copy_from.state)
        known = known_value(words)
        if known is None or replica_context() is not None:
            # Each run of the program starts the generator again.
            _state.write(self._stream, words)
        else:
            # Made in a function that is being traced, it goes on to live outside, as variables do.
            note_creation(self)
            self._stream.stored = known

    @classmethod
    def from_seed(cls, seed: Any, alg: Any = None) -> "Generator":
        """Return the generator that a number names."""
        return cls(state=_words_of(KeyStream(int(np.asarray(seed)))))

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> "Generator":
        """Return a generator with a random state."""
        return cls(state=_words_of(KeyStream(None)))

    @classmethod
    def from_state(cls, state: Any, alg: Any = None) -> "Generator":
        """Return a generator with a state that another one had."""
        return cls(state=state)

    @property
    def state(self) -> jax.Array:
        """The present state, `[3]` int64."""
        return _state.read(self._stream).astype(jnp.int64)

    @property
    def cell(self) -> KeyStream:
        """What holds the state."""
        return self._stream

    @property
    def key(self) -> jax.Array:
        """The part of the state that draws leave as it is."""
        return self.state[:2]

    @property
    def algorithm(self) -> int:
        """TensorFlow's number for Threefry."""
        return Algorithm.THREEFRY.value

    def reset(self, state: Any) -> None:
        """Go on from a state."""
        _state.write(self._stream, _checked(state))

    def reset_from_seed(self, seed: Any) -> None:
        """Go to the start of the numbers that a seed names."""
        self.reset(_words_of(KeyStream(int(np.asarray(seed)))))

    def skip(self, delta: int) -> None:
        """Move on as if `delta` draws had been made."""
        self._stream.skip(delta)

    def normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = _dtypes.float32, name: str | None = None
    ) -> jax.Array:
        """Return numbers from a normal distribution."""
        return _distributions.normal(self._stream.draw(), shape, mean, stddev, dtype)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = _dtypes.float32, name: str | None = None
    ) -> jax.Array:
        """Return numbers from a normal distribution cut two standard deviations from the mean."""
        return _distributions.truncated_normal(self._stream.draw(), shape, mean, stddev, dtype)

    def uniform(
        self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = _dtypes.float32, name: str | None = None
    ) -> jax.Array:
        """Return numbers from `minval` up to, and without, `maxval`."""
        return _distributions.uniform(self._stream.draw(), shape, minval, maxval, dtype)

    def uniform_full_int(self, shape: Any, dtype: Any = _dtypes.uint64, name: str | None = None) -> jax.Array:
        """Return integers from the whole range of their type."""
        return _distributions.full_int(self._stream.draw(), shape, dtype)

    def binomial(
        self, shape: Any, counts: Any, probs: Any, dtype: Any = _dtypes.int32, name: str | None = None
    ) -> jax.Array:
        """Return numbers of successes in `counts` trials of probability `probs`."""
        return _distributions.binomial(self._stream.draw(), shape, counts, probs, dtype)

    def make_seeds(self, count: int = 1) -> jax.Array:
        """Return seeds for stateless draws, `[2, count]` int64."""
        return _distributions.full_int(self._stream.draw(), [2, count], _dtypes.int64)

    def split(self, count: int = 1) -> list["Generator"]:
        """Return new generators, independent of this one and of each other."""
        words = jax.random.bits(self._stream.draw(), (count, 2), np.uint32)
        zero = jnp.zeros((1,), words.dtype)
        return [Generator(state=jnp.concatenate([row, zero])) for row in words]


def create_rng_state(seed: Any, alg: Any) -> jax.Array:
    """Return the state of the generator that a number names."""
    return Generator.from_seed(seed, alg).state


def _checked(state: Any) -> jax.Array:
    words = convert_to_tensor(state)
    if words.shape != (3,):
        raise ValueError(f"The state of a generator has shape [3], got {tuple(words.shape)}.")
    return words.astype(jnp.uint32)


def _words_of(stream: KeyStream) -> jax.Array:
    return stream.stored


_global: list[Generator] = []


def get_global_generator() -> Generator:
    """Return the process's generator, made with a random state at its first use."""
    if not _global:
        _global.append(Generator.from_non_deterministic_state())
    return _global[0]


def set_global_generator(generator: Generator) -> None:
    """Let another generator be the process's."""
    _global[:] = [generator]
