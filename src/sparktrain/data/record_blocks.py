"""Reads the frames of TFRecord files, many records at a time.

A record is: its length (8 bytes, little end first), the masked CRC of those bytes (4), the
data, the masked CRC of the data (4).
"""

from __future__ import annotations

import gzip
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
#: So much is searched at once for a record behind damage.
_SEARCH_BYTES = 1 << 16
_DATA_PROBLEM = "the CRC of its {} bytes of data does not fit"


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
    yield from _Reader(stream, verify, on_damage).read(block_bytes)


class _Reader:
    def __init__(
        self, stream: IO[bytes], verify: bool, on_damage: Callable[[Damage], None]
    ) -> None:
        # What is compressed is read piece by piece: an error would take all of a larger one.
        self._read = getattr(stream, "read1", stream.read)
        self._verify = verify
        self._on_damage = on_damage
        self._data = b""
        #: Where the data begins in the stream.
        self._base = 0
        #: How many bytes the record has that the data begins with, as far as that is known.
        self._needed = HEAD.size
        #: Whether the data begins in the middle of damage that was told.
        self._is_lost = False
        self._is_at_end = False
        #: Why the stream could not be read to its end.
        self._broken: str | None = None
        #: CRC of lengths: records of one file have few different ones.
        self._known: dict[int, int] = {}

    def read(self, block_bytes: int) -> Iterator[tuple[Block, int]]:
        while not self._is_at_end:
            self._fill(block_bytes)
            yield from self._take()
        self._finish()

    def _fill(self, block_bytes: int) -> None:
        """Reads on until there is a whole record, or no more."""
        wanted = max(block_bytes, self._needed) - len(self._data)
        parts = [self._data]
        # In pieces: a length that is damaged would ask for memory that nobody has.
        while wanted > 0 and not self._is_at_end:
            try:
                part = self._read(min(wanted, BLOCK_BYTES))
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                # What is compressed is damaged itself: this is where it stops to make sense.
                self._broken = f"the file cannot be read on: {error}"
                part = b""
            self._is_at_end = not part
            parts.append(part)
            wanted -= len(part)
        self._data = b"".join(parts)

    def _take(self) -> Iterator[tuple[Block, int]]:
        """The records that are whole; what is behind them stays for the next time."""
        data, base, at = self._data, self._base, 0
        starts: list[int] = []
        ends: list[int] = []
        while True:
            chain = self._follow(data, at)
            good, bad = chain.split(data) if self._verify else (range(len(chain.starts)), [])
            at = chain.at
            if bad and chain.problem and bad[-1] == len(chain.starts) - 1:
                # Its length leads nowhere: one damage, behind which the next record is looked for.
                bad.pop()
                start, end = chain.starts.pop(), chain.ends.pop()
                at, chain.problem = start - HEAD.size, _DATA_PROBLEM.format(end - start)
            first = bad[0] if bad else len(chain.starts)
            starts += chain.starts[:first]
            ends += chain.ends[:first]
            if (bad or chain.problem) and starts:
                # What is good comes before damage is told, which may be the end of it.
                yield _make_block(data, starts, ends), base
                starts, ends = [], []
            for row in bad:
                size = chain.ends[row] - chain.starts[row]
                offset = base + chain.starts[row] - HEAD.size
                self._on_damage(Damage(offset, _DATA_PROBLEM.format(size)))
            behind = [row for row in good if row > first]
            starts += [chain.starts[row] for row in behind]
            ends += [chain.ends[row] for row in behind]
            if not chain.problem:
                break
            if not self._is_lost:
                self._on_damage(Damage(base + at, chain.problem))
            place = find_record(data, at + 1, is_whole=self._is_at_end, verify=self._verify)
            self._is_lost = place < 0
            at = place if place >= 0 else max(len(data) - HEAD.size + 1, at + 1)
            if self._is_lost:
                break
        if starts:
            self._is_lost = False
            yield _make_block(data, starts, ends), base
        self._data, self._base = data[at:], base + at
        self._needed = HEAD.size if self._is_lost else self._check_head(self._data, 0)[0]

    def _follow(self, data: bytes, at: int) -> _Chain:
        """Goes from one record to the next by their lengths."""
        starts: list[int] = []
        ends: list[int] = []
        last, known, problem = len(data) - HEAD.size, self._known, ""
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
        return _Chain(starts, ends, at, problem)

    def _check_head(self, data: bytes, at: int) -> tuple[int, str]:
        """How many bytes the record has in all, and what is wrong with its length."""
        if len(data) - at < HEAD.size:
            return HEAD.size, ""
        length, crc = HEAD.unpack_from(data, at)
        if mask_crc(data[at : at + 8]) != crc:
            hint = ""
            if self._base + at == 0 and data[:2] == b"\x1f\x8b":
                hint = "; it looks like gzip, which is read from files whose names end in .gz"
            return 0, f"the CRC of the length does not fit (it says {length} bytes{hint})"
        if length > MAX_BYTES:
            return 0, f"the length is {length} bytes, more than {MAX_BYTES}"
        if len(self._known) < 100_000:
            self._known[length] = crc
        return HEAD.size + length + FOOT.size, ""

    def _finish(self) -> None:
        left = len(self._data)
        if self._broken is not None:
            self._on_damage(Damage(self._base, self._broken))
        elif left and not self._is_lost:
            where = "inside the record" if left >= HEAD.size else "inside the record's head"
            problem = f"the file ends {where}, after {left} of its {self._needed} bytes"
            self._on_damage(Damage(self._base, problem))


