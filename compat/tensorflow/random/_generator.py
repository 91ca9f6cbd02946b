"""`tf.random.Generator`: random numbers from a state of one's own."""

import enum
import os
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._internals import known_value
from tfdist_jax._stateful import _state
from tfdist_jax.compat.tensorflow._platform._context import current_strategy, replica_context
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._variables._variable_creators import note_creation
from tfdist_jax.compat.tensorflow.random import _distributions
from tfdist_jax.compat.tensorflow.random._philox import jax_key
from tfdist_jax.compat.tensorflow.random._random_state import PhiloxStream

_LONG = 2**64 - 1


class Algorithm(enum.Enum):
    """TensorFlow's choices; Philox is used for all of them."""

    PHILOX = 1
    THREEFRY = 2
    AUTO_SELECT = 3


@final
class Generator:
    """Random numbers from a state that moves on with each draw, also inside compiled functions; TensorFlow's numbers.

    Inside `strategy.run` every replica draws numbers of its own.
    See https://www.tensorflow.org/api_docs/python/tf/random/Generator. Differences: the algorithm is Philox whatever `alg`
    says; `state` is a tensor `[3]`, not a variable; `binomial` draws other numbers.

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> tf.random.Generator.from_seed(1).normal([2]).shape
        TensorShape([2])
    """

    def __init__(self, copy_from: "Generator | None" = None, state: Any = None, alg: Any = None) -> None:
        """Start with the state of another generator, or with a state; use the `from_` methods for anything else."""
        if (copy_from is None) == (state is None):
            raise ValueError("Give one of `copy_from` and `state`, or use tf.random.Generator.from_seed(seed).")
        _algorithm_number(alg)
        words = _checked(state if copy_from is None else copy_from.state)
        known = known_value(words)
        strategy = current_strategy()
        is_hashed = strategy is not None and not strategy.is_default
        self._stream = PhiloxStream(np.zeros(3, np.int64), is_hashed=is_hashed)
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
        return cls(state=_words_of_seed(seed), alg=alg)

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> "Generator":
        """Return a generator with a random state."""
        return cls(state=np.frombuffer(os.urandom(24), np.int64), alg=alg)

    @classmethod
    def from_state(cls, state: Any, alg: Any = None) -> "Generator":
        """Return a generator with a state that another one had."""
        return cls(state=state, alg=alg)

    @classmethod
    def from_key_counter(cls, key: Any, counter: Any, alg: Any = None) -> "Generator":
        """Return the generator with a key and a counter of two numbers."""
        return cls(state=_state_of(key, counter), alg=alg)

    @property
    def state(self) -> jax.Array:
        """The present state, `[3]` int64."""
        return _state.read(self._stream)

    @property
    def cell(self) -> PhiloxStream:
        """What holds the state."""
        return self._stream

    @property
    def key(self) -> jax.Array:
        """The part of the state that draws leave as it is."""
        return self.state[-1]

    @property
    def algorithm(self) -> int:
        """TensorFlow's number for Philox."""
        return Algorithm.PHILOX.value

    def reset(self, state: Any) -> None:
        """Go on from a state."""
        _state.write(self._stream, _checked(state))

    def reset_from_seed(self, seed: Any) -> None:
        """Go to the start of the numbers that a seed names."""
        self.reset(_words_of_seed(seed))

    def reset_from_key_counter(self, key: Any, counter: Any) -> None:
        """Go on from a key and a counter of two numbers."""
        self.reset(_state_of(key, counter))

    def skip(self, delta: int) -> jax.Array:
        """Move on as if `delta` numbers had been drawn, and return the state before."""
        return convert_to_tensor(self._stream.move_on(delta))

    def normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = _dtypes.float32, name: str | None = None
    ) -> jax.Array:
        """Return numbers from a normal distribution."""
        return _distributions.normal(self._stream.draw_philox(shape), shape, mean, stddev, dtype)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = _dtypes.float32, name: str | None = None
    ) -> jax.Array:
        """Return numbers from a normal distribution cut two standard deviations from the mean."""
        return _distributions.truncated_normal(self._stream.draw_philox(shape), shape, mean, stddev, dtype)

    def uniform(
        self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = _dtypes.float32, name: str | None = None
    ) -> jax.Array:
        """Return numbers from `minval` up to, and without, `maxval`; all integers if both are None."""
        if minval is None and maxval is None:
            return self.uniform_full_int(shape, dtype)
        return _distributions.uniform(self._stream.draw_philox(shape), shape, minval, maxval, dtype)

    def uniform_full_int(self, shape: Any, dtype: Any = _dtypes.uint64, name: str | None = None) -> jax.Array:
        """Return integers from the whole range of their type."""
        return _distributions.full_int(self._stream.draw_philox(shape), shape, dtype)

    def binomial(
        self, shape: Any, counts: Any, probs: Any, dtype: Any = _dtypes.int32, name: str | None = None
    ) -> jax.Array:
        """Return numbers of successes in `counts` trials of probability `probs`."""
        return _distributions.binomial(jax_key(self._stream.draw_philox(shape)), shape, counts, probs, dtype)

    def make_seeds(self, count: int = 1) -> jax.Array:
        """Return seeds for stateless draws, `[2, count]` int64."""
        keys = self.uniform_full_int([count], _dtypes.int64)
        return jnp.stack([keys, jnp.zeros_like(keys)])

    def split(self, count: int = 1) -> list["Generator"]:
        """Return new generators, independent of this one and of each other."""
        keys = self.uniform_full_int([count], _dtypes.int64)
        zeros = jnp.zeros_like(keys, shape=(2,))
        return [Generator(state=jnp.concatenate([zeros, keys[i : i + 1]])) for i in range(count)]


