"""`tf.io.decode_png` and its kin: images as bytes of files, read and written by Pillow."""

import contextlib
import importlib
import io
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_ints
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._host_part import computes_rows
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.image import _jpeg
from tfdist_jax.compat.tensorflow.image._transforms import convert_image_dtype

_PAGE = "https://www.tensorflow.org/api_docs/python/tf/io"
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_JPEG_START = b"\xff\xd8\xff"
_CHANNELS = {"JPEG": (1, 3), "PNG": (1, 2, 3, 4), "BMP": (1, 3, 4), "GIF": (1, 3, 4), "WEBP": (3, 4)}
# How libpng weighs colours, in parts of 2 ** 15, cutting fractions off.
_PNG_GRAY = np.array([9797, 19235, 3736], np.int32)
# Where a PNG file says how many bits a number has.
_BIT_DEPTH = 24
_WIDE = ("I;16", "I;16B", "I;16L", "I")


def _pillow() -> Any:
    """Return `PIL.Image`.

    Raises:
        ModuleNotFoundError: If Pillow is not installed.
    """
    try:
        return importlib.import_module("PIL.Image")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Pillow reads and writes image files for tf.io and tf.image, and is not installed: pip install pillow."
        ) from error


@contextlib.contextmanager
def _opened(contents: Any, *formats: str) -> Iterator[Any]:
    """Give the image of a file's bytes; what is no image of the formats (any, if none are named) is TensorFlow's error."""
    with contextlib.closing(io.BytesIO(_bytes(contents))) as file:
        try:
            with _pillow().open(file, formats=formats or None) as image:
                yield image
        except (OSError, SyntaxError, ValueError) as error:
            raise invalid(f"Cannot decode as {' or '.join(formats) or 'an image'}: {error}") from error


def _bytes(contents: Any) -> bytes:
    text = contents if isinstance(contents, bytes) else np.asarray(convert_to_tensor(contents))[()]
    if not isinstance(text, bytes):
        raise ValueError(f"contents must be scalar, got shape {np.shape(text)}.")
    return text


def _pixels(image: Any, channels: int | None, wanted: Any = _dtypes.uint8) -> np.ndarray:
    """Return `[height, width, channels]` of the image's own number of channels, or of as many as are wanted."""
    allowed = _CHANNELS[image.format]
    if channels and channels not in allowed:
        raise invalid(f"channels must be 0 or one of {allowed} for {image.format}, got {channels}")
    if image.mode in _WIDE:
        return _of_wide(np.asarray(image).astype(np.uint16), channels or 1, wanted)
    if channels == 1 and image.format == "JPEG":
        image.draft("L", image.size)  # The file's own brightness, as TensorFlow takes it.
    if channels == 1 and image.mode != "L" and image.format == "PNG":
        array = (np.asarray(image.convert("RGB")) @ _PNG_GRAY >> 15).astype(np.uint8)
    else:
        array = np.asarray(image.convert(_MODES[channels] if channels else _own_mode(image)))
    array = array.reshape(*array.shape[:2], -1)
    return array if wanted is _dtypes.uint8 else array.astype(np.uint16) * 257


def _own_mode(image: Any) -> str:
    if image.mode in _MODES.values():
        return image.mode
    if image.mode == "1":
        return "L"
    return "RGBA" if "transparency" in image.info else "RGB"


def _of_wide(gray: np.ndarray, channels: int, wanted: Any) -> np.ndarray:
    """Return gray pixels of 16 bits in a type, with as many channels as are wanted."""
    array = gray if wanted is _dtypes.uint16 else (gray >> 8).astype(np.uint8)
    opaque = np.full(array.shape, np.iinfo(array.dtype).max, array.dtype)
    parts = {1: [array], 2: [array, opaque], 3: [array] * 3, 4: [*[array] * 3, opaque]}
    return np.stack(parts[channels], -1)


