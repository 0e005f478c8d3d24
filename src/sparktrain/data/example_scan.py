"""Finds the features of many serialized tf.train.Examples at once.

Records of one writer look alike: the same names in the same order, some left out where a value
is null. A whole block of them is therefore read in step, one name after the other, each with a
few operations on all rows together. Rows that do not fit into the order are read one by one.

On the wire an Example is a Features (tag 1), which has an entry (tag 1) for each feature: its
name (tag 1) and its Feature (tag 2). A Feature has one list: of bytes (tag 1), float (tag 2) or
int64 (tag 3). What is found here is where each list's body is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparktrain.data import varints

#: Kinds of lists, as their tags in a Feature.
NO_KIND, BYTES, FLOAT, INT64 = 0, 1, 2, 3
KIND_NAMES = {NO_KIND: "no kind", BYTES: "bytes", FLOAT: "float", INT64: "int64"}
#: A Feature that is not there at all.
MISSING = 255

#: From so many rows the order of names is learned.
_SAMPLED = 16
#: So many orders are tried before rows are read one by one.
_MAX_ORDERS = 4


class MalformedError(ValueError):
    """Bytes that are no Example."""


@dataclass
class Spans:
    """Where one feature is in each row."""

    #: MISSING, or the kind of its list.
    kinds: Any
    starts: Any
    ends: Any


@dataclass(frozen=True)
class Block:
    """Serialized records in one array of bytes, which has varints.PADDING more at its end."""

    data: Any
    starts: Any
    ends: Any

    def __len__(self) -> int:
        return len(self.starts)

    def row(self, number: int) -> bytes:
        return bytes(self.data[self.starts[number] : self.ends[number]])


def scan(block: Block, names: Sequence[str] | None = None) -> tuple[dict[str, Spans], Any]:
    """The features of these names, or of all, and which rows are malformed (as a mask)."""
    found = _Scan(block, names)
    left = np.arange(len(block))
    for _ in range(_MAX_ORDERS):
        if not len(left):
            break
        order = found.learn(left)
        left = found.read_in_step(left, order)
    for row in left:
        found.read_alone(int(row))
    return found.spans, found.malformed


class _Scan:
    def __init__(self, block: Block, names: Sequence[str] | None) -> None:
        self._block = block
        self._words = varints.words_of(block.data)
        self._names = None if names is None else set(names)
        self.spans: dict[str, Spans] = {}
        for name in names or ():
            self._spans_of(name)
        self.malformed = np.zeros(len(block), bool)

    def _spans_of(self, name: str) -> Spans:
        if name not in self.spans:
            size = len(self._block)
            self.spans[name] = Spans(
                np.full(size, MISSING, np.uint8), np.zeros(size, np.int64), np.zeros(size, np.int64)
            )
        return self.spans[name]

    def learn(self, rows: Any) -> list[bytes]:
        """An order of names that some of the rows have."""
        order: list[bytes] = []
        for row in rows[:: max(len(rows) // _SAMPLED, 1)]:
            try:
                known = [name for name, *_ in parse(self._block.row(int(row)))]
            except MalformedError:
                continue
            place = 0
            for name in known:
                if name in order:
                    place = order.index(name) + 1
                else:
                    order.insert(place, name)
                    place += 1
        return order

    def read_in_step(self, rows: Any, order: Iterable[bytes]) -> Any:
        """Reads rows whose names come in this order; returns those that do not."""
        data, words = self._block.data, self._words
        at, ends = self._block.starts[rows], self._block.ends[rows]
        is_empty = at == ends
        sizes, body = varints.read(words, at + 1)
        fits = is_empty | ((data[at] == 0x0A) & (sizes >= 0) & (body + sizes == ends))
        at = np.where(is_empty, ends, body)
        found: list[tuple[str, Any, Any, Any, Any]] = []
        for name in order:
            key = b"\x0a" + _encode_size(len(name)) + name
            # An entry: tag, size, name, and the Feature. All checked before any is believed.
            here = np.flatnonzero(fits & (at < ends))
            start = at[here]
            size, inner = varints.read(words, start + 1)
            last = inner + size
            is_here = (data[start] == 0x0A) & (size >= len(key)) & (last <= ends[here])
            is_here &= self._matches(inner, key)
            here, inner, last = here[is_here], inner[is_here], last[is_here]
            at[here] = last
            text = name.decode(errors="surrogateescape")
            if self._names is not None and text not in self._names:
                continue
            kinds, first, is_sound = self._read_feature(inner + len(key), last)
            fits[here[~is_sound]] = False
            found.append((text, here, kinds, first, last))
        fits &= at == ends
        for text, here, kinds, first, last in found:
            spans, kept = self._spans_of(text), fits[here]
            target = rows[here[kept]]
            spans.kinds[target] = kinds[kept]
            spans.starts[target], spans.ends[target] = first[kept], last[kept]
        return rows[~fits]

    def _matches(self, at: Any, key: bytes) -> Any:
        """Whether the bytes at these places are the key. They may be behind the data's end."""
        limit = len(self._words) - 1
        matches = np.ones(len(at), bool)
        for place in range(0, len(key), 8):
            part = key[place : place + 8]
            mask = np.uint64((1 << (8 * len(part))) - 1)
            wanted = np.uint64(int.from_bytes(part, "little"))
            matches &= (self._words[np.minimum(at + place, limit)] & mask) == wanted
        return matches

    def _read_feature(self, at: Any, ends: Any) -> tuple[Any, Any, Any]:
        """Kinds and starts of the lists, and which rows are as expected."""
        data = self._block.data
        kinds, starts = np.zeros(len(at), np.uint8), ends.copy()
        has_value = at < ends
        size, inner = varints.read(self._words, at + 1)
        is_sound = ~has_value | ((data[at] == 0x12) & (size >= 0) & (inner + size == ends))
        has_list = has_value & (size > 0)
        tags = data[np.minimum(inner, len(data) - 1)]
        size, body = varints.read(self._words, np.minimum(inner + 1, len(self._words) - 1))
        is_known = (tags == 0x0A) | (tags == 0x12) | (tags == 0x1A)
        is_sound &= ~has_list | (is_known & (size >= 0) & (body + size == ends))
        good = has_list & is_sound
        kinds[good] = tags[good] >> 3
        starts[good] = body[good]
        return kinds, starts, is_sound

    def read_alone(self, row: int) -> None:
        base = int(self._block.starts[row])
        try:
            features = parse(self._block.row(row))
        except MalformedError:
            self.malformed[row] = True
            return
        for name, kind, start, end in features:
            text = name.decode(errors="surrogateescape")
            if self._names is None or text in self._names:
                spans = self._spans_of(text)
                spans.kinds[row], spans.starts[row], spans.ends[row] = (
                    kind,
                    base + start,
                    base + end,
                )


