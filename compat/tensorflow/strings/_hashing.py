"""`tf.strings.to_hash_bucket*`, `tf.fingerprint`: numbers that strings have in every process, and in TensorFlow."""

from collections.abc import Callable, Sequence
from typing import Any

import farmhash
import numpy as np
from siphash24 import siphash24

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._host_operation import numbers_of, strings_of
from tfdist_jax.compat.tensorflow._tensors._host import holds_texts
from tfdist_jax.compat.tensorflow._tensors._host_part import computes_rows
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

_MASK = 2**64 - 1
# Of MurmurHash64A, and TensorFlow's beginning of it.
_FACTOR, _SHIFT, _SEED = 0xC6A4A7935BD1E995, 47, 0xDECAFCAFFE


@computes_rows
def to_hash_bucket_fast(input: Any, num_buckets: int, name: str | None = None) -> Any:
    """Return FarmHash's fingerprint of strings, modulo `num_buckets`: int64 of their shape.

    Args:
        input: Strings `[...]`.
        num_buckets: How many numbers there are.
        name: Unused.

    Raises:
        InvalidArgumentError: If there are none.
    """
    return _buckets(_fingerprint, input, num_buckets)


@computes_rows
def to_hash_bucket_strong(input: Any, num_buckets: int, key: Sequence[int], name: str | None = None) -> Any:
    """Return SipHash of strings, modulo `num_buckets`: one that those who do not know the key cannot make collide.

    Args:
        input: Strings `[...]`.
        num_buckets: How many numbers there are.
        key: Two integers of 64 bits.
        name: Unused.

    Raises:
        InvalidArgumentError: If there are no buckets, or the key has another length.
    """
    if len(key) != 2:
        raise invalid("Key must have 2 elements")
    secret = b"".join((int(part) & _MASK).to_bytes(8, "little") for part in key)
    return _buckets(lambda text: siphash24(text, key=secret).intdigest() & _MASK, input, num_buckets)


@computes_rows
def to_hash_bucket(input: Any, num_buckets: int, name: str | None = None) -> Any:
    """Return the hash of strings that TensorFlow had first, modulo `num_buckets`: int64 of their shape."""
    return _buckets(_hash_first, input, num_buckets)


def _fingerprint(text: bytes) -> int:
    return farmhash.fingerprint64(text)  # pyright: ignore[reportArgumentType] # It takes bytes, too.


def _buckets(hash_text: Callable[[bytes], int], value: Any, num_buckets: int) -> Any:
    if num_buckets < 1:
        raise invalid(f"Value for attr 'num_buckets' of {num_buckets} must be at least minimum 1")
    texts = strings_of(value)
    numbers = np.fromiter(map(hash_text, texts.reshape(-1).tolist()), np.uint64, texts.size)
    return convert_to_tensor((numbers % np.uint64(num_buckets)).astype(np.int64).reshape(texts.shape))


def _hash_first(text: bytes) -> int:
    """MurmurHash64A, whose words of eight bytes are little-endian.

    Ref: https://github.com/aappleby/smhasher/blob/master/src/MurmurHash2.cpp
    """
    whole = len(text) & ~7
    value = _SEED ^ (len(text) * _FACTOR & _MASK)
    for word in np.frombuffer(text[:whole], "<u8").tolist():
        mixed = word * _FACTOR & _MASK
        mixed ^= mixed >> _SHIFT
        value = ((value ^ (mixed * _FACTOR & _MASK)) * _FACTOR) & _MASK
    if rest := text[whole:]:
        value = ((value ^ int.from_bytes(rest, "little")) * _FACTOR) & _MASK
    value = ((value ^ (value >> _SHIFT)) * _FACTOR) & _MASK
    return value ^ (value >> _SHIFT)


def fingerprint(data: Any, method: str = "farmhash64", name: str | None = None) -> Any:
    """Return the fingerprint of each row: its eight bytes, the lowest first, `[rows, 8]` uint8.

    Args:
        data: Strings or numbers `[rows, ...]`.
        method: "farmhash64".
        name: Unused.

    Raises:
        InvalidArgumentError: If there are no rows, or it is another method.
    """
    if method != "farmhash64":
        raise invalid(f"Unsupported fingerprint method: {method}")
    tensor = convert_to_tensor(data)
    if tensor.ndim == 0:
        raise invalid("`data` should have at least one dimension: []")
    is_text = holds_texts(tensor)
    array = np.asarray(tensor, object) if is_text else numbers_of(tensor)
    rows = [_of_strings(row) if is_text else _fingerprint(row.tobytes()) for row in array]
    return convert_to_tensor(np.array(rows, "<u8").reshape(-1, 1).view(np.uint8))


def _of_strings(row: Any) -> int:
    """Return the fingerprint of a row of strings: of their own fingerprints, if they are several."""
    prints = [_fingerprint(text) for text in np.asarray(row, object).reshape(-1).tolist()]
    return prints[0] if len(prints) == 1 else _fingerprint(np.array(prints, "<u8").tobytes())