def create_rng_state(seed: Any, alg: Any) -> jax.Array:
    """Return the state that a seed names, `[3]` int64, or `[2]` for Threefry."""
    size = 2 if _algorithm_number(alg) == Algorithm.THREEFRY.value else 3
    return convert_to_tensor(_words_of_seed(seed, size))


def _algorithm_number(alg: Any) -> int:
    if alg is None:
        return Algorithm.PHILOX.value
    name = alg.strip().upper().replace("-", "").replace("_", "") if isinstance(alg, str) else alg
    found = [one.value for one in Algorithm if name in (one, one.value, one.name.replace("_", ""))]
    if not found:
        raise ValueError(
            f"Argument `alg` got unsupported value {alg}. Supported values are philox, threefry and auto_select."
        )
    return found[0]


def _words_of_seed(seed: Any, size: int = 3) -> Any:
    """Return a seed as a state: of a Python number the lowest 64 bits come first, of a tensor the last number last."""
    if isinstance(seed, int):
        seed = [seed >> 64 * i & _LONG for i in range(size)]
    if isinstance(seed, list | tuple | np.ndarray):
        seed = np.array([int(number) & _LONG for number in np.ravel(seed)], np.uint64).view(np.int64)
    words = convert_to_tensor(seed).astype(np.int64).reshape(-1)[:size]
    return jnp.concatenate([jnp.zeros_like(words, shape=(size - words.shape[0],)), words])


def _state_of(key: Any, counter: Any) -> jax.Array:
    words = [convert_to_tensor(part).astype(np.int64) for part in (counter, key)]
    if words[0].shape != (2,) or words[1].shape != ():
        raise ValueError(f"The counter has shape [2] and the key [], got {[tuple(each.shape) for each in words]}.")
    return jnp.concatenate([words[0], words[1][None]])


def _checked(state: Any) -> jax.Array:
    words = convert_to_tensor(state)
    if words.shape != (3,):
        raise ValueError(f"The state of a generator has shape [3], got {tuple(words.shape)}.")
    return words.astype(np.int64)


_global: list[Generator] = []


def get_global_generator() -> Generator:
    """Return the process's generator, made with a random state at its first use."""
    if not _global:
        _global.append(Generator.from_non_deterministic_state())
    return _global[0]


def set_global_generator(generator: Generator) -> None:
    """Let another generator be the process's."""
    _global[:] = [generator]
