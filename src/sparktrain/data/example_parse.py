"""Reads one serialized Example or SequenceExample with patience, however it is written.

On the wire an Example is a Features (tag 1), which has an entry (tag 1) for each feature: its
name (tag 1) and its Feature (tag 2). A Feature has one list: of bytes (tag 1), float (tag 2) or
int64 (tag 3). A SequenceExample has a Features (tag 1), and FeatureLists (tag 2) with an entry
(tag 1) for each list: its name (tag 1) and its FeatureList (tag 2), which has Features (tag 1).
What is found here is where each list's body is.
"""

from __future__ import annotations

from collections.abc import Iterator

#: Kinds of lists, as their tags in a Feature.
NO_KIND, BYTES, FLOAT, INT64 = 0, 1, 2, 3
KIND_NAMES = {NO_KIND: "no kind", BYTES: "bytes", FLOAT: "float", INT64: "int64"}
#: What stands for a kind where a FeatureList is meant, which is none itself.
FEATURE_LIST = 4
#: A Feature that is not there at all.
MISSING = 255

#: Name, kind, start and end of the body.
Found = tuple[bytes, int, int, int]


class MalformedError(ValueError):
    """Bytes that are no Example."""


def parse_features(record: bytes) -> list[Found]:
    """The features of an Example, or of a SequenceExample's context; raises MalformedError."""
    found: dict[bytes, Found] = {}
    for name, start, end in _entries(record, 1):
        # Of several entries with one name the last one counts, also for the order.
        found.pop(name, None)
        found[name] = (name, *parse_feature(record, start, end))
    return list(found.values())


def parse_lists(record: bytes) -> list[Found]:
    """The feature lists of a SequenceExample; raises MalformedError."""
    found: dict[bytes, Found] = {}
    for name, start, end in _entries(record, 2):
        found.pop(name, None)
        found[name] = (name, FEATURE_LIST, start, end)
    return list(found.values())


def parse_feature(data: bytes, start: int, end: int) -> tuple[int, int, int]:
    """The kind of a Feature, and the body of its list."""
    kind, place = NO_KIND, (end, end)
    for number, first, last in fields(data, start, end):
        if number in (BYTES, FLOAT, INT64):
            if kind == number:
                raise MalformedError("a feature has two lists of one kind")
            kind, place = number, (first, last)
    return kind, *place


def _entries(record: bytes, tag: int) -> Iterator[tuple[bytes, int, int]]:
    """Names and values of a map, which may be in several fields of the record."""
    for number, start, end in fields(record, 0, len(record)):
        if number != tag:
            continue
        for entry, entry_start, entry_end in fields(record, start, end):
            if entry != 1:
                continue
            name, place = b"", None
            for part, part_start, part_end in fields(record, entry_start, entry_end, strict=True):
                if part == 1:
                    name = record[part_start:part_end]
                elif part == 2:
                    if place is not None:
                        raise MalformedError("an entry has two values")
                    place = (part_start, part_end)
                else:
                    raise MalformedError("an entry has more than a name and a value")
            yield name, *(place or (entry_end, entry_end))


def fields(
    data: bytes, at: int, end: int, *, strict: bool = False
) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of the fields of a message that are messages or bytes.

    Others are passed over, or with strict are errors.
    """
    while at < end:
        tag, at = read_varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise MalformedError("a field has the number 0")
        if strict and wire != 2:
            raise MalformedError(f"a field has the type {wire}")
        if wire == 2:
            size, at = read_varint(data, at, end)
            if size > end - at:
                raise MalformedError(f"{size} bytes are announced and {end - at} are there")
            yield number, at, at + size
            at += size
        elif wire == 0:
            _, at = read_varint(data, at, end)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
            if at > end:
                raise MalformedError("a number is cut off")
        else:
            raise MalformedError(f"there is no type {wire} of fields")


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise MalformedError("a varint is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise MalformedError("a varint has more than ten bytes")
