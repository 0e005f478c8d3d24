"""Puts blocks of small files together: to read a block costs something, however small it is."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparktrain.data import varints
from sparktrain.data.record_blocks import HEAD, Block

#: A block that is larger is left alone.
_ENOUGH = 1 << 20


@dataclass(frozen=True)
class Group:
    """Records of one file or of several, as one block."""

    block: Block
    #: What the files have in common.
    common: Any
    #: The first row of each file's records, the file, and where the block's first byte would be.
    origins: tuple[tuple[int, str, int], ...]

    def locate(self, row: int) -> tuple[str, int]:
        """The file of a row, and the byte at which its record begins."""
        place = bisect.bisect_right([first for first, _, _ in self.origins], row) - 1
        _, path, base = self.origins[place]
        return path, base + int(self.block.starts[row]) - HEAD.size


def group_blocks(blocks: Iterable[tuple[Block, int, str, Any]]) -> Iterator[Group]:
    """Blocks with where their data begins in the file, the file, and what belongs to the file.

    Blocks come out in the order they came in; only files that have the latter in common are
    put together.
    """
    held: list[tuple[Block, int, str, Any]] = []
    size = 0
    for entry in blocks:
        block, common = entry[0], entry[3]
        if held and (size >= _ENOUGH or held[-1][3] != common):
            yield _join(held)
            held, size = [], 0
        held.append(entry)
        size += int(block.ends[-1] - block.starts[0])
    if held:
        yield _join(held)


def _join(held: list[tuple[Block, int, str, Any]]) -> Group:
    if len(held) == 1:
        block, base, path, common = held[0]
        return Group(block, common, ((0, path, base),))
    datas, starts, ends, origins = [], [], [], []
    at = row = 0
    for block, base, path, _ in held:
        first, last = int(block.starts[0]), int(block.ends[-1])
        datas.append(block.data[first:last])
        starts.append(block.starts + (at - first))
        ends.append(block.ends + (at - first))
        origins.append((row, path, base + first - at))
        at += last - first
        row += len(block)
    datas.append(np.zeros(varints.PADDING, np.uint8))
    whole = Block(np.concatenate(datas), np.concatenate(starts), np.concatenate(ends))
    return Group(whole, held[0][3], tuple(origins))
