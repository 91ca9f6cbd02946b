"""`tf.image`: how alike images are, edges, other colour spaces, and patches."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_ints
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.image._transforms import convert_image_dtype
from tfdist_jax.compat.tensorflow.nn._pooling import avg_pool
from tfdist_jax.compat.tensorflow.nn._space_to_batch import patches

_YUV = [[0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512], [0.114, 0.43601035, -0.10001026]]
_FROM_YUV = [[1.0, 1.0, 1.0], [0.0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0.0]]
_YIQ = [[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617], [0.114, -0.32134392, 0.31119955]]
_FROM_YIQ = [[1.0, 1.0, 1.0], [0.95598634, -0.27201283, -1.10674021], [0.6208248, -0.64720424, 1.70423049]]
_EDGES = np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]], np.float32)


def ssim(
    img1: Any,
    img2: Any,
    max_val: Any,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    return_index_map: bool = False,
) -> jax.Array:
    """Return the structural similarity of pairs of images, `[..., height, width, channels]`.

    See https://www.tensorflow.org/api_docs/python/tf/image/ssim and Wang et al., 2004.

    Args:
        img1: Images.
        img2: Images of the same shape.
        max_val: The largest value that pixels can have.
        filter_size: Width of the Gaussian window.
        filter_sigma: Its standard deviation.
        k1: Keeps the comparison of means stable.
        k2: Keeps the comparison of variances stable.
        return_index_map: Whether to return the similarity at each place, `[..., height, width]` without the window's
            edge, rather than its mean.
    """
    one, other, peak = _comparable(img1, img2, max_val)
    if min(one.shape[-3:-1]) < filter_size:
        raise invalid(f"Images of shape {tuple(one.shape)} are smaller than the window of {filter_size}.")
    luminance, contrast = _compared(one, other, peak, filter_size, filter_sigma, k1, k2)
    similar = luminance * contrast
    return jnp.mean(similar if return_index_map else jnp.mean(similar, (-3, -2)), -1)


def ssim_multiscale(
    img1: Any,
    img2: Any,
    max_val: Any,
    power_factors: Any = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333),
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
) -> jax.Array:
    """Return the structural similarity of pairs of images over several scales, each half the size of the one before.

    See https://www.tensorflow.org/api_docs/python/tf/image/ssim_multiscale. `power_factors` weigh the scales; the other
    arguments are those of `ssim`.
    """
    one, other, peak = _comparable(img1, img2, max_val)
    terms: list[jax.Array] = []
    for scale in range(len(power_factors)):
        if scale:
            one, other = _halved(one), _halved(other)
        if min(one.shape[-3:-1]) < filter_size:
            raise invalid(f"Images are smaller than the window of {filter_size} after {scale} halvings.")
        luminance, contrast = _compared(one, other, peak, filter_size, filter_sigma, k1, k2)
        last = scale == len(power_factors) - 1
        terms.append(jax.nn.relu(jnp.mean(luminance * contrast if last else contrast, (-3, -2))))
    powers = jnp.asarray(power_factors, one.dtype)
    return jnp.mean(jnp.prod(jnp.stack(terms, -1) ** powers, -1), -1)


def _comparable(img1: Any, img2: Any, max_val: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    one, other = convert_to_tensor(img1), convert_to_tensor(img2)
    if one.ndim < 3 or other.ndim < 3 or one.shape[-3:] != other.shape[-3:]:
        raise ValueError(f"Images must have one shape of at least three axes, got {one.shape} and {other.shape}.")
    peak = convert_to_tensor(max_val, dtype_hint=as_dtype(one.dtype))
    floats = [convert_image_dtype(x, "float32") for x in (one, other, peak.astype(one.dtype))]
    return floats[0], floats[1], floats[2]


def _compared(
    one: jax.Array, other: jax.Array, peak: jax.Array, size: int, sigma: float, k1: float, k2: float
) -> tuple[jax.Array, jax.Array]:
    """Return how alike means, and variances and covariances, are in each window."""
    distance = np.arange(size) - (size - 1) / 2
    weights = np.exp(-0.5 * (distance / sigma) ** 2)
    window = (weights / weights.sum()).astype(np.float32)
    mean = lambda x: _weighted(_weighted(x, window, -3), window, -2)
    c1, c2 = (k1 * peak) ** 2, (k2 * peak) ** 2
    mean_one, mean_other = mean(one), mean(other)
    both, squares = 2 * mean_one * mean_other, jnp.square(mean_one) + jnp.square(mean_other)
    covariance, variance = 2 * mean(one * other), mean(jnp.square(one) + jnp.square(other))
    return (both + c1) / (squares + c1), (covariance - both + c2) / (variance - squares + c2)


def _weighted(x: jax.Array, window: np.ndarray, axis: int) -> jax.Array:
    """Return weighted sums along an axis of what lies in a window that is moved over it."""
    number = x.shape[axis] - len(window) + 1
    parts = (jax.lax.slice_in_dim(x, i, i + number, axis=axis % x.ndim) * weight for i, weight in enumerate(window))
    return sum(parts, start=jnp.zeros((), x.dtype))


def _halved(images: jax.Array) -> jax.Array:
    """Return means of 2 x 2 pixels; an odd edge counts twice."""
    odd = [(0, size % 2) for size in images.shape[-3:-1]]
    padded = jnp.pad(images, [*[(0, 0)] * (images.ndim - 3), *odd, (0, 0)], mode="symmetric")
    pooled = avg_pool(padded.reshape(-1, *padded.shape[-3:]), 2, 2, "VALID")
    return pooled.reshape(*images.shape[:-3], *pooled.shape[1:])


def sobel_edges(image: Any) -> jax.Array:
    """Return how pixels change downwards and to the right, `[batch, height, width, channels, 2]`."""
    images = convert_to_tensor(image)
    padded = jnp.pad(images, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="reflect")
    height, width = images.shape[1:3]

    def filtered(kernel: np.ndarray) -> jax.Array:
        places = ((i, j) for i in range(3) for j in range(3) if kernel[i, j])
        return sum(
            (padded[:, i : i + height, j : j + width] * kernel[i, j] for i, j in places),
            start=jnp.zeros((), padded.dtype),
        )

    return jnp.stack([filtered(_EDGES), filtered(_EDGES.T)], -1)


def rgb_to_yuv(images: Any) -> jax.Array:
    """Return brightness and two colour differences of RGB floats."""
    return _recoloured(images, _YUV)


def yuv_to_rgb(images: Any) -> jax.Array:
    """Undo `rgb_to_yuv`."""
    return _recoloured(images, _FROM_YUV)


def rgb_to_yiq(images: Any) -> jax.Array:
    """Return brightness, in-phase and quadrature of RGB floats."""
    return _recoloured(images, _YIQ)


def yiq_to_rgb(images: Any) -> jax.Array:
    """Undo `rgb_to_yiq`."""
    return _recoloured(images, _FROM_YIQ)


def _recoloured(images: Any, matrix: list[list[float]]) -> jax.Array:
    tensor = convert_to_tensor(images)
    return jnp.matmul(tensor, jnp.asarray(matrix, tensor.dtype), precision=jax.lax.Precision.HIGHEST)


def extract_patches(
    images: Any, sizes: Any, strides: Any, rates: Any, padding: str, name: str | None = None
) -> jax.Array:
    """Return patches of images, each as a vector in place of the channels.

    See https://www.tensorflow.org/api_docs/python/tf/image/extract_patches.

    Args:
        images: `[batch, height, width, channels]`.
        sizes: `[1, height, width, 1]` of a patch.
        strides: `[1, down, right, 1]` from a patch to the next.
        rates: `[1, down, right, 1]` from a pixel of a patch to the next.
        padding: "SAME" or "VALID".
        name: Unused.
    """
    inner = lambda value, what: static_ints(value, what)[1:-1]
    size, step, rate = inner(sizes, "sizes"), inner(strides, "strides"), inner(rates, "rates")
    return patches(convert_to_tensor(images), size, step, rate, padding)
