"""`tf.strings.unicode_*`: characters and the bytes that encode them."""

import codecs
from collections.abc import Callable
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._host_operation import (
    make_strings,
    map_strings,
    numbers_of,
    require_choice,
    strings_of,
)
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._host_part import computes_rows
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged
from tfdist_jax.compat.tensorflow.strings._splitting import of_each

_OUTPUTS = {"UTF-8": "utf-8", "UTF-16-BE": "utf-16-be", "UTF-32-BE": "utf-32-be"}
_ERRORS = ("strict", "replace", "ignore")
_REPLACEMENT, _SURROGATES, _END = 0xFFFD, range(0xD800, 0xE000), 0x110000
# A surrogate is no character: it stands for bytes that encode none, and says how many they are.
_MARK, _MOST = 0xD800, 0x7FF


def unicode_encode(
    input: Any,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = _REPLACEMENT,
    name: str | None = None,
) -> Any:
    """Return strings of characters.

    Args:
        input: Unicode code points `[..., characters]`, int32.
        output_encoding: "UTF-8", "UTF-16-BE" or "UTF-32-BE".
        errors: What becomes of numbers that are no code points: "replace", "ignore", or "strict" for an error.
        replacement_char: The code point that stands in their place.
        name: Unused.

    Returns:
        Strings `[...]`.

    Raises:
        InvalidArgumentError: If a number is no code point, and `errors` is "strict".
    """
    require_choice(output_encoding, "output_encoding", _OUTPUTS)
    if isinstance(input, Ragged):
        return _encode_ragged(input, output_encoding, errors, replacement_char)
    codes = numbers_of(input, _dtypes.int32)
    if not codes.ndim:
        raise ValueError("input_tensor's rank must be at least 1.")
    rows = codes.reshape(-1, codes.shape[-1]).tolist() if codes.size else [[]] * int(np.prod(codes.shape[:-1]))
    encode = make_encoder(output_encoding, errors, replacement_char)
    return make_strings(map(encode, rows), codes.shape[:-1])


def _encode_ragged(codes: Any, output_encoding: str, errors: str, replacement_char: int) -> Any:
    if len(codes.partitions) > 1 or codes.inner_sizes:
        return codes.with_values(unicode_encode(codes.values, output_encoding, errors, replacement_char))
    rows = codes.to_list()
    return make_strings(map(make_encoder(output_encoding, errors, replacement_char), rows), (len(rows),))


def make_encoder(output_encoding: str, errors: str, replacement_char: int) -> Callable[[list[int]], bytes]:
    """Return what encodes code points."""
    require_choice(errors, "errors", ("ignore", "replace", "strict"))
    _check_replacement(replacement_char)

    def encode(codes: list[int]) -> bytes:
        kept = []
        for code in codes:
            if 0 <= code < _END and code not in _SURROGATES:
                kept.append(chr(code))
            elif errors == "strict":
                raise invalid("Code point is out of range for Unicode, or is a surrogate.")
            elif errors == "replace":
                kept.append(chr(replacement_char))
        return "".join(kept).encode(_OUTPUTS[output_encoding])

    return encode


