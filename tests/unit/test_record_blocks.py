"""Frames of TFRecord files, many at a time; TensorFlow's own writer and reader are the judges."""

from __future__ import annotations

import gzip
import io
import os
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from fsspec.implementations.local import LocalFileSystem

from sparktrain.data.record_blocks import Damage, find_record, read_blocks
from sparktrain.data.records import pack_record
from sparktrain.data.storage import open_plain

RECORDS = [os.urandom(random.Random(1).randrange(200)) for _ in range(100)] + [b"", b"x" * 5000]
FILE = b"".join(pack_record(record) for record in RECORDS)
STARTS = [sum(len(record) + 16 for record in RECORDS[:n]) for n in range(len(RECORDS))]


def read(
    file: bytes | io.BufferedIOBase, **options: Any
) -> tuple[list[bytes], list[int], list[Damage]]:
    """Records, where they begin, and all damage."""
    damages: list[Damage] = []
    stream = io.BytesIO(file) if isinstance(file, bytes) else file
    records, starts = [], []
    for block, base in read_blocks(stream, on_damage=damages.append, **options):
        records += [block.row(number) for number in range(len(block))]
        starts += [base + int(start) - 12 for start in block.starts]
    return records, starts, damages


@pytest.mark.parametrize("block_bytes", [1, 17, 1000, 4096, 1 << 20])
def test_all_records_are_read_whatever_the_size_of_blocks(block_bytes: int) -> None:
    assert read(FILE, block_bytes=block_bytes) == (RECORDS, STARTS, [])


def test_what_tensorflow_writes_is_read(tmp_path: Path) -> None:
    for name, kind in (("plain", ""), ("packed", "GZIP")):
        path = tmp_path / name
        with tf.io.TFRecordWriter(str(path), kind) as writer:
            for record in RECORDS:
                writer.write(record)
        raw = path.read_bytes()
        assert read(gzip.decompress(raw) if kind else raw)[0] == RECORDS


def test_an_empty_file_has_no_records() -> None:
    assert read(b"") == ([], [], [])


@pytest.mark.parametrize("missing", range(1, 20))
def test_a_file_that_is_cut_off_is_told_wherever_it_is(missing: int) -> None:
    records, _, damages = read(FILE[:-missing])
    assert records == RECORDS[:-1]
    assert [damage.offset for damage in damages] == [STARTS[-1]]
    assert "ends inside the record" in damages[0].problem


@pytest.mark.parametrize("left", range(1, 8))
def test_one_to_seven_bytes_behind_the_last_record_are_told(left: int) -> None:
    records, _, damages = read(FILE + pack_record(b"abc")[:left])
    assert records == RECORDS and [damage.offset for damage in damages] == [len(FILE)]


def test_damage_ends_reading_unless_somebody_takes_it() -> None:
    broken = bytearray(FILE)
    broken[STARTS[50] + 12] ^= 1 if len(RECORDS[50]) else 0
    broken[STARTS[50] + 12 + len(RECORDS[50])] ^= 1
    found = []
    with pytest.raises(Damage) as caught:
        for block, _ in read_blocks(io.BytesIO(bytes(broken))):
            found += [block.row(number) for number in range(len(block))]
    assert found == RECORDS[:50] and caught.value.offset == STARTS[50]


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
@pytest.mark.parametrize("place", [0, 7, 8, 11, 12])
def test_behind_a_damaged_record_reading_goes_on(place: int, block_bytes: int) -> None:
    broken = bytearray(FILE)
    broken[STARTS[40] + place] ^= 0x55
    if place == 12 and not RECORDS[40]:
        pytest.fail("the record of this test must have data")
    records, starts, damages = read(bytes(broken), block_bytes=block_bytes)
    assert records == RECORDS[:40] + RECORDS[41:]
    assert starts == STARTS[:40] + STARTS[41:]
    assert damages and damages[0].offset == STARTS[40]


def test_data_is_not_verified_on_request() -> None:
    broken = bytearray(FILE)
    broken[STARTS[-1] + 12] ^= 0x55
    assert len(read(bytes(broken))[0]) == len(RECORDS) - 1
    assert len(read(bytes(broken), verify=False)[0]) == len(RECORDS)


