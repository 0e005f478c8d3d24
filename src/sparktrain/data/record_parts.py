"""Splits TFRecord files into tasks of about the same size, and reads such parts.

A large file is cut at any byte: a part has the records that begin in it. Where the first one
is, nothing in the file says. It is looked for: a length with its CRC, data with its CRC, and
behind it a whole chain of such records, of 8 MB. (Records that have more than that of records as
their own data are the one thing that can be taken for what they contain.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from sparktrain.data.record_blocks import (
    BLOCK_BYTES,
    FOOT,
    HEAD,
    MAX_BYTES,
    Block,
    Damage,
    find_record,
    mask_crc,
    raise_damage,
    read_blocks,
)
from sparktrain.data.shards import FileInfo
from sparktrain.data.storage import find_compression

#: What opening a file costs, in bytes that could have been read meanwhile. On a local disk it is
#: less, in a store on the network more; but a task of Spark's in Python costs 50 ms by itself.
OPEN_COST = 256 << 10
#: So far the chain behind a record is followed before the record is believed.
_CHAIN_BYTES = BLOCK_BYTES


@dataclass(frozen=True)
class Part:
    """The records of a file that begin in a range of bytes; end None is the file's end."""

    url: str
    path: str
    start: int = 0
    end: int | None = None


def plan_tasks(infos: Iterable[FileInfo], task_bytes: int) -> list[list[Part]]:
    """What each task reads: a piece of a large file, or several small ones."""
    tasks: list[list[Part]] = []
    pending: list[Part] = []
    filled = 0
    for info in infos:
        is_cut = info.size > task_bytes and not find_compression(info.path)
        if is_cut:
            num_parts = -(-info.size // task_bytes)
            places = [info.size * number // num_parts for number in range(num_parts)]
            ends: list[int | None] = [*places[1:], None]
            for start, end in zip(places, ends, strict=True):
                tasks.append([Part(info.url, info.path, start, end)])
            continue
        if pending and filled + info.size + OPEN_COST > task_bytes:
            tasks.append(pending)
            pending, filled = [], 0
        pending.append(Part(info.url, info.path))
        filled += info.size + OPEN_COST
    return [*tasks, pending] if pending else tasks


def read_part(
    stream: IO[bytes],
    part: Part,
    *,
    verify: bool = True,
    on_damage: Callable[[Damage], None] = raise_damage,
) -> Iterator[tuple[Block, int]]:
    """Blocks of the part's records, and the offset in the file of each block's first byte."""
    first = 0
    if part.start:
        found = find_first(stream, part.start, verify=verify)
        if found is None:
            return
        first = found
        stream.seek(first)
    for block, base in read_blocks(stream, verify=verify, on_damage=_moved(on_damage, first)):
        begin = first + base
        if part.end is None:
            yield block, begin
            continue
        kept = int((block.starts + (begin - HEAD.size) < part.end).sum())
        if kept:
            yield Block(block.data, block.starts[:kept], block.ends[:kept]), begin
        if kept < len(block):
            return


def _moved(tell: Callable[[Damage], None], by: int) -> Callable[[Damage], None]:
    return lambda damage: tell(Damage(by + damage.offset, damage.problem))


def find_first(stream: IO[bytes], start: int, *, verify: bool = True) -> int | None:
    """Where the first record begins at or behind this byte; None if none does."""
    base, data = start, b""
    stream.seek(start)
    while True:
        more = stream.read(BLOCK_BYTES)
        data += more
        place = find_record(data, 0, is_whole=not more, verify=verify)
        if place >= 0:
            # Data may itself look like a record, and damage like the end of such data: which of
            # the two it is, only the way from the file's beginning can tell.
            is_sure = _has_chain(stream, base + place)
            return base + place if is_sure else _walk(stream, start, verify)
        if not more:
            return None
        kept = max(len(data) - HEAD.size + 1, 0)  # it may be the beginning of a head
        data, base = data[kept:], base + kept


def _walk(stream: IO[bytes], start: int, verify: bool) -> int | None:
    """As whoever reads the file from its beginning would come there."""
    stream.seek(0)
    for block, base in read_blocks(stream, verify=verify, on_damage=lambda damage: None):
        places = block.starts + (base - HEAD.size)
        behind = places[places >= start]
        if len(behind):
            return int(behind[0])
    return None


def _has_chain(stream: IO[bytes], start: int) -> bool:
    """Whether records follow one another from here on: data may itself look like a record."""
    at = start
    while at < start + _CHAIN_BYTES:
        stream.seek(at)
        head = stream.read(HEAD.size)
        if not head:
            return True
        if len(head) < HEAD.size:
            return False
        length, crc = HEAD.unpack(head)
        if mask_crc(head[:8]) != crc or length > MAX_BYTES:
            return False
        at += HEAD.size + length + FOOT.size
    return True
