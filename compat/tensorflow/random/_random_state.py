"""Where random numbers come from: streams of keys that programs read and move on."""

import contextlib
import functools
import math
import os
import weakref
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from tfdist_jax._stateful import _state
from tfdist_jax._stateful._storage import PLAIN
from tfdist_jax._thread_state import having
from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_ints
from tfdist_jax.compat.tensorflow._platform._context import replica_context
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tracing
from tfdist_jax.compat.tensorflow.random import _philox
from tfdist_jax.compat.tensorflow.random._philox import Philox

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
    storage = PLAIN

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
                self._words = convert_to_tensor(self._words)
        return self._words

    @stored.setter
    def stored(self, words: Any) -> None:
        self._words = words

    def draw(self, seed: int | None = None) -> jax.Array:
        """Return the next key of this replica; of a substream if `seed` is given."""
        words = self.move_on(1)
        key = _key(words, None if seed is None else int(seed) & _WORD)
        context = replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return key
        return jax.random.fold_in(key, context.replica_id_in_sync_group)

    def skip(self, delta: int) -> None:
        """Move on as if `delta` keys had been drawn."""
        self.move_on(delta)

    def move_on(self, delta: int) -> Any:
        """Return the words before they are moved on."""
        given = _given.get()
        if given is not None:
            return self._of_given(given.next_words())
        if _state.current_scope() is not None:
            words = _state.read(self)
            _state.write(self, self._moved(words, delta))
            return words
        on_host = functools.partial(self.move_on_host, delta)
        # Inside a transformation that knows nothing of cells, such as the step of a Keras model without a strategy,
        # each run of the program asks the host.
        shape = jax.ShapeDtypeStruct(self._words.shape, self._words.dtype)
        return io_callback(on_host, shape) if is_tracing() else on_host()

    def move_on_host(self, delta: int) -> np.ndarray:
        """Return the words before they are moved on, whatever is being traced."""
        while True:
            with _state.CELLS:
                held = self._words
                if isinstance(held, np.ndarray):
                    self._words = self._moved_on_host(held, delta)
                    return held
            # A strategy's program leaves the words on all its devices; what is drawn outside must not be bound to them.
            words = np.asarray(held)  # It may have to be computed, and that program need the cells.
            with _state.CELLS:
                if self._words is held:
                    self._words = self._moved_on_host(words, delta)
                    return words

    def _of_given(self, words: jax.Array) -> jax.Array:
        return words

    def _moved(self, words: jax.Array, delta: int) -> jax.Array:
        return words.at[2].add(delta)

    def _moved_on_host(self, words: np.ndarray, delta: int) -> np.ndarray:
        new = words.copy()
        new[2:] += np.uint32(delta)
        return new


@final
class _Given:
    """Words that a program got as an argument, and how many draws it has made from them."""

    def __init__(self, words: Any) -> None:
        self._words = words
        self._draws = 0

    def next_words(self) -> Any:
        self._draws += 1
        # Of the words that one step is given the last is the step's number: mix it into the key, then count draws.
        key = jax.random.key_data(_key(jnp.asarray(self._words), None))
        return jnp.concatenate([key, jnp.full((1,), self._draws, jnp.uint32)])


_given: ContextVar[_Given | None] = ContextVar("given", default=None)


def next_words() -> np.ndarray:
    """Return the words from which one run of a program may draw, `[3]` uint32: an argument for `drawing_from`."""
    return np.asarray(_process.move_on(1))


def draw_for_iteration(number: Any) -> contextlib.AbstractContextManager[None]:
    """Draw other numbers in each iteration of a loop that is traced once, inside of `drawing_from`."""
    given = _given.get()
    if given is None:
        return contextlib.nullcontext()
    return drawing_from(given.next_words().at[2].set(jnp.asarray(number, jnp.uint32)))


def drawing_from(words: Any) -> AbstractContextManager[None]:
    """Draw from words that a program gets as an argument, where the streams themselves are not part of it.

    Args:
        words: What `next_words` has returned for this run; traced or not. Zeros where only shapes matter.
    """
    return having(_given, _Given(words))


@functools.partial(jax.jit, static_argnums=1)
def _key(words: Any, seed: int | None) -> jax.Array:
    key = jax.random.fold_in(jax.random.wrap_key_data(words[:2], impl=_IMPL), words[2])
    return key if seed is None else jax.random.fold_in(key, seed)


@final
class FunctionStreams:
    """The streams of one compiled function: it draws the same numbers as any other that does the same draws.

    Draws without a seed share a stream, which goes on from call to call; a draw with a seed has one of its own.
    """

    def __init__(self) -> None:
        """Start at the global seed, or anywhere if there is none."""
        self._unseeded: KeyStream | None = None

    def key(self, seed: int | None) -> jax.Array:
        """Return the key for the next draw."""
        if seed is not None:
            return _stream_of_function(seed).draw()
        if self._unseeded is None:
            self._unseeded = _stream_of_function(None)
        return self._unseeded.draw()


# With the seeds of their draws: `set_seed` lets them start again.
_of_functions: weakref.WeakKeyDictionary[KeyStream, int | None] = weakref.WeakKeyDictionary()


def _stream_of_function(seed: int | None) -> KeyStream:
    stream = KeyStream(_start(seed))
    _of_functions[stream] = seed
    return stream


def _start(seed: int | None) -> int | None:
    """Return the number of the stream of draws with a seed of their own, or without, under the global seed."""
    if seed is None:
        return _global_seed
    base = _DEFAULT_SEED if _global_seed is None else _global_seed
    return (int(base) & _WORD) << 32 | int(seed) & _WORD