@dataclass
class _Chain:
    """Records that follow one another by their lengths."""

    starts: list[int]
    ends: list[int]
    #: Where the next one begins, and what is wrong with its length.
    at: int
    problem: str

    def split(self, data: bytes) -> tuple[list[int], list[int]]:
        """Which of them have the CRC of their data, and which do not."""
        if not self.starts:
            return [], []
        places = np.array(self.ends, np.int64)[:, None] + np.arange(FOOT.size)
        written = np.frombuffer(data, np.uint8)[places].view("<u4").reshape(-1)
        is_good = mask_crcs(data, self.starts, self.ends) == written
        return np.flatnonzero(is_good).tolist(), np.flatnonzero(~is_good).tolist()


def _make_block(data: bytes, starts: list[int], ends: list[int]) -> Block:
    if len(data) - ends[-1] < varints.PADDING:
        data += _PADDING
    return Block(
        np.frombuffer(data, np.uint8), np.array(starts, np.int64), np.array(ends, np.int64)
    )


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


def find_record(data: bytes, at: int, *, is_whole: bool = False, verify: bool = True) -> int:
    """Where the next record begins that can be trusted; -1 if there is none in the data.

    Its length has its CRC. So has its data, as far as it is here, or if that is not to be
    verified, the length behind it.

    Args:
        is_whole: Whether nothing follows the data.
    """
    padded = np.frombuffer(data + _PADDING, np.uint8)
    words = varints.words_of(padded)
    last = max(len(data) - HEAD.size + 1, 0)
    for begin in range(at, last, _SEARCH_BYTES):
        # Nearly everything that is no length is far too large for one: few places are left.
        lengths = words[begin : min(begin + _SEARCH_BYTES, last)]
        places = np.flatnonzero(lengths <= MAX_BYTES)
        different, which = np.unique(lengths[places], return_inverse=True)
        eighths = range(0, 8 * len(different) + 1, 8)
        crcs = mask_crcs(different.astype("<u8").tobytes(), eighths[:-1], eighths[1:])[which]
        places += begin
        written = words[places + 8] & np.uint64(0xFFFFFFFF)
        for place in places[crcs == written].tolist():
            if _is_record(data, place, is_whole, verify):
                return int(place)
    return -1


def _is_record(data: bytes, place: int, is_whole: bool, verify: bool) -> bool:
    """Whether what is behind a length that has its CRC is as it should be."""
    (length, _) = HEAD.unpack_from(data, place)
    end = place + HEAD.size + length
    if end + FOOT.size > len(data):
        return not is_whole
    if verify:
        return bool(mask_crc(data[place + HEAD.size : end]) == FOOT.unpack_from(data, end)[0])
    follows = end + FOOT.size
    if len(data) - follows < HEAD.size:
        return not is_whole or len(data) == follows
    return bool(mask_crc(data[follows : follows + 8]) == HEAD.unpack_from(data, follows)[1])
