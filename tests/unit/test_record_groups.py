"""Blocks of small files are put together, and each row still knows its file."""

from __future__ import annotations

import io
from typing import Any

from sparktrain.data import record_groups
from sparktrain.data.record_blocks import read_blocks
from sparktrain.data.record_groups import group_blocks
from sparktrain.data.records import pack_record


def make_blocks(files: dict[str, tuple[list[bytes], Any]]) -> Any:
    for path, (records, common) in files.items():
        stream = io.BytesIO(b"".join(map(pack_record, records)))
        for block, base in read_blocks(stream, block_bytes=64):
            yield block, base, path, common


def test_rows_keep_their_order_their_files_and_their_places() -> None:
    files = {
        "a": ([b"one", b"two"], {"day": 1}),
        "b": ([b"three"], {"day": 1}),
        "c": ([b"four" * 30, b"five", b"six"], {"day": 2}),
    }
    groups = list(group_blocks(make_blocks(files)))
    assert [group.common["day"] for group in groups] == [1, 2]
    found = [(group.block.row(row), *group.locate(row)) for group in groups for row in range(3)]
    expected = []
    for path, (records, _) in files.items():
        offset = 0
        for record in records:
            expected.append((record, path, offset))
            offset += len(pack_record(record))
    assert found == expected


def test_large_blocks_are_left_alone(monkeypatch: Any) -> None:
    monkeypatch.setattr(record_groups, "_ENOUGH", 8)
    files = {str(number): ([b"12345"], None) for number in range(5)}
    sizes = [len(group.block) for group in group_blocks(make_blocks(files))]
    assert sizes == [2, 2, 1]
    assert list(group_blocks([])) == []
