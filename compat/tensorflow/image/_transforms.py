"""`tf.image`: colours, sizes and places of images, `[height, width, channels]` or with a batch before."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import compute, static_int
from tfdist_jax.compat.tensorflow._ops._cast import cast, saturate_cast
from tfdist_jax.compat.tensorflow._ops._subgradients import absolute, maximum
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

_GRAY = (0.2989, 0.5870, 0.1140)
_RANKS = (3, 4)


def _image(image: Any) -> jax.Array:
    tensor = convert_to_tensor(image)
    if tensor.ndim not in _RANKS:
        raise ValueError(
            f"'image' (shape {tuple(tensor.shape)}) must have either 3 or 4 dimensions: [height, width, channels], or "
            "with a batch before."
        )
    return tensor


def convert_image_dtype(image: Any, dtype: Any, saturate: bool = False, name: str | None = None) -> jax.Array:
    """Return an image with values of another type, scaled to its range: floats are in [0, 1], integers up to their max."""
    tensor, wanted = convert_to_tensor(image), as_dtype(dtype)
    given = as_dtype(tensor.dtype)
    if given == wanted:
        return tensor
    change = saturate_cast if saturate else cast
    if given.is_integer and wanted.is_integer:
        return _rescaled_integers(tensor, given, wanted, change)
    if given.is_floating and wanted.is_floating:
        return cast(tensor, wanted)
    if given.is_integer:
        return compute(lambda: cast(tensor, wanted) * (1.0 / given.max))
    return compute(lambda: change(tensor * (wanted.max + 0.5), wanted))


def _rescaled_integers(tensor: jax.Array, given: Any, wanted: Any, change: Callable[..., Any]) -> jax.Array:
    if given.max > wanted.max:
        return change(tensor // ((given.max + 1) // (wanted.max + 1)), wanted)
    return compute(lambda: cast(tensor, wanted) * ((wanted.max + 1) // (given.max + 1)))


def _as_floats(image: Any, change: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Change an image as floats in [0, 1], and give it its own type again."""
    tensor = convert_to_tensor(image)
    given = as_dtype(tensor.dtype)
    floats = tensor if given.is_floating else convert_image_dtype(tensor, "float32")
    return convert_image_dtype(change(floats), given, saturate=True)


def adjust_brightness(image: Any, delta: Any) -> jax.Array:
    """Add `delta` to all values, as floats in [0, 1]."""
    return _as_floats(image, lambda x: x + jnp.asarray(delta, x.dtype))


def adjust_contrast(images: Any, contrast_factor: Any) -> jax.Array:
    """Move each channel's values away from their mean by a factor."""

    def change(x: jax.Array) -> jax.Array:
        mean = jnp.mean(x, (-3, -2), keepdims=True)
        return (x - mean) * jnp.asarray(contrast_factor, x.dtype) + mean

    return _as_floats(images, change)


def adjust_gamma(image: Any, gamma: Any = 1, gain: Any = 1) -> jax.Array:
    """Return `gain * image ** gamma`."""
    return _as_floats(image, lambda x: gain * x ** jnp.asarray(gamma, x.dtype))


def adjust_hue(image: Any, delta: Any, name: str | None = None) -> jax.Array:
    """Turn the hue of RGB images by `delta` of a full circle."""
    turn = lambda hsv: hsv.at[..., 0].set((hsv[..., 0] + delta) % 1.0)
    return _as_floats(image, lambda x: hsv_to_rgb(turn(rgb_to_hsv(x))))


def adjust_saturation(image: Any, saturation_factor: Any, name: str | None = None) -> jax.Array:
    """Multiply the saturation of RGB images by a factor."""
    scale = lambda hsv: hsv.at[..., 1].set(jnp.clip(hsv[..., 1] * saturation_factor, 0.0, 1.0))
    return _as_floats(image, lambda x: hsv_to_rgb(scale(rgb_to_hsv(x))))


def rgb_to_hsv(images: Any, name: str | None = None) -> jax.Array:
    """Return hue, saturation and value in [0, 1] of RGB floats in [0, 1]."""
    rgb = convert_to_tensor(images)
    red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    value = jnp.max(rgb, -1)
    span = value - jnp.min(rgb, -1)
    safe = jnp.where(span > 0, span, 1)
    hue = jnp.select(
        [value == red, value == green], [(green - blue) / safe, (blue - red) / safe + 2], (red - green) / safe + 4
    )
    hue = jnp.where(span > 0, hue / 6 % 1.0, 0.0)
    return jnp.stack([hue, jnp.where(value > 0, span / jnp.where(value > 0, value, 1), 0.0), value], -1)


def hsv_to_rgb(images: Any, name: str | None = None) -> jax.Array:
    """Return the RGB of hue, saturation and value in [0, 1]."""
    hsv = convert_to_tensor(images)
    hue, saturation, value = hsv[..., 0] * 6, hsv[..., 1], hsv[..., 2]
    channels = [jnp.abs(hue - 3) - 1, 2 - jnp.abs(hue - 2), 2 - jnp.abs(hue - 4)]
    return jnp.stack([((jnp.clip(c, 0.0, 1.0) - 1) * saturation + 1) * value for c in channels], -1)


def rgb_to_grayscale(images: Any, name: str | None = None) -> jax.Array:
    """Return the brightness of RGB images, with one channel."""
    return _as_floats(images, lambda x: jnp.sum(x * jnp.asarray(_GRAY, x.dtype), -1, keepdims=True))