def test_an_absurd_length_takes_no_memory() -> None:
    import struct

    from sparktrain.data.records import mask_crc

    head = struct.pack("<Q", 1 << 33)
    records, _, [damage] = read(head + struct.pack("<I", mask_crc(head)) + b"data")
    assert records == [] and "ends inside the record, after 16 of its" in damage.problem
    head = struct.pack("<Q", 1 << 62)
    records, _, damages = read(head + struct.pack("<I", mask_crc(head)) + FILE)
    assert records == RECORDS and "more than" in damages[0].problem


@pytest.mark.parametrize("change", ["cut", "flipped", "longer"])
@pytest.mark.parametrize("kind", [".gz", ".deflate"])
def test_a_damaged_compressed_file_is_told_and_read_up_to_there(
    kind: str, change: str, tmp_path: Path
) -> None:
    """More than one block of the compressed data, and less than one of the plain."""
    many = [random.Random(n).randbytes(n % 300) for n in range(3000)]
    plain = b"".join(map(pack_record, many))
    packed = bytearray(gzip.compress(plain) if kind == ".gz" else zlib.compress(plain))
    if change == "cut":
        packed = packed[: len(packed) // 2]
    elif change == "flipped":
        packed[len(packed) // 2] ^= 0xFF
    else:
        packed += b"garbage"
    path = tmp_path / f"some{kind}"
    path.write_bytes(packed)
    damages: list[Damage] = []
    with open_plain(LocalFileSystem(), str(path)) as stream:
        blocks = list(read_blocks(stream, on_damage=damages.append))
    records = [block.row(row) for block, _ in blocks for row in range(len(block))]
    if change == "longer":
        assert records == many and len(damages) == (kind == ".gz")
        return
    assert damages and len(records) > 1000
    assert records[:1000] == many[:1000] and set(records) <= set(many)


def test_an_error_of_the_store_is_no_damage() -> None:
    """A retry may help; to leave out the rest of the file would not."""

    class Flaky(io.RawIOBase):
        def __init__(self) -> None:
            self.parts = [FILE[:2000]]

        def read(self, size: int = -1) -> bytes:
            if not self.parts:
                raise ConnectionResetError("gone")
            return self.parts.pop()

    with pytest.raises(ConnectionResetError):
        list(read_blocks(Flaky(), on_damage=lambda damage: None))  # type: ignore[arg-type]


def test_much_damage_is_passed_in_one_go() -> None:
    """With every second record damaged, no record is looked at again for each of them."""
    many = [pack_record(bytes([n % 256]) * 100) for n in range(4000)]
    broken = bytearray(b"".join(many))
    for number in range(0, 4000, 2):
        broken[number * 116 + 50] ^= 1
    damages: list[Damage] = []
    blocks = list(read_blocks(io.BytesIO(bytes(broken)), on_damage=damages.append))
    assert len(blocks) <= 2 and sum(len(block) for block, _ in blocks) == 2000
    assert [damage.offset for damage in damages] == [n * 116 for n in range(0, 4000, 2)]


def test_what_is_no_file_of_records_is_told_once() -> None:
    for text in (b"this is a text of some length, and no record", bytes(100_000)[1:] + b"x"):
        records, _, damages = read(text)
        if not records:
            assert len(damages) == 1
    _, _, damages = read(gzip.compress(FILE))
    assert (
        "it looks like gzip, which is read from files whose names end in .gz" in damages[0].problem
    )


def test_records_behind_bytes_that_are_missing_or_too_many() -> None:
    """The length of the record before leads astray, and is not followed."""
    for change in (lambda data: data[:-3], lambda data: data + b"abc"):
        place = STARTS[5] + 12
        end = STARTS[6] - 4
        broken = FILE[:place] + change(FILE[place:end]) + FILE[end:]
        records, _, damages = read(broken)
        assert records == RECORDS[:5] + RECORDS[6:]
        assert [damage.offset for damage in damages] == [STARTS[5]]


def test_the_next_record_is_found_from_anywhere() -> None:
    for at in range(0, len(FILE) - 6000, 13):
        expected = next(start for start in STARTS if start >= at)
        assert find_record(FILE, at) == expected
    assert find_record(FILE, len(FILE) - 100, is_whole=True) == -1
