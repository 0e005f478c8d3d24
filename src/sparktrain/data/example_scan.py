"""Finds the features of many serialized Examples or SequenceExamples at once.

Records of one writer look alike: the same names in the same order, some left out where a value
is null. A whole block of them is therefore read in step, one name after the other, each with a
few operations on all rows together. Rows that do not fit into the order are read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparktrain.data import varints
from sparktrain.data.example_entry import EntryReader
from sparktrain.data.example_parse import (
    MISSING,
    Found,
    MalformedError,
    parse_features,
    parse_lists,
)
from sparktrain.data.record_blocks import Block

#: From so many rows the order of names is learned.
_SAMPLED = 16
#: So many orders are kept and tried before rows are read one by one.
_MAX_ORDERS = 4


@dataclass
class Spans:
    """Where one feature is in each row."""

    #: MISSING, or the kind of its list.
    kinds: Any
    starts: Any
    ends: Any


@dataclass
class Scanned:
    """What was found in a block."""

    #: By name; all that were asked for are there.
    features: dict[str, Spans]
    #: Feature lists by name, only those that were found.
    lists: dict[str, Spans]
    #: Which rows are no Examples, as a mask.
    malformed: Any


class Scanner:
    """Finds features in one block after the other, and remembers what the records look like.

    An Example is read as a SequenceExample that has no feature lists.

    Args:
        names: The features to look for; all, if it is None.
    """

    def __init__(self, names: Iterable[str] | None = None) -> None:
        wanted = None if names is None else frozenset(names)
        self._maps = (
            _Map(parse_features, has_lists=False, names=wanted),
            _Map(parse_lists, has_lists=True, names=wanted),
        )

    def scan(self, block: Block) -> Scanned:
        malformed = np.zeros(len(block), bool)
        words = varints.words_of(block.data)
        bodies, fits = _split(block, words)
        found: tuple[dict[str, Spans], dict[str, Spans]] = ({}, {})
        for one, spans, (starts, ends) in zip(self._maps, found, bodies, strict=True):
            rows = np.flatnonzero(fits & (starts < ends))
            fits[one.read_in_step(block, words, starts, ends, rows, spans)] = False
        for row in np.flatnonzero(~fits):
            self._read_alone(block, int(row), found, malformed)
        for name in self._maps[0].names or ():
            _spans_of(found[0], name, len(block))
        return Scanned(found[0], found[1], malformed)

    def _read_alone(
        self, block: Block, row: int, found: Sequence[dict[str, Spans]], malformed: Any
    ) -> None:
        record, base = block.row(row), int(block.starts[row])
        try:
            parsed = [one.parse(record) for one in self._maps]
        except MalformedError:
            parsed = [[] for _ in self._maps]
            malformed[row] = True
        for one, spans, entries in zip(self._maps, found, parsed, strict=True):
            # What was found in step before the row turned out not to fit.
            for stale in spans.values():
                stale.kinds[row] = MISSING
            for raw, kind, start, end in entries:
                name = _text(raw)
                if one.wants(name):
                    here = _spans_of(spans, name, len(block))
                    here.kinds[row], here.starts[row], here.ends[row] = (
                        kind,
                        base + start,
                        base + end,
                    )


@dataclass
class _Map:
    """One of the maps from names to values in each record."""

    parse: Callable[[bytes], list[Found]]
    has_lists: bool
    names: frozenset[str] | None
    orders: list[list[EntryReader]] = field(default_factory=list)

    def wants(self, name: str) -> bool:
        return self.names is None or name in self.names

    def read_in_step(
        self, block: Block, words: Any, starts: Any, ends: Any, rows: Any, spans: dict[str, Spans]
    ) -> Any:
        """Notes what is found; returns the rows whose names come in no order that was tried."""
        for number in range(_MAX_ORDERS):
            if not len(rows):
                break
            if number == len(self.orders):
                self.orders.append(self._learn(block, rows))
            left = _read_order(
                block, words, starts[rows], ends[rows], rows, self.orders[number], spans
            )
            if number and not len(left):
                # Most records of a file look alike: what fits is tried first the next time.
                self.orders.insert(0, self.orders.pop(number))
            rows = left
        else:
            if len(rows):
                # None of them fits any more: the next block may teach better ones.
                self.orders.clear()
        return rows

    def _learn(self, block: Block, rows: Any) -> list[EntryReader]:
        """An order of names that some of the rows have."""
        order: list[bytes] = []
        for row in rows[:: max(len(rows) // _SAMPLED, 1)]:
            try:
                found = [name for name, *_ in self.parse(block.row(int(row)))]
            except MalformedError:
                continue
            position = {name: place for place, name in enumerate(order)}
            place = num_added = 0
            for name in found:
                if name in position:
                    place = position[name] + num_added + 1
                else:
                    order.insert(place, name)
                    place, num_added = place + 1, num_added + 1
        return [
            EntryReader(name, is_wanted=self.wants(_text(name)), has_list=self.has_lists)
            for name in order
        ]


def _split(block: Block, words: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """Where the bodies of the maps are in each row, and which rows are as expected."""
    at, ends = block.starts.copy(), block.ends
    fits = np.ones(len(block), bool)
    bodies = []
    for tag in (0x0A, 0x12):
        is_here = (at < ends) & (block.data[at] == tag)
        size, body = varints.read(words, at + 1)
        fits &= ~is_here | ((size >= 0) & (body + size <= ends))
        is_here &= fits
        first = np.where(is_here, body, at)
        at = np.where(is_here, body + size, at)
        bodies.append((first, at))
    return bodies, fits & (at == ends)


def _read_order(
    block: Block,
    words: Any,
    at: Any,
    ends: Any,
    rows: Any,
    order: Iterable[EntryReader],
    spans: dict[str, Spans],
) -> Any:
    """Reads rows whose names come in this order; returns those that do not."""
    fits = np.ones(len(rows), bool)
    found = []
    for entry in order:
        here = np.flatnonzero(at < ends)
        if not len(here):
            break
        read = entry.read(block.data, words, at[here], ends[here])
        here = here[read.rows]
        at[here] = read.ends
        fits[here[~read.is_sound]] = False
        if entry.is_wanted:
            found.append((_text(entry.name), here, read))
    fits &= at == ends
    for name, here, read in found:
        target, kept = _spans_of(spans, name, len(block)), fits[here]
        if kept.all():
            kept = slice(None)
        place = rows[here[kept]]
        target.kinds[place] = read.kinds[kept]
        target.starts[place], target.ends[place] = read.starts[kept], read.ends[kept]
    return rows[~fits]


def _spans_of(spans: dict[str, Spans], name: str, size: int) -> Spans:
    if name not in spans:
        kinds = np.full(size, MISSING, np.uint8)
        spans[name] = Spans(kinds, np.zeros(size, np.int64), np.zeros(size, np.int64))
    return spans[name]


def _text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")
