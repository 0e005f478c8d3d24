"""Broken TFRecords are found at their byte."""

from __future__ import annotations

import gzip
import io

import google_crc32c
import pytest

from sparktrain.data.records import find_damage, mask_crc, pack_record

RECORDS = [b"x" * size for size in (0, 1, 10, 1000)]
WHOLE = b"".join(pack_record(data) for data in RECORDS)
#: Where the third one starts: two frames of 16 bytes and a byte of data are before it.
THIRD = 16 + 17


def flip(position: int) -> bytes:
    return WHOLE[:position] + bytes([WHOLE[position] ^ 1]) + WHOLE[position + 1 :]


def test_the_crc_is_that_of_the_hardware_and_known() -> None:
    assert google_crc32c.implementation == "c"
    assert google_crc32c.value(b"123456789") == 0xE3069283
    # TensorFlow's own test values.
    assert mask_crc(b"") == 0xA282EAD8
    assert find_damage(io.BytesIO(WHOLE)) is None
    assert find_damage(io.BytesIO(b"")) is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (flip(THIRD), "CRC of the length"),
        (flip(THIRD + 8), "CRC of the length"),
        (flip(THIRD + 12), "CRC of its 10 bytes"),
        (flip(THIRD + 22), "CRC of its 10 bytes"),
        (WHOLE[: THIRD + 5], "ends inside the record's head, after 5 of its 12 bytes"),
        (WHOLE[: THIRD + 25], "after 25 of its 26 bytes"),
        (WHOLE[: THIRD + 12], "after 12 of its 26 bytes"),
    ],
)
def test_damage_is_found_at_the_start_of_its_record(data: bytes, reason: str) -> None:
    damage = find_damage(io.BytesIO(data))
    assert damage is not None
    assert damage[0] == THIRD
    assert reason in damage[1]


def test_a_length_nobody_could_read_is_damage() -> None:
    length = (1 << 40).to_bytes(8, "little")
    data = length + mask_crc(length).to_bytes(4, "little")
    damage = find_damage(io.BytesIO(WHOLE + data))
    assert damage is not None
    assert damage == (len(WHOLE), f"the length is {1 << 40} bytes, more than {1 << 34}")


def test_a_compressed_file_that_is_cut_is_damaged_where_it_ends() -> None:
    packed = gzip.compress(WHOLE)
    with gzip.GzipFile(fileobj=io.BytesIO(packed[:-10])) as stream:
        damage = find_damage(stream)
    assert damage is not None
    assert "cannot be read on" in damage[1]
