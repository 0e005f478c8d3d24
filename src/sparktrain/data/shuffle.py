"""The order of rows: a permutation of blocks, then a window of rows. Same seed, same order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa


def block_order(num_blocks: int, seed: int, pass_number: int) -> list[int]:
    """In which order to read the blocks of a complete spill."""
    return [int(i) for i in _rng(seed, pass_number, 0).permutation(num_blocks)]


def shuffle_window(
    blocks: Iterable[pa.RecordBatch], window: int, seed: int, pass_number: int
) -> Iterator[pa.RecordBatch]:
    """Mixes rows within a window of about so many rows.

    Keeps that many rows back. When half a window of new rows has come, all of them are mixed,
    and half a window leaves: each row is copied three times, however large the window is.
    """
    mixer = WindowMixer(window, seed, pass_number)
    for block in blocks:
        yield from mixer.add(block)
    yield from mixer.rest()


class WindowMixer:
    """The window by itself, for rows that come when they come."""

    def __init__(self, window: int, seed: int, pass_number: int = 0) -> None:
        self._rng = _rng(seed, pass_number, 1)
        self._window = window
        self._step = max(window // 2, 1)
        self._held: list[pa.RecordBatch] = []
        self._num_held = 0

    def add(self, block: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Takes rows in; gives out those that have to leave."""
        start = 0
        while start < block.num_rows:
            # Up to the same row always: where blocks begin and end decides nothing.
            piece = block.slice(start, self._window + self._step - self._num_held)
            self._held.append(piece)
            self._num_held += piece.num_rows
            start += piece.num_rows
            if self._num_held == self._window + self._step:
                mixed = _mix(self._held, self._rng)
                yield mixed.slice(0, self._step)
                self._held, self._num_held = [mixed.slice(self._step)], self._window

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Gives out all that is left."""
        if self._num_held:
            mixed = _mix(self._held, self._rng)
            self._held, self._num_held = [], 0
            yield mixed


def _mix(held: list[pa.RecordBatch], rng: np.random.Generator) -> pa.RecordBatch:
    table = pa.Table.from_batches(held).combine_chunks()
    order = rng.permutation(table.num_rows)
    return table.take(pa.array(order)).combine_chunks().to_batches()[0]


def _rng(seed: int, pass_number: int, use: int) -> np.random.Generator:
    return np.random.default_rng([seed, pass_number, use])
