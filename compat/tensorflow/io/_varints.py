"""Numbers in as few bytes as they need, seven bits in each."""


def encode(number: int) -> bytes:
    """Return a number that is not negative as bytes, the lowest bits first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def decode(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and the place behind it.

    Raises:
        IndexError: If the bytes end within it.
        ValueError: If it has more than 64 bits.
    """
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if number >> 64:
        raise ValueError(f"a number of more than 64 bits ends at byte {at}")
    return number, at
