"""Reads the frames of TFRecord files, many records at a time.

A record is: its length (8 bytes, little end first), the masked CRC of those bytes (4), the
data, the masked CRC of the data (4).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import google_crc32c
import numpy as np

from sparktrain.data import varints

HEAD = struct.Struct("<QI")
FOOT = struct.Struct("<I")
#: A length beyond that is damage, however well its CRC fits; nobody could read the record.
MAX_BYTES = 1 << 34
#: How much is read at once. A block has at least one record, and no more than fits into that.
BLOCK_BYTES = 8 << 20
_PADDING = bytes(varints.PADDING)
#: Records of more bytes are large.
_LARGE = 4096


@dataclass(frozen=True)
class Block:
    """Records in one array of bytes, which has varints.PADDING more at its end."""

    data: Any
    starts: Any
    ends: Any

    def __len__(self) -> int:
        return len(self.starts)

    def row(self, number: int) -> bytes:
        return bytes(self.data[self.starts[number] : self.ends[number]])


@dataclass
class Damage(Exception):  # noqa: N818 (it is raised only if nobody takes it)
    """What is wrong, and at which byte of the stream the record begins."""

    offset: int
    problem: str


def mask_crc(data: bytes) -> int:
    """CRC-32C as TFRecord stores it: turned by 15 bits, plus a constant."""
    crc = int(google_crc32c.value(data))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def raise_damage(damage: Damage) -> None:
    raise damage


def read_blocks(
    stream: IO[bytes],
    *,
    verify: bool = True,
    on_damage: Callable[[Damage], None] = raise_damage,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[tuple[Block, int]]:
    """Blocks of records, and the offset in the stream of the first byte of each block's data.

    Args:
        verify: Checks the CRC of the data too. That of the length is always checked.
        on_damage: Raises by default. If it returns, reading goes on with the next record that
            can be found; at the end of a stream that is cut off there is none.
    """
    reader = _Reader(stream, verify, on_damage)
    while True:
        reader.fill(block_bytes)
        block, base = reader.take()
        if len(block):
            yield block, base
        if reader.is_done:
            return


class _Reader:
    def __init__(
        self, stream: IO[bytes], verify: bool, on_damage: Callable[[Damage], None]
    ) -> None:
        self._stream = stream
        self._verify = verify
        self._on_damage = on_damage
        self._data = b""
        #: Where the data begins in the stream.
        self._base = 0
        #: How much of the next record is known to be needed.
        self._needed = 0
        self._is_at_end = False
        self.is_done = False
        #: Why the stream could not be read to its end.
        self._broken: str | None = None
        #: CRC of lengths: records of one file have few different ones.
        self._known: dict[int, int] = {}

    def fill(self, block_bytes: int) -> None:
        """Reads on until there is a whole record, or no more."""
        wanted = max(block_bytes, self._needed) - len(self._data)
        parts = [self._data]
        # In pieces: a length that is damaged would ask for memory that nobody has.
        while wanted > 0 and not self._is_at_end:
            try:
                part = self._stream.read(min(wanted, BLOCK_BYTES))
            except (EOFError, OSError, zlib.error) as error:
                self._is_at_end = True
                self._data = b"".join(parts)
                # What is compressed is damaged itself: this is where it stops to make sense.
                self._broken = f"the file cannot be read on: {error}"
                return
            self._is_at_end = not part
            parts.append(part)
            wanted -= len(part)
        self._data = b"".join(parts)

    def take(self) -> tuple[Block, int]:
        """The records that are whole; what is behind them stays for the next time."""
        data, base = self._data, self._base
        starts, ends, at, problem = self._find_whole(data)
        self._needed = 0
        if not starts:
            while problem:
                self._on_damage(Damage(base + at, problem))
                at = find_record(data, at + 1, self._is_at_end)
                if at < 0:
                    at = max(len(data) - HEAD.size + 1, 0)
                    break
                problem = self._check_head(data, at)[1]
            self._needed = self._check_head(data, at)[0]
        # Otherwise what is good comes first: the caller gets it before the damage is told.
        self._data, self._base = data[at:], base + at
        if self._is_at_end and not starts and len(self._data) < max(self._needed, HEAD.size):
            self._finish()
        places = np.array(starts, np.int64), np.array(ends, np.int64)
        if len(data) - at < varints.PADDING:
            data += _PADDING
        return Block(np.frombuffer(data, np.uint8), *places), base

    def _find_whole(self, data: bytes) -> tuple[list[int], list[int], int, str]:
        """Starts and ends of records up to the first that is damaged or not all there.

        Also where that one begins, and what is wrong with it.
        """
        starts: list[int] = []
        ends: list[int] = []
        at, last, known, problem = 0, len(data) - HEAD.size, self._known, ""
        unpack, limit = HEAD.unpack_from, len(data) - FOOT.size
        while at <= last:
            length, crc = unpack(data, at)
            if known.get(length) != crc:
                problem = self._check_head(data, at)[1]
                if problem:
                    break
            end = at + HEAD.size + length
            if end > limit:
                break
            starts.append(at + HEAD.size)
            ends.append(end)
            at = end + FOOT.size
        if self._verify and starts:
            bad = _find_bad(data, starts, ends)
            if bad is not None:
                at = starts[bad] - HEAD.size
                problem = f"the CRC of its {ends[bad] - starts[bad]} bytes of data does not fit"
                del starts[bad:], ends[bad:]
        return starts, ends, at, problem

    def _check_head(self, data: bytes, at: int) -> tuple[int, str]:
        """How many bytes the record has in all, and what is wrong with its length."""
        if len(data) - at < HEAD.size:
            return HEAD.size, ""
        length, crc = HEAD.unpack_from(data, at)
        if mask_crc(data[at : at + 8]) != crc:
            return 0, f"the CRC of the length does not fit (it says {length} bytes)"
        if length > MAX_BYTES:
            return 0, f"the length is {length} bytes, more than {MAX_BYTES}"
        if len(self._known) < 100_000:
            self._known[length] = crc
        return HEAD.size + length + FOOT.size, ""

    def _finish(self) -> None:
        self.is_done = True
        left = len(self._data)
        if self._broken is not None:
            self._on_damage(Damage(self._base, self._broken))
        elif left >= HEAD.size:
            problem = f"the file ends inside the record, after {left} of its {self._needed} bytes"
            self._on_damage(Damage(self._base, problem))
        elif left:
            problem = f"the file ends inside the record's head, {left} bytes into the record"
            self._on_damage(Damage(self._base, problem))


def _find_bad(data: bytes, starts: list[int], ends: list[int]) -> int | None:
    """The first of these records whose data does not have its CRC."""
    places = np.array(ends, np.int64)[:, None] + np.arange(FOOT.size)
    written = np.frombuffer(data, np.uint8)[places].view("<u4").reshape(-1)
    bad = np.flatnonzero(mask_crcs(data, starts, ends) != written)
    return int(bad[0]) if len(bad) else None


def mask_crcs(data: Any, starts: Sequence[int], ends: Sequence[int]) -> Any:
    """CRCs of many pieces of the data, as TFRecord stores them."""
    # A piece of bytes is copied for it, which is soon done if it is small; one of an array not.
    is_small = len(data) < len(starts) * _LARGE
    pieces: Any = bytes(data) if is_small else np.frombuffer(data, np.uint8)
    slices = map(slice, starts, ends)
    crcs = list(map(google_crc32c.value, map(pieces.__getitem__, slices)))
    found = np.array(crcs, np.uint64)
    turned = (found >> np.uint64(15)) | (found << np.uint64(17))
    return ((turned & np.uint64(0xFFFFFFFF)) + np.uint64(0xA282EAD8)).astype("<u4")


def find_record(data: bytes, at: int, is_whole: bool = False) -> int:
    """Where the next record begins that can be trusted; -1 if there is none in the data.

    Its length has its CRC; so has its data, as far as it is here.
    """
    padded = np.frombuffer(data + _PADDING, np.uint8)
    lengths = varints.words_of(padded)[: max(len(data) - HEAD.size + 1, 0)]
    # Nearly everything that is no length is far too large for one: few places are left.
    for place in (np.flatnonzero(lengths[at:] <= MAX_BYTES) + at).tolist():
        length, crc = HEAD.unpack_from(data, place)
        if mask_crc(data[place : place + 8]) != crc:
            continue
        end = place + HEAD.size + length
        if end + FOOT.size > len(data):
            if is_whole:
                continue
            return place
        if mask_crc(data[place + HEAD.size : end]) == FOOT.unpack_from(data, end)[0]:
            return place
    return -1
