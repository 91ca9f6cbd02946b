"""Summaries as the protocol buffers of event files, in the form of TensorFlow 2."""

# The generated modules make their classes when they are loaded.
# pyright: reportAttributeAccessIssue=false

import io
import struct
import wave
import zlib
from typing import Any

import numpy as np
from tensorboardX.proto.plugin_text_pb2 import TextPluginData
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.proto.tensor_pb2 import TensorProto
from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboardX.proto.types_pb2 import DataType

from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype


def value(tag: str, array: Any, described: SummaryMetadata | None) -> Summary.Value:
    """Return a summary of one tensor."""
    return Summary.Value(tag=tag, tensor=_tensor(np.asarray(array)), metadata=described)


def metadata(plugin: str, content: bytes, description: str) -> SummaryMetadata:
    """Return what tells TensorBoard which plugin shows a summary."""
    data = SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    return SummaryMetadata(plugin_data=data, summary_description=description)


def copy_of(given: Any) -> SummaryMetadata | None:
    """Return metadata of any library's own class as ours; None stays None."""
    return None if given is None else SummaryMetadata.FromString(given.SerializeToString())


def scalar(array: np.ndarray) -> tuple[np.ndarray, bytes]:
    """Return a number as TensorBoard's scalars have it."""
    return array.astype(np.float32), b""


def histogram(array: np.ndarray, buckets: int) -> tuple[np.ndarray, bytes]:
    """Return left edge, right edge and count for each bucket, `[buckets, 3]`; none for no values.

    Values that are all equal share one bucket of width 1, repeated empty to keep the shape.
    """
    values = array.reshape(-1).astype(np.float64)
    if not values.size:
        return np.zeros((buckets, 3)), b""
    low, high = values.min(), values.max()
    if low == high:
        rows = np.tile([low - 0.5, high + 0.5, 0.0], (buckets, 1))
        rows[-1, 2] = values.size
        return rows, b""
    counts, edges = np.histogram(values, buckets, (low, high))
    return np.stack([edges[:-1], edges[1:], counts], axis=1), b""


def images(array: np.ndarray) -> tuple[np.ndarray, bytes]:
    """Return width, height and the images as PNG."""
    if array.dtype.kind not in "iu":
        pixels = np.clip(array.astype(np.float64) * 255.5, 0, 255).astype(np.uint8)
    else:
        pixels = (array >> max(0, 8 * array.dtype.itemsize - (8 if array.dtype.kind == "u" else 7))).astype(np.uint8)
    _, height, width, _ = array.shape
    return strings([str(width), str(height), *(_png(one) for one in pixels)]), b""


def text(array: np.ndarray) -> tuple[np.ndarray, bytes]:
    """Return strings as TensorBoard's plugin for them wants them."""
    return array, TextPluginData(version=0).SerializeToString()


def sounds(array: np.ndarray, sample_rate: int) -> tuple[np.ndarray, bytes]:
    """Return pairs of a WAV file and its label, `[count, 2]`."""
    samples = np.clip(array.astype(np.float64) * 32767, -32768, 32767).astype("<i2")
    pairs = [item for one in samples for item in (_wav(one, sample_rate), b"")]
    return strings(pairs).reshape(-1, 2), b""


def strings(given: Any) -> np.ndarray:
    """Return an array of bytes objects."""
    given = np.asarray(given, dtype=object)
    array = np.empty(given.shape, object)
    for index, item in np.ndenumerate(given):
        array[index] = item if isinstance(item, bytes) else str(item).encode()
    return array


def _tensor(array: np.ndarray) -> TensorProto:
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in array.shape])
    if array.dtype.kind in "OSU":
        return TensorProto(dtype=DataType.DT_STRING, tensor_shape=shape, string_val=list(strings(array).flat))
    dtype = DataType.Value(f"DT_{_PROTO_NAMES.get(array.dtype.name) or as_dtype(array.dtype).name.upper()}")
    if array.dtype == np.float32 and array.ndim == 0:
        return TensorProto(dtype=dtype, tensor_shape=shape, float_val=[float(array)])
    return TensorProto(dtype=dtype, tensor_shape=shape, tensor_content=np.ascontiguousarray(array).tobytes())


_PROTO_NAMES = {"float16": "HALF", "float32": "FLOAT", "float64": "DOUBLE"}


def _png(pixels: np.ndarray) -> bytes:
    """Return `[height, width, channels]` as a PNG file."""
    height, width, channels = pixels.shape
    kinds = {1: 0, 2: 4, 3: 2, 4: 6}  # Grey, grey and alpha, RGB, RGB and alpha.
    lines = b"".join(b"\0" + line.tobytes() for line in np.ascontiguousarray(pixels))
    header = struct.pack(">IIBBBBB", width, height, 8, kinds[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _wav(samples: np.ndarray, sample_rate: int) -> bytes:
    """Return `[frames, channels]` of 16 bits as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(samples.shape[1])
        out.setsampwidth(2)
        out.setframerate(sample_rate)
        out.writeframes(np.ascontiguousarray(samples).tobytes())
    return file.getvalue()
