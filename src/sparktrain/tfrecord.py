"""TFRecord files, record by record: frames and CRCs, without TensorFlow and without Spark.

with open("part.tfrecord", "rb") as file:
    for record in st.tfrecord.RecordReader(file):
        ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from sparktrain.data.record_blocks import Damage, read_blocks
from sparktrain.data.records import pack_record
from sparktrain.errors import RecordError

__all__ = ["RecordReader", "RecordWriter"]


class RecordReader:
    """The records of a file object, as bytes.

    Args:
        file: Open for reading bytes; decompressed, if it is compressed.
        verify: Checks the CRC of the data too. That of the length is always checked.

    Raises:
        RecordError: The file is damaged; with the byte at which the record begins.
    """

    def __init__(self, file: IO[bytes], *, verify: bool = True) -> None:
        self._file = file
        self._verify = verify

    def __iter__(self) -> Iterator[bytes]:
        try:
            for block, _ in read_blocks(self._file, verify=self._verify):
                for row in range(len(block)):
                    yield block.row(row)
        except Damage as damage:
            raise describe(getattr(self._file, "name", None) or "the file", damage) from None


class RecordWriter:
    """Writes records into a file object, which stays open."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, record: bytes) -> None:
        if not isinstance(record, bytes):
            raise RecordError(
                problem=f"A record is a {type(record).__name__}.",
                advice="Expected bytes: serialize it first, an Example with SerializeToString().",
            )
        self._file.write(pack_record(record))


def describe(path: Any, damage: Damage) -> RecordError:
    """Damage as an error that names the file."""
    return RecordError(
        problem=f"{path} is damaged in the record at byte {damage.offset}: {damage.problem}.",
        advice="Write or copy the file again; `sparktrain tfrecord verify` shows all its damage.",
    )
