"""Parts of TFRecord files: every record in exactly one, wherever the cuts are."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sparktrain.data import record_parts
from sparktrain.data.record_blocks import Damage
from sparktrain.data.record_parts import OPEN_COST, Part, find_first, plan_tasks, read_part
from sparktrain.data.records import pack_record
from sparktrain.data.shards import FileInfo

#: Among them a whole file of records as the data of one.
INNER = b"".join(pack_record(b"inner" * number) for number in range(20))
RECORDS = [bytes([number]) * (number * 7 % 90) for number in range(60)]
RECORDS[30] = INNER
FILE = b"".join(pack_record(record) for record in RECORDS)


def read(file: bytes, *parts: Part, verify: bool = True) -> tuple[list[bytes], list[Damage]]:
    records, damages = [], []
    for part in parts:
        stream = io.BytesIO(file)
        for block, base in read_part(stream, part, verify=verify, on_damage=damages.append):
            for row in range(len(block)):
                records.append(block.row(row))
                start = base + int(block.starts[row]) - 12
                assert file[start + 12 : start + 12 + len(records[-1])] == records[-1]
    return records, damages


@pytest.mark.parametrize("size", [1, 7, 50, 333, 1000, 5000, 10**6])
def test_every_record_is_in_exactly_one_part(size: int) -> None:
    ends = [*range(size, len(FILE), size), None]
    starts = [0, *range(size, len(FILE), size)]
    if len(starts) > 400:
        chosen = random.Random(1).sample(range(1, len(starts)), 150)
        starts = [0, *(starts[number] for number in sorted(chosen))]
        ends = [*starts[1:], None]
    parts = [Part("u", "p", start, end) for start, end in zip(starts, ends, strict=True)]
    assert read(FILE, *parts) == (RECORDS, [])


@settings(max_examples=60, deadline=None)
@given(some.lists(some.integers(1, len(FILE) - 1), unique=True, max_size=4))
def test_cuts_may_be_anywhere_also_inside_records_inside_records(cuts: list[int]) -> None:
    starts = [0, *sorted(cuts)]
    parts = [
        Part("u", "p", start, end) for start, end in zip(starts, [*starts[1:], None], strict=True)
    ]
    assert read(FILE, *parts) == (RECORDS, [])


def test_damage_in_the_middle_loses_no_other_record() -> None:
    broken = bytearray(FILE)
    place = FILE.index(pack_record(RECORDS[45]))
    broken[place + 2] ^= 0x40
    cut = FILE.index(pack_record(RECORDS[40])) + 3
    parts = [Part("u", "p", 0, cut), Part("u", "p", cut, None)]
    records, damages = read(bytes(broken), *parts)
    assert records == RECORDS[:45] + RECORDS[46:]
    assert [damage.offset for damage in damages] == [place]


def test_damage_names_the_byte_of_the_file() -> None:
    broken = bytearray(FILE)
    place = FILE.index(pack_record(RECORDS[50]))
    broken[place] ^= 1
    with pytest.raises(Damage) as caught:
        list(read_part(io.BytesIO(bytes(broken)), Part("u", "p", place - 200, None)))
    assert caught.value.offset == place


def test_behind_the_last_record_there_is_none() -> None:
    assert find_first(io.BytesIO(FILE), len(FILE)) is None
    assert find_first(io.BytesIO(FILE), len(FILE) - 3) is None


def test_large_files_are_cut_and_small_ones_packed(tmp_path: Path) -> None:
    infos = [
        FileInfo("u", "large.tfrecord", 10 << 20),
        FileInfo("u", "large.tfrecord.gz", 10 << 20),
        *(FileInfo("u", f"small-{number}", 1000) for number in range(10)),
    ]
    tasks = plan_tasks(infos, 4 << 20)
    sizes = [(part.start, part.end) for part in (task[0] for task in tasks[:3])]
    assert sizes == [(0, 3495253), (3495253, 6990506), (6990506, None)]
    assert tasks[3] == [Part("u", "large.tfrecord.gz")]
    assert [len(task) for task in tasks[4:]] == [10]
    small = plan_tasks(infos[2:], 3 * (OPEN_COST + 1000) + 1)
    assert [len(task) for task in small] == [3, 3, 3, 1]
    assert plan_tasks([], 100) == []


def test_a_chain_is_followed_further_than_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a short look ahead the inner records would be believed: this is what it is for."""
    monkeypatch.setattr(record_parts, "_CHAIN_BYTES", 1)
    inside = FILE.index(INNER) + 5
    wrong = find_first(io.BytesIO(FILE), inside)
    monkeypatch.undo()
    right = find_first(io.BytesIO(FILE), inside)
    assert wrong != right and right == FILE.index(pack_record(RECORDS[31]))


def make_parts(size: int, cuts: list[int]) -> list[Part]:
    edges = [0, *cuts]
    return [Part("u", "p", a, b) for a, b in zip(edges, [*cuts, None], strict=True)]


@pytest.mark.parametrize("cut", range(0, 200, 7))
def test_cut_or_whole_is_the_same_without_the_crcs_of_the_data(cut: int) -> None:
    """Some writers leave them out, which is what verify=False is for."""
    bare = b"".join(pack_record(record)[:-4] + bytes(4) for record in RECORDS)
    parts = make_parts(len(bare), [100 + cut, 1000 + 3 * cut])
    assert read(bare, *parts, verify=False) == (RECORDS, [])
    one = bytearray(FILE)
    one[FILE.index(pack_record(RECORDS[40])) + 14] ^= 1
    around = FILE.index(pack_record(RECORDS[40])) - 100 + cut
    whole, _ = read(bytes(one), Part("u", "p"), verify=False)
    assert read(bytes(one), *make_parts(len(one), [around]), verify=False)[0] == whole
    assert len(whole) == len(RECORDS)


def test_damage_before_the_first_record_of_a_part_is_walked_around() -> None:
    """A chain that breaks: only the way from the beginning tells which record is the first."""
    broken = bytearray(FILE)
    place = FILE.index(pack_record(RECORDS[35]))
    broken[place + 2] ^= 1
    for cut in range(FILE.index(pack_record(RECORDS[30])), place, 11):
        records, damages = read(bytes(broken), *make_parts(len(broken), [cut]))
        assert records == RECORDS[:35] + RECORDS[36:]
        assert {damage.offset for damage in damages} == {place}


def test_a_first_record_at_the_edge_of_what_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_parts, "BLOCK_BYTES", 16)
    for start in range(1, 400, 3):
        starts = [FILE.index(pack_record(record)) for record in RECORDS[:20]]
        expected = next(place for place in sorted({*starts, 10**9}) if place >= start)
        if expected < 10**9:
            assert find_first(io.BytesIO(FILE), start) == expected
