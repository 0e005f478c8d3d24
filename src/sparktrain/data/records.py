"""Single records of TFRecord files: framed, and looked at to find where a file is broken.

TensorFlow checks a file while it reads, but names neither the file nor the byte of what it
finds; this says both, afterwards.
"""

from __future__ import annotations

from typing import IO

from sparktrain.data.record_blocks import FOOT, HEAD, Damage, mask_crc, read_blocks
from sparktrain.errors import RecordError


def pack_record(data: bytes) -> bytes:
    """The frame of one record."""
    length = len(data).to_bytes(8, "little")
    head = HEAD.pack(len(data), mask_crc(length))
    return b"".join((head, data, FOOT.pack(mask_crc(data))))


def find_damage(stream: IO[bytes]) -> tuple[int, str] | None:
    """Where the first broken record starts and what is wrong with it; None if all are whole.

    The offset counts bytes of the stream: uncompressed ones if the file is compressed.
    """
    try:
        for _ in read_blocks(stream):
            pass
    except Damage as damage:
        return damage.offset, damage.problem
    return None


def describe(path: object, damage: Damage) -> RecordError:
    """Damage of a file, as an error that names it."""
    return RecordError(
        problem=f"{path} cannot be read at byte {damage.offset}: {damage.problem}.",
        advice="Write or copy the file again; `sparktrain tfrecord verify` shows all damage of a"
        " file, and in Spark the option mode=DROPMALFORMED leaves such records out.",
    )


def describe_misfit(path: object, offset: int, problem: str) -> RecordError:
    """A record that is whole and is not what was asked for, as an error that names it."""
    return RecordError(
        problem=f"{path} cannot be read at byte {offset}: {problem}.",
        advice="Change the schema, or the option recordType; `sparktrain tfrecord show` shows what"
        " is in a file, and the option mode=DROPMALFORMED leaves such records out.",
    )
