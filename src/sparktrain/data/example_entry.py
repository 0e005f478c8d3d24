"""Reads one name's entry of the map of features in many records at once.

An entry is: tag, size, name, tag, size of the Feature, tag of its kind, size of the list. Where
these sizes take as many bytes in most rows, and they do, all of that is compared with a pattern,
eight bytes at a time. Other rows are read step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparktrain.data import varints
from sparktrain.data.example_parse import (
    FEATURE_LIST,
    NO_KIND,
    MalformedError,
    parse_feature,
    read_varint,
)

#: Rows that are looked at for the pattern.
_SAMPLED = 4


@dataclass
class Read:
    """Of the rows that begin with the entry: kind, start and end of the value."""

    #: Positions in the rows that were asked for.
    rows: Any
    kinds: Any
    starts: Any
    ends: Any
    #: Whether the value is as expected; where not, the row has to be read with patience.
    is_sound: Any


class EntryReader:
    """Of one name, for one block after the other.

    Args:
        name: As it is in the records.
        is_wanted: Whether somebody asks for the value, or it is only passed over. (It must be the
            whole rest of the entry either way: there may be a second name behind it.)
        has_list: Whether values are FeatureLists, whose body is not looked into here.
    """

    def __init__(self, name: bytes, *, is_wanted: bool, has_list: bool) -> None:
        self.name = name
        self.is_wanted = is_wanted
        self._has_list = has_list
        self._key = b"\x0a" + varints.encode(np.array([len(name)]))[0].tobytes() + name
        self._pattern: _Pattern | None = None

    def read(self, data: Any, words: Any, at: Any, ends: Any) -> Read:
        """Reads the entries at these places, each of which is before its row's end."""
        pattern = self._pattern or self._find_pattern(data, at, ends)
        if pattern is None:
            return self._read_slowly(data, words, at, ends)
        fast = pattern.read(words, at, ends)
        # What is in the files may change: then another pattern is looked for.
        self._pattern = pattern if 2 * len(fast.rows) >= len(at) else None
        if len(fast.rows) == len(at):
            return fast
        is_other = np.ones(len(at), bool)
        is_other[fast.rows] = False
        others = np.flatnonzero(is_other)
        slow = self._read_slowly(data, words, at[others], ends[others])
        slow.rows = others[slow.rows]
        return _join(fast, slow)

    def _read_slowly(self, data: Any, words: Any, at: Any, ends: Any) -> Read:
        # All is checked before any of it is believed.
        size, inner = varints.read(words, at + 1)
        last = inner + size
        is_here = (data[at] == 0x0A) & (size >= len(self._key)) & (last <= ends)
        is_here &= _begins_with(words, inner, self._key)
        rows = np.flatnonzero(is_here)
        inner, last = inner[rows] + len(self._key), last[rows]
        kinds = np.full(len(rows), FEATURE_LIST if self._has_list else NO_KIND, np.uint8)
        has_value = inner < last
        size, body = varints.read(words, inner + 1)
        is_sound = ~has_value | ((data[inner] == 0x12) & (size >= 0) & (body + size == last))
        starts = np.where(has_value & is_sound, body, last)
        if self.is_wanted and not self._has_list:
            kinds, starts, is_known = read_kinds(data, words, starts, last)
            is_sound &= is_known
        return Read(rows, kinds, starts, last, is_sound)

    def _find_pattern(self, data: Any, at: Any, ends: Any) -> _Pattern | None:
        for start, end in zip(at[:_SAMPLED].tolist(), ends[:_SAMPLED].tolist(), strict=True):
            try:
                return self._make_pattern(data[start:end].tobytes())
            except MalformedError:
                continue  # the row may begin with another entry
        return None

    def _make_pattern(self, entry: bytes) -> _Pattern:
        """What an entry like this one looks like; raises MalformedError if it is none."""
        sizes: list[tuple[int, int]] = []

        def take_size(at: int) -> int:
            _, after = read_varint(entry, at, len(entry))
            sizes.append((at, after - at))
            return after

        at = take_size(1)
        end = at + read_varint(entry, 1, len(entry))[0]
        is_entry = entry[:1] == b"\x0a" and entry[at : at + len(self._key)] == self._key
        if not is_entry or end > len(entry):
            raise MalformedError("another entry")
        at += len(self._key)
        kind = FEATURE_LIST if self._has_list else NO_KIND
        if entry[at : at + 1] != b"\x12":
            raise MalformedError("no value")
        at = take_size(at + 1)
        if self.is_wanted and not self._has_list:
            kind, start, _ = parse_feature(entry, at, end)
            if kind == NO_KIND:
                raise MalformedError("no kind")
            at = take_size(at + 1)
            if start != at:
                raise MalformedError("something is before the list")
        return _Pattern(kind, entry[:at], sizes)