def grayscale_to_rgb(images: Any, name: str | None = None) -> jax.Array:
    """Return images with their one channel three times."""
    tensor = convert_to_tensor(images)
    if tensor.shape[-1] != 1:
        raise ValueError(f"Last dimension of a grayscale image should be size 1, got {tensor.shape[-1]}.")
    return jnp.repeat(tensor, 3, -1)


def flip_left_right(image: Any) -> jax.Array:
    """Mirror images."""
    return jnp.flip(_image(image), -2)


def flip_up_down(image: Any) -> jax.Array:
    """Turn images upside down."""
    return jnp.flip(_image(image), -3)


def rot90(image: Any, k: Any = 1, name: str | None = None) -> jax.Array:
    """Turn images counter-clockwise by `k` quarter circles."""
    return jnp.rot90(_image(image), static_int(k, "k"), axes=(-3, -2))


def transpose(image: Any, name: str | None = None) -> jax.Array:
    """Exchange rows and columns."""
    return jnp.swapaxes(_image(image), -3, -2)


def crop_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> jax.Array:
    """Return a part of images.

    Raises:
        ValueError: If it is not inside the images.
    """
    tensor = _image(image)
    top, left = static_int(offset_height, "offset_height"), static_int(offset_width, "offset_width")
    height, width = static_int(target_height, "target_height"), static_int(target_width, "target_width")
    if top < 0 or left < 0 or top + height > tensor.shape[-3] or left + width > tensor.shape[-2]:
        raise ValueError(
            f"A box of {height} x {width} at ({top}, {left}) is not inside images of {tensor.shape[-3]} x {tensor.shape[-2]}."
        )
    return tensor[..., top : top + height, left : left + width, :]


def pad_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> jax.Array:
    """Return images of a larger size with zeros around.

    Raises:
        ValueError: If they do not fit.
    """
    tensor = _image(image)
    top, left = static_int(offset_height, "offset_height"), static_int(offset_width, "offset_width")
    below = static_int(target_height, "target_height") - top - tensor.shape[-3]
    right = static_int(target_width, "target_width") - left - tensor.shape[-2]
    if min(top, left, below, right) < 0:
        raise ValueError(f"Images of {tensor.shape[-3]} x {tensor.shape[-2]} do not fit into the box.")
    return jnp.pad(tensor, [(0, 0)] * (tensor.ndim - 3) + [(top, below), (left, right), (0, 0)])


def central_crop(image: Any, central_fraction: float) -> jax.Array:
    """Return the middle of images, a fraction of their height and width."""
    if not 0.0 < central_fraction <= 1.0:
        raise ValueError("central_fraction must be within (0, 1]")
    tensor = _image(image)
    top, left = (int((size - size * central_fraction) / 2) for size in tensor.shape[-3:-1])
    height, width = tensor.shape[-3] - 2 * top, tensor.shape[-2] - 2 * left
    return crop_to_bounding_box(tensor, top, left, height, width)


def resize_with_crop_or_pad(image: Any, target_height: Any, target_width: Any) -> jax.Array:
    """Cut images off evenly, or put zeros around, so that they get a size."""
    tensor = _image(image)
    for axis, size in (
        (-3, static_int(target_height, "target_height")),
        (-2, static_int(target_width, "target_width")),
    ):
        missing = size - tensor.shape[axis]
        if missing < 0:
            start = -missing // 2
            tensor = jax.lax.slice_in_dim(tensor, start, start + size, axis=tensor.ndim + axis)
        elif missing:
            around = [(0, 0)] * tensor.ndim
            around[axis] = (missing // 2, missing - missing // 2)
            tensor = jnp.pad(tensor, around)
    return tensor


def per_image_standardization(image: Any) -> jax.Array:
    """Return each image with mean 0 and variance 1, as float32."""
    tensor = cast(_image(image), "float32")
    axes = (-3, -2, -1)
    least = 1.0 / np.sqrt(np.prod(tensor.shape[-3:]))
    return (tensor - jnp.mean(tensor, axes, keepdims=True)) / maximum(jnp.std(tensor, axes, keepdims=True), least)


def psnr(a: Any, b: Any, max_val: Any, name: str | None = None) -> jax.Array:
    """Return the peak signal-to-noise ratio of each pair of images, in decibels."""
    one, other = (convert_image_dtype(x, "float32") for x in (a, b))
    peak = convert_image_dtype(convert_to_tensor(max_val, dtype=as_dtype(convert_to_tensor(a).dtype)), "float32")
    error = jnp.mean(jnp.square(one - other), (-3, -2, -1))
    return 20 * jnp.log(peak) / np.log(10.0) - np.float32(10 / np.log(10)) * jnp.log(error)


def total_variation(images: Any, name: str | None = None) -> jax.Array:
    """Return the sum of the differences between neighbouring pixels, of each image."""
    tensor, axes = _image(images), (-3, -2, -1)
    down = absolute(tensor[..., 1:, :, :] - tensor[..., :-1, :, :])
    right = absolute(tensor[..., :, 1:, :] - tensor[..., :, :-1, :])
    return jnp.sum(down, axes) + jnp.sum(right, axes)


def image_gradients(image: Any) -> tuple[jax.Array, jax.Array]:
    """Return the differences to the pixel below and to the right, zero at the last row and column."""
    tensor = _image(image)
    down = jnp.diff(tensor, axis=-3, append=tensor[..., -1:, :, :])
    return down, jnp.diff(tensor, axis=-2, append=tensor[..., -1:, :])
