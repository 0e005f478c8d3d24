"""The frames of TFRecord files, read without TensorFlow to find where one is broken.

A record is: its length (8 bytes, little end first), the masked CRC of those bytes (4), the
data, the masked CRC of the data (4). TensorFlow checks both while it reads, but names neither
the file nor the byte of what it finds; this says both, afterwards.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import IO

import google_crc32c

_HEAD = struct.Struct("<QI")
_FOOT = struct.Struct("<I")
#: A length beyond that is damage, however well its CRC fits; nobody could read the record.
_MAX_BYTES = 1 << 34
_CHUNK = 1 << 24


def mask_crc(data: bytes) -> int:
    """CRC-32C as TFRecord stores it: turned by 15 bits, plus a constant."""
    crc = int(google_crc32c.value(data))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def pack_record(data: bytes) -> bytes:
    """The frame of one record."""
    length = struct.pack("<Q", len(data))
    return b"".join(
        (length, _FOOT.pack(mask_crc(length)), data, _FOOT.pack(mask_crc(data))),
    )


def find_damage(stream: IO[bytes]) -> tuple[int, str] | None:
    """Where the first broken record starts and what is wrong with it; None if all are whole.

    The offset counts bytes of the stream: uncompressed ones if the file is compressed.
    """
    for offset, problem in _check(stream):
        if problem:
            return offset, problem
    return None


def _check(stream: IO[bytes]) -> Iterator[tuple[int, str]]:
    offset = 0
    while True:
        try:
            size, problem = _check_record(stream)
        except (EOFError, OSError, zlib.error) as error:
            # What is compressed is damaged itself: this is where it stops to make sense.
            size, problem = 0, f"the file cannot be read on: {error}"
        yield offset, problem
        if problem or not size:
            return
        offset += size


def _check_record(stream: IO[bytes]) -> tuple[int, str]:
    """The size of the frame that is read next, 0 at the end, and what is wrong with it."""
    head = _read(stream, _HEAD.size)
    if not head:
        return 0, ""
    if len(head) < _HEAD.size:
        return 0, f"the file ends inside the record's head, {len(head)} bytes into the record"
    length, crc = _HEAD.unpack(head)
    if mask_crc(head[:8]) != crc:
        return 0, f"the CRC of the length does not fit (it says {length} bytes)"
    if length > _MAX_BYTES:
        return 0, f"the length is {length} bytes, more than {_MAX_BYTES}"
    body = _read(stream, length + _FOOT.size)
    if len(body) < length + _FOOT.size:
        found = len(head) + len(body)
        whole = len(head) + length + _FOOT.size
        return 0, f"the file ends inside the record, after {found} of its {whole} bytes"
    data = body[:-4]
    if mask_crc(data) != _FOOT.unpack(body[-4:])[0]:
        return 0, f"the CRC of its {length} bytes of data does not fit"
    return len(head) + len(body), ""


def _read(stream: IO[bytes], size: int) -> bytes:
    """So many bytes, or what there is: in chunks, since a damaged length asks for too much."""
    data = stream.read(min(size, _CHUNK))
    if len(data) == size or not data:
        return data
    parts = [data]
    left = size - len(data)
    while left and data:
        data = stream.read(min(left, _CHUNK))
        parts.append(data)
        left -= len(data)
    return b"".join(parts)