def read_kinds(data: Any, words: Any, at: Any, ends: Any) -> tuple[Any, Any, Any]:
    """Kinds of the Features between these places, where their lists are, and which are sound."""
    has_list = at < ends
    tags = data[np.minimum(at, len(data) - 1)]
    size, body = varints.read(words, np.minimum(at + 1, len(words) - 1))
    is_known = (tags == 0x0A) | (tags == 0x12) | (tags == 0x1A)
    is_sound = ~has_list | (is_known & (size >= 0) & (body + size == ends))
    good = has_list & is_sound
    return np.where(good, tags >> 3, NO_KIND).astype(np.uint8), np.where(good, body, ends), is_sound


class _Pattern:
    """The bytes an entry begins with, but for the sizes in it, of which the widths are known."""

    def __init__(self, kind: int, head: bytes, sizes: Sequence[tuple[int, int]]) -> None:
        self.kind = kind
        self._head = len(head)
        self._sizes = sizes
        mask = bytearray(b"\xff" * len(head))
        for at, width in sizes:
            mask[at : at + width] = b"\x80" * width  # whether another byte follows
        self._words = [
            (place, _word(mask[place : place + 8]), _word(head[place : place + 8], mask[place:]))
            for place in range(0, len(head), 8)
        ]

    def read(self, words: Any, at: Any, ends: Any) -> Read:
        limit = len(words) - 1
        is_inside = int(at.max()) + self._head <= limit
        found = []
        matches = np.ones(len(at), bool)
        for place, mask, wanted in self._words:
            here = at + place if is_inside else np.minimum(at + place, limit)
            word = words[here]
            matches &= (word & mask) == wanted
            found.append(word)
        place, width = self._sizes[0]
        last = at + (place + width) + self._take(found, place, width)
        matches &= last <= ends
        for place, width in self._sizes[1:]:
            matches &= at + (place + width) + self._take(found, place, width) == last
        starts = at + self._head
        rows = np.arange(len(at))
        if not matches.all():
            rows = np.flatnonzero(matches)
            starts, last = starts[rows], last[rows]
        kinds = np.full(len(rows), self.kind, np.uint8)
        return Read(rows, kinds, starts, last, np.ones(len(rows), bool))

    @staticmethod
    def _take(found: Sequence[Any], place: int, width: int) -> Any:
        """The number in these bytes of the words."""
        value = None
        for number in range(width):
            at = place + number
            part = ((found[at // 8] >> np.uint64(8 * (at % 8))) & np.uint64(0x7F)).astype(np.int64)
            value = part if value is None else value | (part << (7 * number))
        return value


def _word(part: bytes | bytearray, mask: bytes | bytearray | None = None) -> Any:
    kept = bytes(a & b for a, b in zip(part, mask, strict=False)) if mask is not None else part
    return np.uint64(int.from_bytes(kept, "little"))


def _begins_with(words: Any, at: Any, key: bytes) -> Any:
    """Whether the bytes at these places are the key. They may be behind the data's end."""
    limit = len(words) - 1
    matches = np.ones(len(at), bool)
    for place in range(0, len(key), 8):
        part = key[place : place + 8]
        mask = np.uint64((1 << (8 * len(part))) - 1)
        matches &= (words[np.minimum(at + place, limit)] & mask) == _word(part)
    return matches


def _join(one: Read, other: Read) -> Read:
    return Read(
        np.concatenate([one.rows, other.rows]),
        np.concatenate([one.kinds, other.kinds]),
        np.concatenate([one.starts, other.starts]),
        np.concatenate([one.ends, other.ends]),
        np.concatenate([one.is_sound, other.is_sound]),
    )
