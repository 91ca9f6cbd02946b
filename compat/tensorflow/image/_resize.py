"""`tf.image`: images in other sizes."""

import enum
from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._ops._arguments import static_ints
from tfdist_jax.compat.tensorflow._ops._cast import cast
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.image._transforms import pad_to_bounding_box


class ResizeMethod(enum.Enum):
    """How pixels between others are computed."""

    BILINEAR = "bilinear"
    NEAREST_NEIGHBOR = "nearest"
    BICUBIC = "bicubic"
    AREA = "area"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    GAUSSIAN = "gaussian"
    MITCHELLCUBIC = "mitchellcubic"


_JAX = {
    ResizeMethod.BILINEAR: "linear",
    ResizeMethod.NEAREST_NEIGHBOR: "nearest",
    ResizeMethod.BICUBIC: "cubic",
    ResizeMethod.LANCZOS3: "lanczos3",
    ResizeMethod.LANCZOS5: "lanczos5",
}


def resize(
    images: Any,
    size: Any,
    method: Any = "bilinear",
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Return images in another size, as float32 (of their own type for the nearest pixel).

    Args:
        images: `[height, width, channels]`, or with a batch before.
        size: Height and width.
        method: A `ResizeMethod` or its value.
        preserve_aspect_ratio: Whether `size` is a bound and the images keep their proportions.
        antialias: Whether images that become smaller are smoothed first.
        name: Unused.

    Raises:
        NotImplementedError: For the methods that JAX does not have.
    """
    tensor, how = convert_to_tensor(images), ResizeMethod(method)
    if tensor.ndim not in (3, 4):
        raise ValueError(f"'images' must have either 3 or 4 dimensions, got shape {tuple(tensor.shape)}.")
    if how not in _JAX:
        raise NotImplementedError(
            f"tf.image.resize with method={how.value!r} is not supported: use 'bilinear' or 'lanczos3'."
        )
    sizes = static_ints(size, "size")
    if len(sizes) != 2:
        raise ValueError(f"'size' must be a 1-D tensor of 2 elements: new_height, new_width; got {list(sizes)}.")
    if preserve_aspect_ratio:
        scale = min(sizes[0] / tensor.shape[-3], sizes[1] / tensor.shape[-2])
        sizes = tuple(max(1, round(scale * old)) for old in tensor.shape[-3:-1])
    shape = (*tensor.shape[:-3], *sizes, tensor.shape[-1])
    if how is ResizeMethod.NEAREST_NEIGHBOR:
        return jax.image.resize(tensor, shape, _JAX[how])
    # Without antialiasing TensorFlow's cubic and Lanczos kernels are the same: only the sampling differs.
    return jax.image.resize(cast(tensor, "float32"), shape, _JAX[how], antialias=antialias)


def resize_with_pad(
    image: Any, target_height: Any, target_width: Any, method: Any = "bilinear", antialias: bool = False
) -> jax.Array:
    """Return images as large as fits into a size, with zeros around."""
    height, width = static_ints([target_height, target_width], "size")
    fitted = resize(image, (height, width), method, preserve_aspect_ratio=True, antialias=antialias)
    rows, columns = convert_to_tensor(image).shape[-3:-1]
    scale = min(height / rows, width / columns)
    # From the sizes before they are rounded, as TensorFlow does.
    top, left = (int((full - scale * old) / 2) for full, old in ((height, rows), (width, columns)))
    return pad_to_bounding_box(fitted, top, left, height, width)


def crop_and_resize(
    image: Any,
    boxes: Any,
    box_indices: Any,
    crop_size: Any,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
    name: str | None = None,
) -> jax.Array:
    """Return parts of images, each in the same size, `[boxes, height, width, channels]` float32.

    Args:
        image: `[batch, height, width, channels]`.
        boxes: `[boxes, 4]`: top, left, bottom and right as fractions.
        box_indices: `[boxes]`: which image each box is of.
        crop_size: Height and width.
        method: "bilinear" or "nearest".
        extrapolation_value: What is outside of the images.
        name: Unused.
    """
    tensor = cast(convert_to_tensor(image), "float32")
    height, width = static_ints(crop_size, "crop_size")
    order = {"bilinear": 1, "nearest": 0}[method]

    def positions(low: Any, high: Any, count: int, size: int) -> Any:
        if count == 1:
            return 0.5 * (low + high)[None] * (size - 1)
        return low * (size - 1) + jnp.arange(count) * (high - low) * (size - 1) / (count - 1)

    def crop(box: Any, index: Any) -> jax.Array:
        rows = positions(box[0], box[2], height, tensor.shape[1])
        columns = positions(box[1], box[3], width, tensor.shape[2])
        grid = jnp.meshgrid(rows, columns, indexing="ij")
        inside = (grid[0] >= 0) & (grid[0] <= tensor.shape[1] - 1) & (grid[1] >= 0) & (grid[1] <= tensor.shape[2] - 1)
        sample = lambda channel: jax.scipy.ndimage.map_coordinates(channel, grid, order=order, mode="nearest")
        values = jax.vmap(sample, in_axes=-1, out_axes=-1)(tensor[index])
        return jnp.where(inside[..., None], values, extrapolation_value)

    return jax.vmap(crop)(cast(convert_to_tensor(boxes), "float32"), convert_to_tensor(box_indices))
