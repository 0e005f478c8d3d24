"""Batches of one size from blocks of any size."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from sparktrain.data.batches import cut


def make_blocks(*sizes: int) -> Iterator[pa.RecordBatch]:
    start = 0
    for size in sizes:
        numbers = list(range(start, start + size))
        ragged = pa.array([[n] * (n % 3) for n in numbers], pa.large_list(pa.int64()))
        yield pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64()), ragged], names=["n", "r"])
        start += size


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 8, 100])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize(
    "sizes", [[], [0], [0, 0, 3, 0], [1], [8], [24], [3, 3, 3], [1] * 17, [5, 0, 16, 2, 1]]
)
def test_all_batches_are_full_but_the_last(batch_size: int, drop: bool, sizes: list[int]) -> None:
    batches = list(cut(make_blocks(*sizes), batch_size, drop))
    full, rest = divmod(sum(sizes), batch_size)
    expected = [batch_size] * full + [rest] * (rest > 0 and not drop)
    assert [batch.num_rows for batch in batches] == expected
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [{"n": n, "r": [n] * (n % 3)} for n in range(sum(expected))]


def test_a_batch_leaves_as_soon_as_it_is_full() -> None:
    given: list[int] = []

    def count() -> Iterator[pa.RecordBatch]:
        for block in make_blocks(4, 4, 4):
            given.append(block.num_rows)
            yield block

    batches = cut(count(), 4, False)
    for number in (1, 2, 3):
        next(batches)
        assert len(given) == number


def test_a_batch_within_a_block_is_not_copied() -> None:
    (block,) = make_blocks(100)
    (first, *_) = cut([block], 10, False)
    assert first.column("n").buffers()[1].address == block.column("n").buffers()[1].address
