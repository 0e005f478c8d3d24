"""Finds out which columns Examples have, and of which types.

A type is chosen that every value seen can be read as: whole numbers and floats together are
double, or text if that would change a number; anything together with bytes is text. Bytes are a
string only if all of them are UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.data.example_columns import Problems, read_features
from sparktrain.data.example_lists import read_lists
from sparktrain.data.example_parse import BYTES, FEATURE_LIST, FLOAT, INT64, MISSING
from sparktrain.data.example_scan import Scanner, Spans
from sparktrain.data.record_blocks import Block
from sparktrain.errors import ConfigError

#: Beyond it not every whole number is a double.
_EXACT = 1 << 53


@dataclass
class Seen:
    """What was seen of one feature."""

    kinds: set[int] = field(default_factory=set)
    has_many: bool = False
    has_one: bool = False
    is_text: bool = True
    #: Whether a whole number is too large for a double.
    is_long: bool = False
    #: How many lists of features it is in, beside its own.
    depth: int = 0

    @property
    def type(self) -> str:
        """Spark's name of the type."""
        found = f"array<{self.element}>" if self.depth or self.is_list else self.element
        return f"array<{found}>" if self.depth else found

    @property
    def element(self) -> str:
        """Spark's name of the type of the values."""
        if BYTES in self.kinds:
            return "string" if self.is_text else "binary"
        if self.kinds == {INT64}:
            return "long"
        if self.kinds == {FLOAT}:
            return "float"
        return "double" if self.kinds and not self.is_long else "string"

    @property
    def is_list(self) -> bool:
        """Lists of at most one value are single values, and null where there is none."""
        return self.has_many or (bool(self.kinds) and not self.has_one)

    def add(self, block: Block, spans: Spans) -> Any:
        """Notes what one block has of it; returns the rows that are malformed."""
        malformed = []
        for kind in (BYTES, FLOAT, INT64):
            rows = np.flatnonzero(spans.kinds == kind)
            if not len(rows):
                continue
            lists, is_bad = read_lists(block, kind, spans.starts[rows], spans.ends[rows])
            malformed.append(rows[is_bad])
            counts = np.diff(lists.offsets.to_numpy())[~is_bad]
            if not len(counts):
                continue
            self.kinds.add(kind)
            self.has_many |= bool((counts > 1).any())
            self.has_one |= bool((counts == 1).any())
            if kind == BYTES and self.is_text:
                self.is_text = _is_text(lists.values)
            elif kind == INT64 and not self.is_long:
                values = lists.values.to_numpy()
                self.is_long = bool(((values > _EXACT) | (values < -_EXACT)).any())
        return np.concatenate(malformed) if malformed else np.zeros(0, np.int64)


class Inference:
    """Gathers what blocks of records have; the same in whatever order they come.

    Args:
        names: Only these features; all, if it is None.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self._scanner = Scanner(names)
        self._seen: dict[str, Seen] = {}
        self._lists: dict[str, Seen] = {}
        self.num_rows = 0
        self.num_malformed = 0

    def add(self, block: Block) -> None:
        scanned = self._scanner.scan(block)
        malformed = scanned.malformed
        self.num_rows += len(block)
        for name, spans in scanned.features.items():
            if (spans.kinds != MISSING).any():
                malformed[self._seen.setdefault(name, Seen()).add(block, spans)] = True
        for name, spans in scanned.lists.items():
            rows = np.flatnonzero(spans.kinds == FEATURE_LIST)
            if not len(rows):
                continue
            problems = Problems()
            owners, features = read_features(block, spans, rows, problems, name)
            malformed[list(problems.by_row)] = True
            bad = self._lists.setdefault(name, Seen(depth=1)).add(block, features)
            malformed[rows[owners[bad]]] = True
        self.num_malformed += int(malformed.sum())

    def types(self) -> dict[str, str]:
        """Spark's names of types by column, in the order of the names; raises ConfigError."""
        both = sorted(self._lists.keys() & self._seen.keys())
        if both:
            raise ConfigError(
                problem=f"{both[0]!r} is a feature in some records, and a list of features in"
                " others: no type fits both.",
                advice="Give a schema, with the one that you need.",
            )
        seen = {**self._lists, **self._seen}
        return {name: seen[name].type for name in sorted(seen)}


def _is_text(values: Any) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True
