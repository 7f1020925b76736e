"""Protocol buffers on the wire: varints, lengths, and skipping of unknown fields. Every read is bounded."""

from gangline.base.errors import InputError

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)

_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}


class ProtobufError(InputError):
    """Bytes that are not the expected protobuf message."""


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The unsigned 64-bit number at `at`, and the position after it. Raises `ProtobufError`."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise ProtobufError(f"the number that ends before byte {at} is longer than 64 bits")
    raise truncated_error(end)


def block_bounds(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Start and end of the bytes whose length is at `at`. Raises `ProtobufError`."""
    length, at = read_varint(data, at, end)
    if length > end - at:
        raise truncated_error(end)
    return at, at + length


def fixed_end(at: int, end: int, size: int) -> int:
    """The position after a value of `size` bytes. Raises `ProtobufError`."""
    if size > end - at:
        raise truncated_error(end)
    return at + size


def skip_value(data: bytes, at: int, end: int, wire: int) -> int:
    """The position after the value at `at`. A group is skipped with its content. Raises `ProtobufError`."""
    groups = 0
    while True:
        match wire:
            case 0:
                _, at = read_varint(data, at, end)
            case 2:
                _, at = block_bounds(data, at, end)
            case 1 | 5:
                at = fixed_end(at, end, _FIXED_SIZES[wire])
            case 3:
                groups += 1
            case 4 if groups:
                groups -= 1
            case _:
                raise ProtobufError(f"the value at byte {at} has wire type {wire}, which cannot be here")
        if not groups:
            return at
        tag, at = read_varint(data, at, end)
        wire = tag & 7


def to_signed(value: int, bits: int) -> int:
    """The two's complement number in the lowest `bits` bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def truncated_error(at: int) -> ProtobufError:
    return ProtobufError(f"the message ends at byte {at}, in the middle of a value")


def varint(value: int) -> bytes:
    """An unsigned number, or a negative one in two's complement of 64 bits."""
    if 0 <= value < 128:
        return _SMALL_VARINTS[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def block(number: int, content: bytes) -> bytes:
    """A field whose value is bytes."""
    return b"%b%b%b" % (varint(number << 3 | BYTES), varint(len(content)), content)


_SMALL_VARINTS = [bytes((value,)) for value in range(128)]
