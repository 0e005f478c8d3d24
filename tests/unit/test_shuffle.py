"""The order of rows: reproducible, every row once, and really mixed.

The order within a window is a matter of seed, pass and window alone: the same rows in other
blocks come in the same order. block_order() moves blocks, so there they do matter.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.data.shuffle import block_order, shuffle_window


def make_blocks(*sizes: int) -> Iterator[pa.RecordBatch]:
    """Numbered rows, in a fixed-size list, a ragged one and bytes as well."""
    start = 0
    for size in sizes:
        numbers = np.arange(start, start + size)
        fixed = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(numbers, 2)), 2)
        ragged = pa.array([[n] * (n % 3) for n in numbers.tolist()], pa.large_list(pa.int64()))
        text = pa.array([b"%d" % n for n in numbers.tolist()], pa.large_binary())
        yield pa.RecordBatch.from_arrays(
            [pa.array(numbers), fixed, ragged, text], names=["n", "fixed", "ragged", "text"]
        )
        start += size


def mix(sizes: list[int], window: int, seed: int = 0, pass_number: int = 0) -> list[int]:
    found: list[int] = []
    for block in shuffle_window(make_blocks(*sizes), window, seed, pass_number):
        assert block.num_rows > 0
        found += block.column("n").to_pylist()
    return found


def cut(total: int, seed: int) -> list[int]:
    """Sizes of blocks, some of them empty, with a given sum."""
    rng = random.Random(seed)
    edges = sorted([0, total, *(rng.randrange(total + 1) for _ in range(12))])
    return [stop - start for start, stop in itertools.pairwise(edges)]


def test_blocks_come_in_an_order_of_seed_and_pass() -> None:
    orders = {
        tuple(block_order(20, seed, number)) for seed in range(5) for number in range(5)
    }  # fmt: skip
    assert len(orders) == 25
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert block_order(20, 3, 4) == block_order(20, 3, 4)
    assert block_order(0, 1, 1) == [] and block_order(1, 1, 1) == [0]


def test_the_same_seed_and_pass_give_the_same_rows_in_the_same_order() -> None:
    sizes = cut(500, 1)
    assert mix(sizes, 64, 7, 2) == mix(sizes, 64, 7, 2)


def test_other_seeds_and_passes_give_other_orders() -> None:
    sizes = cut(500, 1)
    orders = {tuple(mix(sizes, 64, seed, number)) for seed in range(4) for number in range(4)}
    assert len(orders) == 16


@pytest.mark.parametrize("window", [1, 2, 3, 10, 64, 499, 500, 501, 10_000])
@pytest.mark.parametrize("blocks", [[500], [1] * 500, [0, 250, 0, 250, 0], cut(500, 2)])
def test_every_row_comes_once(window: int, blocks: list[int]) -> None:
    assert sorted(mix(blocks, window)) == list(range(500))


def test_rows_stay_whole() -> None:
    for block in shuffle_window(make_blocks(*cut(300, 3)), 50, 0, 0):
        for row in block.to_pylist():
            n = row["n"]
            assert row == {"n": n, "fixed": [n, n], "ragged": [n] * (n % 3), "text": b"%d" % n}


def test_no_rows_give_no_blocks() -> None:
    assert mix([], 10) == []
    assert mix([0, 0], 10) == []
    assert mix([0, 1, 0], 10) == [0]


@pytest.mark.parametrize("window", [500, 10_000])
def test_a_window_over_all_rows_mixes_them_all(window: int) -> None:
    order = np.array(mix([500], window))
    assert abs(np.corrcoef(order, np.arange(500))[0, 1]) < 0.2
    # From everywhere to everywhere: each tenth of the result has rows of nearly every tenth.
    for part in order.reshape(10, 50):
        assert len(set(part // 50)) >= 8


def test_a_window_of_one_still_gives_every_row_near_its_place() -> None:
    order = mix(cut(500, 4), 1)
    assert sorted(order) == list(range(500)) and order != list(range(500))


@pytest.mark.parametrize("window", [1, 2, 3, 64, 333, 10_000])
@pytest.mark.parametrize("blocks", [[1] * 500, [0, 250, 0, 250, 0], cut(500, 6), cut(500, 7)])
def test_the_order_does_not_depend_on_the_blocks(window: int, blocks: list[int]) -> None:
    assert mix(blocks, window) == mix([500], window)


@pytest.mark.parametrize("window", [2, 20, 100])
@pytest.mark.parametrize("blocks", [[2000], [1] * 2000, [100] * 20, cut(2000, 5)])
def test_how_far_rows_travel_is_a_matter_of_the_window(window: int, blocks: list[int]) -> None:
    order = np.array(mix(blocks, window))
    moved = np.arange(2000) - order  # negative: earlier than it came
    assert -moved.min() <= window + window // 2
    assert 0.2 * window < np.abs(moved).mean() < 3 * window


@pytest.mark.parametrize("blocks", [[2000], [7] * 286, [1] * 2000])
def test_only_about_a_window_of_rows_is_held(blocks: list[int]) -> None:
    given = 0

    def count() -> Iterator[pa.RecordBatch]:
        nonlocal given
        for block in make_blocks(*blocks):
            given += block.num_rows
            yield block

    left = 0
    for block in shuffle_window(count(), 100, 0, 0):
        left += block.num_rows
        assert given - left <= 100 + max(blocks)
        assert block.num_rows <= 150
