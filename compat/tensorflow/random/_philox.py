"""The generator behind TensorFlow's random numbers: Philox 4x32-10, and how its words become numbers.

See Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_WORD_BITS = np.uint64(32)
_WORD = np.uint64(0xFFFFFFFF)
_SCRAMBLING_KEY = np.array([0x3EC8F720, 0x02461E29], np.uint32)
_PER_BLOCK = 4
_WIDE = 8
# Below it the logarithm of a uniform number is not taken.
_LEAST = 1e-7
_TRUNCATION = 2.0
# Each four (of doubles: two) truncated numbers have so many blocks to themselves, whichever of them are needed. Of 16
# candidates at least four are near enough but in two cases of 10 ** 15.
_BLOCKS_PER_GROUP = 256
_CANDIDATE_BLOCKS = 4
# By how many blocks a generator moves on for each number drawn.
SKIP_PER_NUMBER = 256


class Philox(NamedTuple):
    """A key and the number of the next block of four words.

    Attributes:
        key: `[]` uint64.
        counter: `[2]` uint64, the lower half first.
    """

    key: Any
    counter: Any


def of_seed(seed: Any) -> Philox:
    """Return the generator that a seed of two integers names, which it scrambles."""
    first, second = seed[0].astype(np.uint64), seed[1].astype(np.uint64)
    words = _words(Philox(_pairs(jnp.asarray(_SCRAMBLING_KEY))[0], jnp.stack([first, second])), 1)
    key, high = _pairs(words)
    return Philox(key, jnp.stack([jnp.zeros_like(high), high]))


@jax.jit
def of_state(words: jax.Array) -> Philox:
    """Return the generator with the state `[counter, counter, key]` int64."""
    numbers = jax.lax.bitcast_convert_type(words, np.uint64)
    return Philox(numbers[2], numbers[:2])


def of_replica(generator: Philox, replica: Any) -> Philox:
    """Return the generator of one replica, made from that of all."""
    number = jnp.asarray(replica).astype(np.uint64)
    return generator._replace(
        key=bits(Philox(generator.key, jnp.stack([number, jnp.zeros_like(number)])), (), np.uint64)
    )


def skip(generator: Philox, numbers: Any) -> Philox:
    """Return the generator as it is after so many numbers."""
    blocks = jnp.asarray(numbers).astype(np.uint64) * np.uint64(SKIP_PER_NUMBER)
    return generator._replace(counter=jnp.stack(_moved(generator.counter, blocks)))


def jax_key(generator: Philox) -> jax.Array:
    """Return a key for JAX's own distributions."""
    return jax.random.wrap_key_data(_words(generator, 1)[0, :2], impl="threefry2x32")


