"""`tf.audio.decode_wav`, `encode_wav`: sounds as bytes of WAV files of 16-bit samples, read and written by Python's `wave`."""

import io
import wave
from typing import Any, NamedTuple

import jax
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import string
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

_SAMPLE_BYTES, _SCALE = 2, 1 << 15


class DecodeWav(NamedTuple):
    """A sound.

    Attributes:
        audio: `[samples, channels]` float32 from -1 to 1.
        sample_rate: Samples per second, `[]` int32.
    """

    audio: jax.Array
    sample_rate: jax.Array


def decode_wav(
    contents: Any, desired_channels: int = -1, desired_samples: int = -1, name: str | None = None
) -> DecodeWav:
    """Return the sound of a WAV file's bytes.

    See https://www.tensorflow.org/api_docs/python/tf/audio/decode_wav.

    Args:
        contents: The bytes, a string.
        desired_channels: How many channels; further ones are the file's last one again. The file's number if negative.
        desired_samples: How many samples; further ones are zero. The file's number if negative.
        name: Unused.

    Raises:
        InvalidArgumentError: If it is no WAV file, is cut off, or has samples of another size than 16 bits.
    """
    text = np.asarray(convert_to_tensor(contents, string), object)
    if text.ndim:
        raise invalid(f"contents must be scalar, got shape {list(text.shape)}")
    try:
        with wave.open(io.BytesIO(text.item()), "rb") as file:
            width, rate = file.getsampwidth(), file.getframerate()
            count, channels, raw = file.getnframes(), file.getnchannels(), file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise invalid(f"contents is no WAV file of samples as they are: {error or 'it is too short'}") from None
    if width != _SAMPLE_BYTES:
        raise invalid(f"Can only read 16-bit WAV files, but received {8 * width}")
    if len(raw) < count * channels * width:
        raise invalid(
            f"The WAV file is too short: it has {len(raw)} of {count * channels * width} bytes that its head announces."
        )
    samples = np.frombuffer(raw, "<i2").reshape(count, channels).astype(np.float32) / np.float32(_SCALE)
    if desired_channels >= 0:
        samples = samples[:, np.minimum(np.arange(desired_channels), channels - 1)]
    if desired_samples >= 0:
        samples = np.pad(samples[:desired_samples], [(0, max(0, desired_samples - count)), (0, 0)])
    return DecodeWav(convert_to_tensor(samples), convert_to_tensor(np.int32(rate)))


def encode_wav(audio: Any, sample_rate: Any, name: str | None = None) -> HostTensor:
    """Return the bytes of a WAV file of a sound.

    See https://www.tensorflow.org/api_docs/python/tf/audio/encode_wav.

    Args:
        audio: `[samples, channels]` float32; what is outside of -1 to 1 is cut off.
        sample_rate: Samples per second.
        name: Unused.

    Raises:
        InvalidArgumentError: If `audio` has another rank or no channels, or there are no samples per second.
    """
    samples = np.asarray(convert_to_tensor(audio, _dtypes.float32))
    rate = int(np.asarray(sample_rate))
    if samples.ndim != 2:
        raise invalid(f"audio must be 2-dimensional{list(samples.shape)}")
    if not 0 < samples.shape[1] < 1 << 16:
        raise invalid(f"num_channels must be in (0, 2^16), got: {samples.shape[1]}")
    if not 0 < rate < 1 << 32:
        raise invalid(f"sample_rate must be in (0, 2^32), got: {rate}")
    scaled = samples * np.float32(_SCALE)
    # Halves away from zero, which NumPy rounds to even numbers.
    whole = np.clip(np.trunc(scaled + np.copysign(np.float32(0.5), scaled)), -_SCALE, _SCALE - 1).astype("<i2")
    with io.BytesIO() as buffer:
        with wave.open(buffer, "wb") as file:
            file.setparams((samples.shape[1], _SAMPLE_BYTES, rate, len(whole), "NONE", "not compressed"))
            file.writeframes(whole.tobytes())
        return convert_to_tensor(buffer.getvalue())
