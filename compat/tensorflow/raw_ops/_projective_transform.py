"""`tf.raw_ops.ImageProjectiveTransformV3`: images turned, moved and drawn out by projections."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_ints
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

_FILL_MODES = ("CONSTANT", "REFLECT", "WRAP", "NEAREST")
_INTERPOLATIONS = ("NEAREST", "BILINEAR")


def ImageProjectiveTransformV2(
    *,
    images: Any,
    transforms: Any,
    output_shape: Any,
    interpolation: str,
    fill_mode: str = "CONSTANT",
    name: str | None = None,
) -> jax.Array:
    """Return projected images, as `ImageProjectiveTransformV3` does, with zeros for what lies outside."""
    return ImageProjectiveTransformV3(
        images=images,
        transforms=transforms,
        output_shape=output_shape,
        fill_value=0.0,
        interpolation=interpolation,
        fill_mode=fill_mode,
    )


def ImageProjectiveTransformV3(
    *,
    images: Any,
    transforms: Any,
    output_shape: Any,
    fill_value: Any,
    interpolation: str,
    fill_mode: str = "CONSTANT",
    name: str | None = None,
) -> jax.Array:
    """Return images whose pixel (x, y) is that of the input at `((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k)`.

    The gradient is TensorFlow's: the upstream one, projected back.

    Args:
        images: `[batch, height, width, channels]`.
        transforms: `[batch or 1, 8]`, of `a0 a1 a2 b0 b1 b2 c0 c1`, where `k = c0 x + c1 y + 1`.
        output_shape: Height and width of the result.
        fill_value: The value outside of the input, for `fill_mode="CONSTANT"`.
        interpolation: "NEAREST" or "BILINEAR".
        fill_mode: "CONSTANT", "REFLECT", "WRAP" or "NEAREST": how the input goes on outside.
        name: Not used.

    Raises:
        InvalidArgumentError: If shapes do not fit.
        ValueError: If a mode is not known.
    """
    pixels, matrices = convert_to_tensor(images), convert_to_tensor(transforms, "float32")
    height, width = static_ints(output_shape, "output_shape")
    for value, known, argument in (
        (interpolation, _INTERPOLATIONS, "interpolation"),
        (fill_mode, _FILL_MODES, "fill_mode"),
    ):
        if value not in known:
            raise ValueError(f"`{argument}` must be one of {known}. Received: {value!r}")
    if pixels.ndim != 4:
        raise invalid(f"`images` must be [batch, height, width, channels]. Received shape {tuple(pixels.shape)}")
    if matrices.ndim != 2 or matrices.shape[0] not in (1, pixels.shape[0]) or matrices.shape[1] != 8:
        raise invalid(f"`transforms` must be [{pixels.shape[0]} or 1, 8]. Received shape {tuple(matrices.shape)}")
    project = functools.partial(_project, interpolation=interpolation, fill_mode=fill_mode)
    fill = convert_to_tensor(fill_value, "float32")
    back = functools.partial(project, size=pixels.shape[1:3])
    return _with_back_projection(functools.partial(project, size=(height, width)), back)(pixels, matrices, fill)


def _with_back_projection(forward: Any, back: Any) -> Any:
    """Return a function whose gradient for the images is the upstream one, projected by the inverse matrices."""
    projecting = jax.custom_vjp(forward)

    def run(pixels: jax.Array, matrices: jax.Array, fill: jax.Array) -> Any:
        return forward(pixels, matrices, fill), (matrices, fill)

    def pull_back(kept: Any, upstream: jax.Array) -> Any:
        matrices, fill = kept
        return (
            back(upstream, _invert(matrices), jnp.zeros_like(fill)),
            jnp.zeros_like(matrices),
            jnp.zeros_like(fill),
        )

    projecting.defvjp(run, pull_back)
    return projecting


def _invert(matrices: jax.Array) -> jax.Array:
    whole = jnp.concatenate([matrices, jnp.ones_like(matrices[:, :1])], axis=1).reshape(-1, 3, 3)
    flat = jnp.linalg.inv(whole).reshape(-1, 9)
    return (flat / flat[:, 8:])[:, :8]


def _project(
    pixels: jax.Array,
    matrices: jax.Array,
    fill: jax.Array,
    *,
    size: tuple[int, ...],
    interpolation: str,
    fill_mode: str,
) -> jax.Array:
    y, x = (place.astype(jnp.float32) for place in jnp.meshgrid(*map(jnp.arange, size), indexing="ij"))
    a0, a1, a2, b0, b1, b2, c0, c1 = (number[:, None, None] for number in matrices.T)
    scale = c0 * x + c1 * y + 1
    is_infinite, scale = scale == 0, jnp.where(scale == 0, 1, scale)
    rows = _place(fill_mode, (b0 * x + b1 * y + b2) / scale, pixels.shape[1])
    columns = _place(fill_mode, (a0 * x + a1 * y + a2) / scale, pixels.shape[2])
    shape = (pixels.shape[0], *size)
    read = functools.partial(_read, pixels, fill=fill)
    sample = _nearest if interpolation == "NEAREST" else _bilinear
    found = sample(read, jnp.broadcast_to(rows, shape), jnp.broadcast_to(columns, shape), pixels.dtype)
    return jnp.where(is_infinite[..., None], fill.astype(pixels.dtype), found).astype(pixels.dtype)


def _nearest(read: Any, rows: jax.Array, columns: jax.Array, dtype: Any) -> jax.Array:
    return read(_round(rows), _round(columns))


def _round(places: jax.Array) -> jax.Array:
    """Round halves away from zero, as C++ does."""
    return jnp.trunc(places + jnp.copysign(0.5, places))


def _bilinear(read: Any, rows: jax.Array, columns: jax.Array, dtype: Any) -> jax.Array:
    above, left = jnp.floor(rows), jnp.floor(columns)
    down, right = (rows - above)[..., None], (columns - left)[..., None]
    kind = jnp.promote_types(dtype, jnp.float32)
    corner = lambda row, column: read(row, column).astype(kind)
    first = (1 - right) * corner(above, left) + right * corner(above, left + 1)
    second = (1 - right) * corner(above + 1, left) + right * corner(above + 1, left + 1)
    return (1 - down) * first + down * second


def _read(pixels: jax.Array, rows: jax.Array, columns: jax.Array, *, fill: jax.Array) -> jax.Array:
    """Return pixels at whole places, and the fill value where there are none."""
    _, height, width, _ = pixels.shape
    is_inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    row = jnp.clip(rows, 0, height - 1).astype(jnp.int32)
    column = jnp.clip(columns, 0, width - 1).astype(jnp.int32)
    found = pixels[jnp.arange(pixels.shape[0])[:, None, None], row, column]
    return jnp.where(is_inside[..., None], found, fill.astype(pixels.dtype))


def _place(fill_mode: str, places: jax.Array, size: int) -> jax.Array:
    """Return where in the input a place outside of it takes its value from."""
    if fill_mode == "CONSTANT":
        return places
    moved = {"REFLECT": _reflect, "WRAP": _wrap}.get(fill_mode, lambda places, size: places)(places, size)
    return jnp.clip(moved, 0, size - 1)


def _reflect(places: jax.Array, size: int) -> jax.Array:
    if size <= 1:
        return jnp.zeros_like(places)
    twice = 2 * size
    before = jnp.where(places < twice, twice * jnp.trunc(-places / twice) + places, places)
    before = jnp.where(before < -size, before + twice, -before - 1)
    after = places - twice * jnp.trunc(places / twice)
    after = jnp.where(after >= size, twice - after - 1, after)
    return jnp.where(places < 0, before, jnp.where(places > size - 1, after, places))


def _wrap(places: jax.Array, size: int) -> jax.Array:
    if size <= 1:
        return jnp.zeros_like(places)
    before = places + size * (jnp.trunc(-places / (size - 1)) + 1)
    after = places - size * jnp.trunc(places / (size - 1))
    return jnp.where(places < 0, before, jnp.where(places > size - 1, after, places))