_function_streams: ContextVar[FunctionStreams | None] = ContextVar("function_streams", default=None)


def drawing_for_function() -> AbstractContextManager[None]:
    """Give the function that is traced inside streams of its own."""
    return having(_function_streams, FunctionStreams())


_process = KeyStream(None)
_default = KeyStream(_DEFAULT_SEED)
_global_seed: int | None = None


def set_seed(seed: int | None) -> None:
    """Set the global seed: from here on the same draws give the same numbers; None lets them differ again.

    See https://www.tensorflow.org/api_docs/python/tf/random/set_seed. Difference: JAX's generators give other numbers
    than TensorFlow's for the same seed.
    """
    global _global_seed
    _process.restart(seed)
    _global_seed = None if seed is None else int(seed)
    for stream, own in list(_of_functions.items()):
        stream.restart(_start(own))


def host_seed(seed: int | None) -> list[int]:
    """Return numbers that seed a generator on the host, by the rules of draws with a seed of their own, or without."""
    if seed is not None:
        return [_DEFAULT_SEED if _global_seed is None else _global_seed & _WORD, int(seed) & _WORD]
    return [int(word) for word in _process.move_on_host(1)]


def global_seed() -> int | None:
    """Return the global seed; None if there is none."""
    return _global_seed


def global_words() -> list[int] | None:
    """Return the global seed as two words, which functions start from; None if there is none."""
    return None if _global_seed is None else [_global_seed >> 32 & _WORD, _global_seed & _WORD]


def is_of_function(stream: KeyStream) -> bool:
    """Whether a stream belongs to a function, rather than to the process or a `tf.random.Generator`."""
    return stream in _of_functions


def words_for_element(stream: KeyStream, words: jax.Array) -> jax.Array:
    """Return the words at which a dataset's function starts its stream for one element.

    Args:
        stream: A stream of the function. One with a seed begins there, others where the iteration does.
        words: Two of the iteration, two of the element; `[4]` uint32.
    """
    seeded = _of_functions[stream] is not None
    key = jax.random.wrap_key_data(jnp.asarray(stream.stored)[:2] if seeded else words[:2], impl=_IMPL)
    for word in (words[2], words[3]):
        key = jax.random.fold_in(key, word)
    return jnp.concatenate([jax.random.key_data(key), jnp.zeros(1, jnp.uint32)])


def get_streams() -> list[list[int]]:
    """Return where the process's streams are."""
    return [np.asarray(stream.stored).tolist() for stream in (_process, _default)]


def set_streams(words: list[list[int]]) -> None:
    """Put the streams where `get_streams` has found them."""
    for stream, own in zip((_process, _default), words, strict=True):
        stream.stored = np.asarray(own, np.uint32)


def next_key(seed: int | None = None) -> jax.Array:
    """Return the key for the next draw of an operation with its own seed, or without."""
    streams = _function_streams.get()
    if streams is not None and _given.get() is None:
        return streams.key(seed)
    stream = _default if seed is not None and _global_seed is None else _process
    return stream.draw(seed)


def stateless_key(seed: Any) -> jax.Array:
    """Return JAX's key that two numbers name.

    Raises:
        InvalidArgumentError: If `seed` is not two numbers.
    """
    return jax.random.wrap_key_data(_checked_seed(seed).astype(jnp.uint32), impl=_IMPL)


def stateless_philox(seed: Any) -> Philox:
    """Return TensorFlow's generator that two numbers name.

    Raises:
        InvalidArgumentError: If `seed` is not two numbers.
    """
    return _philox.of_seed(_checked_seed(seed))


def _checked_seed(seed: Any) -> jax.Array:
    words = convert_to_tensor(seed)
    if tuple(words.shape) != (2,):
        raise invalid(f"seed must have shape [2], got {tuple(words.shape)}.")
    if not as_dtype(words.dtype).is_integer:
        raise invalid(f"seed must be two integers, got {words.dtype.name}.")
    return words


@final
class PhiloxStream(KeyStream):
    """A cell with what TensorFlow's generators hold, `[counter, counter, key]` int64."""

    def __init__(self, words: np.ndarray, *, is_hashed: bool) -> None:
        """Start with words.

        Args:
            words: `[3]` int64.
            is_hashed: Whether a single replica, too, draws numbers of its own, as under the strategy that it was made in.
        """
        self._words: Any = words
        self._is_hashed = is_hashed

    def draw_philox(self, shape: Any) -> Philox:
        """Return this replica's generator for as many numbers as a shape has, and move on."""
        words = self.move_on(math.prod(static_ints(shape, "shape")))
        generator = _philox.of_state(convert_to_tensor(words))
        context = replica_context()
        if context is None or (context.num_replicas_in_sync == 1 and not self._is_hashed):
            return generator
        return _philox.of_replica(generator, context.replica_id_in_sync_group)

    def _of_given(self, words: jax.Array) -> jax.Array:
        low, high, count = (words[i].astype(np.uint64) for i in range(3))
        return jax.lax.bitcast_convert_type(jnp.stack([count, low, high]), np.int64)

    def _moved(self, words: jax.Array, delta: int) -> jax.Array:
        generator = _philox.skip(_philox.of_state(words), delta)
        return jax.lax.bitcast_convert_type(jnp.stack([*generator.counter, generator.key]), np.int64)

    def _moved_on_host(self, words: np.ndarray, delta: int) -> np.ndarray:
        counter = int.from_bytes(words[:2].tobytes(), "little") + (delta * _philox.SKIP_PER_NUMBER) % 2**64
        new = np.frombuffer((counter % 2**128).to_bytes(16, "little"), np.int64)
        return np.concatenate([new, words[2:]])