def decode_jpeg(
    contents: Any,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> jax.Array:
    """Return the pixels of a JPEG file's bytes, `[height, width, channels]` uint8.

    See https://www.tensorflow.org/api_docs/python/tf/io/decode_jpeg. `ratio` makes the image 2, 4 or 8 times smaller. Pixels are
    TensorFlow's own where simplejpeg is installed, in smaller images and from Pillow within 5 of 255.
    """
    return convert_to_tensor(_decoded(contents, channels, ratio, fancy=fancy_upscaling, method=dct_method))


def _decode_jpegs(
    contents: Any,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> jax.Array:
    """Return the pixels of files whose images have one size, `[n, height, width, channels]`."""
    files = np.asarray(contents, object).tolist()
    decoded = [_decoded(file, channels, ratio, fancy=fancy_upscaling, method=dct_method) for file in files]
    return convert_to_tensor(np.stack(decoded))


computes_rows(decode_jpeg, _decode_jpegs)


def _decoded(
    contents: Any, channels: int | None, ratio: int = 1, *, fancy: bool = True, method: str = ""
) -> np.ndarray:
    """Return the pixels of a JPEG file's bytes, or of the first image of another file's, `[height, width, channels]` uint8."""
    if ratio not in (1, 2, 4, 8):
        raise invalid(f"ratio must be 1, 2, 4, or 8, got {ratio}")
    data = _bytes(contents)
    pixels = _jpeg_pixels(data, channels, ratio=ratio, fancy=fancy, method=method)
    if pixels is not None:
        return pixels
    with _opened(data, "JPEG", "PNG", "GIF", "BMP") as image:
        if ratio != 1:
            image.draft(None, (image.width // ratio, image.height // ratio))
        return _pixels(image, channels)


def _jpeg_pixels(data: bytes, channels: int | None, **how: Any) -> np.ndarray | None:
    if not data.startswith(_JPEG_START) or channels not in (None, 0, 1, 3):
        return None
    return _jpeg.decode(data, channels or 0, **how)


def decode_and_crop_jpeg(
    contents: Any,
    crop_window: Any,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> jax.Array:
    """Return the part of `decode_jpeg` that begins at `crop_window[:2]` and has height and width `crop_window[2:]`."""
    top, left, height, width = static_ints(crop_window, "crop_window")
    whole = decode_jpeg(contents, channels, ratio, fancy_upscaling, dct_method=dct_method)
    if min(top, left) < 0 or top + height > whole.shape[0] or left + width > whole.shape[1] or min(height, width) < 1:
        raise invalid(f"Invalid crop window {(top, left, height, width)} of an image of shape {tuple(whole.shape)}.")
    return whole[top : top + height, left : left + width]


def decode_png(contents: Any, channels: int = 0, dtype: Any = _dtypes.uint8, name: str | None = None) -> jax.Array:
    """Return the pixels of a PNG file's bytes, `[height, width, channels]`, uint8 or uint16.

    See https://www.tensorflow.org/api_docs/python/tf/io/decode_png.
    """
    wanted = as_dtype(dtype)
    if wanted not in (_dtypes.uint8, _dtypes.uint16):
        raise invalid(f"tf.io.decode_png gives uint8 or uint16, not {wanted.name}.")
    data = _bytes(contents)
    pixels = _jpeg_pixels(data, channels)
    if pixels is not None:
        return convert_to_tensor(pixels if wanted is _dtypes.uint8 else pixels.astype(np.uint16) * 257)
    with _opened(data, "PNG", "JPEG", "GIF", "BMP") as image:
        if wanted is _dtypes.uint16 and image.mode not in _WIDE and data[_BIT_DEPTH] == 16:
            raise NotImplementedError("Pillow reads PNG files of 16 bits with one channel only: use dtype=tf.uint8.")
        return convert_to_tensor(_pixels(image, channels, wanted))


def decode_bmp(contents: Any, channels: int = 0, name: str | None = None) -> jax.Array:
    """Return the pixels of a BMP file's bytes, `[height, width, channels]` uint8."""
    with _opened(contents, "BMP") as image:
        return convert_to_tensor(_pixels(image, channels))


def decode_webp(contents: Any, channels: int = 0, dtype: Any = _dtypes.uint8, name: str | None = None) -> jax.Array:
    """Return the pixels of a WebP file's bytes, `[height, width, channels]` uint8."""
    with _opened(contents, "WEBP") as image:
        return convert_to_tensor(_pixels(image, channels))


def decode_gif(contents: Any, name: str | None = None) -> jax.Array:
    """Return the pixels of all frames of a GIF file's bytes, `[frames, height, width, 3]` uint8."""
    with _opened(contents, "GIF") as image:
        return convert_to_tensor(_frames(image))


def _frames(image: Any) -> np.ndarray:
    frames = []
    for number in range(getattr(image, "n_frames", 1)):
        image.seek(number)
        frames.append(_pixels(image, 3))
    return np.stack(frames)


def decode_image(
    contents: Any,
    channels: int | None = None,
    dtype: Any = _dtypes.uint8,
    name: str | None = None,
    expand_animations: bool = True,
) -> jax.Array:
    """Return the pixels of a BMP, GIF, JPEG or PNG file's bytes.

    See https://www.tensorflow.org/api_docs/python/tf/io/decode_image.

    Args:
        contents: The bytes.
        channels: How many channels; the image's own if None or 0.
        dtype: The type; floats are in [0, 1].
        name: Unused.
        expand_animations: Whether a GIF gives all its frames, `[frames, height, width, 3]`, or its first one.
    """
    data = _bytes(contents)
    pixels = _jpeg_pixels(data, channels)
    if pixels is not None:
        return convert_image_dtype(convert_to_tensor(pixels), dtype)
    with _opened(data, "JPEG", "PNG", "GIF", "BMP", "WEBP") as image:
        if image.format == "GIF":
            found = _frames(image) if expand_animations else _pixels(image, 3)
        else:
            whole = image.mode in _WIDE and as_dtype(dtype) is not _dtypes.uint8
            found = _pixels(image, channels, _dtypes.uint16 if whole else _dtypes.uint8)
    return convert_image_dtype(convert_to_tensor(found), dtype)


def is_jpeg(contents: Any, name: str | None = None) -> jax.Array:
    """Whether bytes begin like a JPEG file."""
    return convert_to_tensor(_bytes(contents).startswith(_JPEG_START))


def extract_jpeg_shape(contents: Any, output_type: Any = _dtypes.int32, name: str | None = None) -> jax.Array:
    """Return height, width and channels of a JPEG file's bytes without decoding it."""
    with _opened(contents, "JPEG") as image:
        sizes = image.height, image.width, len(image.getbands())
    return convert_to_tensor(np.asarray(sizes, as_dtype(output_type).dtype))


def _host_image(image: Any, what: str, types: tuple[Any, ...]) -> np.ndarray:
    tensor = convert_to_tensor(image)
    if isinstance(tensor, Tracer):
        raise NotImplementedError(f"{what} makes strings, which XLA does not have. Call it outside of the function.")
    if as_dtype(tensor.dtype) not in types:
        names = " or ".join(kind.name for kind in types)
        raise invalid(f"{what} takes {names} images, got {as_dtype(tensor.dtype).name}: tf.image.convert_image_dtype.")
    return np.asarray(tensor)


def encode_jpeg(
    image: Any,
    format: str = "",
    quality: int = 95,
    progressive: bool = False,
    optimize_size: bool = False,
    chroma_downsampling: bool = True,
    density_unit: str = "in",
    x_density: int = 300,
    y_density: int = 300,
    xmp_metadata: str = "",
    name: str | None = None,
) -> HostTensor:
    """Return the bytes of a JPEG file of an image, `[height, width, 1 or 3]` uint8.

    See https://www.tensorflow.org/api_docs/python/tf/io/encode_jpeg.
    """
    array = _host_image(image, "tf.io.encode_jpeg", (_dtypes.uint8,))
    if array.ndim != 3 or array.shape[2] not in (1, 3):
        raise invalid(f"image must be 3-dimensional with 1 or 3 channels, got shape {array.shape}")
    if not 0 <= quality <= 100:
        raise invalid(f"quality must be in [0,100], got {quality}")
    scale = {"in": 1.0, "cm": 2.54}[density_unit]
    return _written(
        array,
        "JPEG",
        quality=quality,
        progressive=progressive,
        optimize=optimize_size,
        subsampling=2 if chroma_downsampling else 0,
        dpi=(round(x_density * scale), round(y_density * scale)),
        **({"xmp": xmp_metadata.encode()} if xmp_metadata else {}),
    )


def encode_png(image: Any, compression: Any = -1, name: str | None = None) -> HostTensor:
    """Return the bytes of a PNG file of an image, `[height, width, 1 to 4]` uint8, or uint16 with one channel.

    See https://www.tensorflow.org/api_docs/python/tf/io/encode_png.
    """
    array = _host_image(image, "tf.io.encode_png", (_dtypes.uint8, _dtypes.uint16))
    if array.ndim < 3 or array.shape[-1] not in _MODES:
        raise invalid(f"image must be at least 3-dimensional with 1, 2, 3 or 4 channels, got shape {array.shape}")
    if array.dtype == np.uint16 and array.shape[-1] != 1:
        raise NotImplementedError("Pillow writes PNG files of 16 bits with one channel only: use uint8.")
    level = {} if int(compression) < 0 else {"compress_level": int(compression)}
    if array.ndim == 3:
        return _written(array, "PNG", **level)
    files = np.empty(array.shape[:-3], object)
    for place in np.ndindex(files.shape):
        files[place] = _written(array[place], "PNG", **level)[()].item()
    return HostTensor.of(files)


def _written(array: np.ndarray, kind: str, **options: Any) -> HostTensor:
    pixels = np.ascontiguousarray(array[..., 0] if array.shape[-1] == 1 else array)
    with io.BytesIO() as file:
        _pillow().fromarray(pixels).save(file, kind, **options)
        return convert_to_tensor(file.getvalue())


def adjust_jpeg_quality(image: Any, jpeg_quality: Any, dct_method: str = "", name: str | None = None) -> jax.Array:
    """Return an image as it looks after a JPEG file of a quality from 0 to 100.

    See https://www.tensorflow.org/api_docs/python/tf/image/adjust_jpeg_quality.
    """
    given = convert_to_tensor(image)
    file = encode_jpeg(convert_image_dtype(given, "uint8", saturate=True), quality=int(jpeg_quality))
    return convert_image_dtype(decode_jpeg(file, given.shape[-1]), given.dtype, saturate=True)
