"""`tf.image`: images changed at random, for augmentation."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._ops._arguments import static_ints
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.image import _transforms
from tfdist_jax.compat.tensorflow.random._random_state import next_key, stateless_key

_HALF = 0.5
_MOST_HUE = 0.5


def random_flip_left_right(image: Any, seed: int | None = None) -> jax.Array:
    """Mirror each image with probability 1/2."""
    return _flipped(next_key(seed), image, -2)


def random_flip_up_down(image: Any, seed: int | None = None) -> jax.Array:
    """Turn each image upside down with probability 1/2."""
    return _flipped(next_key(seed), image, -3)


def stateless_random_flip_left_right(image: Any, seed: Any) -> jax.Array:
    """Mirror each image with probability 1/2, as two numbers say."""
    return _flipped(stateless_key(seed), image, -2)


def stateless_random_flip_up_down(image: Any, seed: Any) -> jax.Array:
    """Turn each image upside down with probability 1/2, as two numbers say."""
    return _flipped(stateless_key(seed), image, -3)


def _flipped(key: Any, image: Any, axis: int) -> jax.Array:
    tensor = convert_to_tensor(image)
    turn = jax.random.uniform(key, tensor.shape[:-3]) < _HALF
    return jnp.where(turn[..., None, None, None], jnp.flip(tensor, axis), tensor)


def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> jax.Array:
    """Add a number from `[-max_delta, max_delta)`."""
    return _brightened(next_key(seed), image, max_delta)


def stateless_random_brightness(image: Any, max_delta: float, seed: Any) -> jax.Array:
    """Add a number from `[-max_delta, max_delta)`, as two numbers say."""
    return _brightened(stateless_key(seed), image, max_delta)


def _brightened(key: Any, image: Any, max_delta: float) -> jax.Array:
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return _transforms.adjust_brightness(image, jax.random.uniform(key, minval=-max_delta, maxval=max_delta))


def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> jax.Array:
    """Change the contrast by a factor from `[lower, upper)`."""
    return _by_factor(next_key(seed), _transforms.adjust_contrast, image, lower, upper)


def stateless_random_contrast(image: Any, lower: float, upper: float, seed: Any) -> jax.Array:
    """Change the contrast by a factor from `[lower, upper)`, as two numbers say."""
    return _by_factor(stateless_key(seed), _transforms.adjust_contrast, image, lower, upper)


def random_saturation(image: Any, lower: float, upper: float, seed: int | None = None) -> jax.Array:
    """Change the saturation by a factor from `[lower, upper)`."""
    return _by_factor(next_key(seed), _transforms.adjust_saturation, image, lower, upper)


def stateless_random_saturation(image: Any, lower: float, upper: float, seed: Any = None) -> jax.Array:
    """Change the saturation by a factor from `[lower, upper)`, as two numbers say."""
    return _by_factor(stateless_key(seed), _transforms.adjust_saturation, image, lower, upper)


def _by_factor(key: Any, adjust: Callable[[Any, Any], jax.Array], image: Any, lower: float, upper: float) -> jax.Array:
    if upper <= lower:
        raise ValueError("upper must be > lower.")
    if lower < 0:
        raise ValueError("lower must be non-negative.")
    return adjust(image, jax.random.uniform(key, minval=lower, maxval=upper))


def random_hue(image: Any, max_delta: float, seed: int | None = None) -> jax.Array:
    """Turn the hue by a part of the circle from `[-max_delta, max_delta)`."""
    return _turned(next_key(seed), image, max_delta)


def stateless_random_hue(image: Any, max_delta: float, seed: Any) -> jax.Array:
    """Turn the hue by a part of the circle from `[-max_delta, max_delta)`, as two numbers say."""
    return _turned(stateless_key(seed), image, max_delta)


def _turned(key: Any, image: Any, max_delta: float) -> jax.Array:
    if not 0 <= max_delta <= _MOST_HUE:
        raise ValueError("max_delta must be within [0, 0.5].")
    return _transforms.adjust_hue(image, jax.random.uniform(key, minval=-max_delta, maxval=max_delta))


def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> jax.Array:
    """Return a part of a tensor, of the given size in every dimension, from a random place."""
    return _cropped(next_key(seed), value, size)


def stateless_random_crop(value: Any, size: Any, seed: Any, name: str | None = None) -> jax.Array:
    """Return a part of a tensor, of the given size in every dimension, from the place that two numbers say."""
    return _cropped(stateless_key(seed), value, size)


def _cropped(key: Any, value: Any, size: Any) -> jax.Array:
    tensor, sizes = convert_to_tensor(value), static_ints(size, "size")
    room = [have - want for have, want in zip(tensor.shape, sizes, strict=True)]
    if min(room) < 0:
        raise ValueError(f"Need value.shape >= size, got {tuple(tensor.shape)} and {tuple(sizes)}.")
    starts = jax.random.randint(key, (len(sizes),), 0, jnp.asarray(room) + 1)
    return jax.lax.dynamic_slice(tensor, list(starts), sizes)