@functools.partial(jax.jit, static_argnums=(1, 2))
def bits(generator: Philox, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Return unsigned integers from the whole range of their type."""
    size, wanted = math.prod(shape), np.dtype(dtype)
    if wanted.itemsize == _WIDE:
        return _pairs(_words(generator, -(-size // 2)))[:size].reshape(shape)
    return _words(generator, -(-size // _PER_BLOCK)).reshape(-1)[:size].astype(wanted).reshape(shape)


@functools.partial(jax.jit, static_argnums=(1, 2))
def uniform(generator: Philox, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Return floats from 0 up to, and without, 1."""
    size, wanted = math.prod(shape), jnp.dtype(dtype)
    per_block = 2 if wanted.itemsize == _WIDE else _PER_BLOCK
    return _fractions(_words(generator, -(-size // per_block)), wanted).reshape(-1)[:size].reshape(shape)


@functools.partial(jax.jit, static_argnums=(1, 2))
def normal(generator: Philox, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Return standard normal numbers."""
    size, wanted = math.prod(shape), jnp.dtype(dtype)
    per_block = 2 if wanted.itemsize == _WIDE else _PER_BLOCK
    values = _box_muller(_words(generator, -(-size // per_block)), wanted)
    return values.reshape(-1)[:size].reshape(shape).astype(wanted)


@functools.partial(jax.jit, static_argnums=(1, 2))
def truncated_normal(generator: Philox, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Return standard normal numbers that are less than 2 away from 0."""
    size, wanted = math.prod(shape), jnp.dtype(dtype)
    per_group = 2 if wanted.itemsize == _WIDE else _PER_BLOCK
    blocks_per_group = _BLOCKS_PER_GROUP * per_group // _PER_BLOCK
    candidates = _CANDIDATE_BLOCKS * _PER_BLOCK // per_group
    groups = _count(-(-size // per_group))[:, None] * np.uint64(blocks_per_group)
    numbers = (groups + _count(candidates)).reshape(-1)
    values = _box_muller(_words_at(generator, numbers), wanted).reshape(groups.shape[0], _CANDIDATE_BLOCKS * _PER_BLOCK)
    is_near = jnp.abs(values) < _TRUNCATION
    # Stable: those that are near come first, in their order.
    order = jnp.argsort(~is_near, axis=1, stable=True)[:, :per_group]
    chosen = jnp.clip(jnp.take_along_axis(values, order, axis=1), -_TRUNCATION, _TRUNCATION)
    return chosen.reshape(-1)[:size].reshape(shape).astype(wanted)


def _words(generator: Philox, blocks: int) -> jax.Array:
    """Return the next blocks of words, `[blocks, 4]` uint32."""
    return _words_at(generator, _count(blocks))


def _count(number: int) -> jax.Array:
    return jax.lax.iota(np.uint64, number)


def _words_at(generator: Philox, numbers: jax.Array) -> jax.Array:
    """Return the blocks with these numbers, counted from the next one, `[len(numbers), 4]` uint32."""
    low, high = _moved(generator.counter, numbers)
    c0, c1, c2, c3 = *_halves(low), *_halves(high)
    k0, k1 = _halves(generator.key)
    for _ in range(_ROUNDS):
        (low0, high0), (low1, high1) = (
            _halves(c.astype(np.uint64) * m) for c, m in zip((c0, c2), _MULTIPLIERS, strict=True)
        )
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _KEY_STEPS[0], k1 + _KEY_STEPS[1]
    return jnp.stack([c0, c1, c2, c3], axis=-1)


def _moved(counter: Any, blocks: Any) -> tuple[Any, Any]:
    low = counter[0] + blocks
    return low, counter[1] + (low < blocks).astype(np.uint64)


def _halves(number: Any) -> tuple[Any, Any]:
    return (number & _WORD).astype(np.uint32), (number >> _WORD_BITS).astype(np.uint32)


def _pairs(words: jax.Array) -> jax.Array:
    """Return words as half as many integers, the lower half first."""
    pairs = words.reshape(-1, 2).astype(np.uint64)
    return pairs[:, 0] | (pairs[:, 1] << _WORD_BITS)


def _fractions(words: jax.Array, wanted: Any) -> jax.Array:
    """Return floats from 0 up to 1, whose mantissas are the words' lowest bits; a double takes two words."""
    one = jnp.ones((), wanted)
    exponent = jax.lax.bitcast_convert_type(one, f"uint{8 * wanted.itemsize}")
    # Only small constants: JAX cuts NumPy's 64-bit ones to 32 bits.
    other_bits = np.array(8 * wanted.itemsize - jnp.finfo(wanted).nmant, exponent.dtype)
    if wanted.itemsize == _WIDE:
        pairs = words.reshape(-1, 2).astype(np.uint64)
        words = (pairs[:, 0] << _WORD_BITS) | pairs[:, 1]
    mantissas = (words.astype(exponent.dtype) << other_bits) >> other_bits
    return jax.lax.bitcast_convert_type(mantissas | exponent, wanted) - one


def _box_muller(words: jax.Array, wanted: Any) -> jax.Array:
    """Return two normal numbers for each two fractions, computed in at least float32."""
    fractions = _fractions(words, wanted if wanted.itemsize == _WIDE else jnp.dtype(np.float32)).reshape(-1, 2)
    radius = jnp.sqrt(-2 * jnp.log(jnp.maximum(fractions[:, 0], _LEAST)))
    angle = fractions[:, 1] * (2 * math.pi)
    return jnp.stack([jnp.sin(angle) * radius, jnp.cos(angle) * radius], axis=-1)