@computes_rows
def unicode_transcode(
    input: Any,
    input_encoding: str,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = _REPLACEMENT,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Any:
    """Return strings in another encoding.

    Args:
        input: Strings `[...]`.
        input_encoding: Their encoding, such as "UTF-8", "UTF-16-LE", "ISO-8859-1".
        output_encoding: "UTF-8", "UTF-16-BE" or "UTF-32-BE".
        errors: What becomes of bytes that encode no character: "replace", "ignore", or "strict" for an error.
        replacement_char: The code point that stands in their place.
        replace_control_characters: Whether the characters U+0000 to U+001F count as such.
        name: Unused.

    Raises:
        InvalidArgumentError: If bytes encode no character, and `errors` is "strict"; if an encoding is not known.
    """
    require_choice(output_encoding, "output_encoding", _OUTPUTS)
    decode = make_decoder(input_encoding, errors, replacement_char, replace_control=replace_control_characters)
    encoding = _OUTPUTS[output_encoding]
    transcode = lambda text: "".join(character for character, _ in decode(text)).encode(encoding)
    return map_strings(transcode, strings_of(input))


def unicode_decode(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = _REPLACEMENT,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Any:
    """Return the characters of strings as code points, int32.

    Args:
        input: Strings, also ragged ones.
        input_encoding: Their encoding, such as "UTF-8", "UTF-16-LE", "ISO-8859-1".
        errors: What becomes of bytes that encode no character: "replace", "ignore", or "strict" for an error.
        replacement_char: The code point that stands in their place.
        replace_control_characters: Whether the characters U+0000 to U+001F count as such.
        name: Unused.

    Returns:
        A ragged tensor with an axis more; of a scalar a tensor.

    Raises:
        InvalidArgumentError: If bytes encode no character, and `errors` is "strict"; if the encoding is not known.
    """
    decode = make_decoder(input_encoding, errors, replacement_char, replace_control=replace_control_characters)
    return of_each(input, decode, _codes)


def unicode_decode_with_offsets(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = _REPLACEMENT,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return what `unicode_decode` does, and where the characters begin in the strings, int64."""
    decode = make_decoder(input_encoding, errors, replacement_char, replace_control=replace_control_characters)
    return of_each(input, decode, _codes), of_each(input, decode, _offsets)


def unicode_split(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = _REPLACEMENT,
    name: str | None = None,
) -> Any:
    """Return the characters of strings, as strings in the same encoding; the arguments are those of `unicode_decode`."""
    return unicode_split_with_offsets(input, input_encoding, errors, replacement_char)[0]


def unicode_split_with_offsets(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = _REPLACEMENT,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return what `unicode_split` does, and where the characters begin in the strings, int64."""
    require_choice(input_encoding, "output_encoding", _OUTPUTS)
    decode = make_decoder(input_encoding, errors, replacement_char, replace_control=False)
    encode = lambda parts: make_strings((one.encode(_OUTPUTS[input_encoding]) for one, _ in parts), (len(parts),))
    return of_each(input, decode, encode), of_each(input, decode, _offsets)


def _codes(characters: list[tuple[str, int]]) -> Any:
    return convert_to_tensor(np.array([ord(character) for character, _ in characters], np.int32))


def _offsets(characters: list[tuple[str, int]]) -> Any:
    return convert_to_tensor(np.array([at for _, at in characters], np.int64))


def make_decoder(
    input_encoding: str, errors: str, replacement_char: int, *, replace_control: bool
) -> Callable[[bytes], list[tuple[str, int]]]:
    """Return what decodes a string: into its characters, with the places of their first bytes."""
    require_choice(errors, "errors", _ERRORS)
    _check_replacement(replacement_char)
    try:
        codec = codecs.lookup(input_encoding)
    except LookupError:
        raise invalid(f"Could not create converter for input encoding: {input_encoding}") from None
    replacement = [chr(replacement_char)] if errors == "replace" else []

    def decode(text: bytes) -> list[tuple[str, int]]:
        characters, at = [], 0
        for character in codec.decode(text, "tfdist_jax.mark")[0]:
            is_mark = ord(character) in _SURROGATES
            if is_mark or (replace_control and character < " "):
                if errors == "strict":
                    raise invalid("Invalid formatting on input string")
                characters += [(other, at) for other in replacement]
            else:
                characters.append((character, at))
            at += ord(character) - _MARK if is_mark else len(codec.encode(character)[0])
        return characters

    return decode


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return chr(_MARK + min(error.end - error.start, _MOST)), error.end


codecs.register_error("tfdist_jax.mark", _mark)


def _check_replacement(code: int) -> None:
    if not 0 <= code < _END or code in _SURROGATES:
        raise invalid("replacement_char out of unicode codepoint range")