def parse(record: bytes) -> list[tuple[bytes, int, int, int]]:
    """Name, kind, start and end of each feature, found with patience; raises MalformedError."""
    features: dict[bytes, tuple[int, int, int]] = {}
    for number, start, end in fields(record, 0, len(record)):
        if number != 1:
            continue
        for entry, entry_start, entry_end in fields(record, start, end):
            if entry != 1:
                continue
            name, kind, place = b"", NO_KIND, (entry_end, entry_end)
            for part, part_start, part_end in fields(record, entry_start, entry_end):
                if part == 1:
                    name = record[part_start:part_end]
                elif part == 2:
                    kind, place = NO_KIND, (part_end, part_end)
                    for one, one_start, one_end in fields(record, part_start, part_end):
                        if one in (BYTES, FLOAT, INT64):
                            if kind == one:
                                raise MalformedError("a feature has two lists of one kind")
                            kind, place = one, (one_start, one_end)
            features.pop(name, None)  # the last one counts, also for the order
            features[name] = (kind, *place)
    return [(name, *found) for name, found in features.items()]


def fields(data: bytes, at: int, end: int) -> Iterable[tuple[int, int, int]]:
    """Number, start and end of the fields of a message that are messages or bytes."""
    while at < end:
        tag, at = read_varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise MalformedError("a field has the number 0")
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


def _encode_size(size: int) -> bytes:
    return bytes(varints.encode(np.array([size]))[0])
