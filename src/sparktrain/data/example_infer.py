"""Finds out which columns Examples have, and of which types.

A type is chosen that every value seen can be read as: whole numbers and floats together are
double, anything together with bytes is text. Bytes are a string only if all of them are UTF-8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.data.example_lists import read_lists
from sparktrain.data.example_scan import BYTES, FLOAT, INT64, Block, scan


@dataclass
class Seen:
    """What was seen of one feature."""

    kinds: set[int]
    has_many: bool = False
    has_one: bool = False
    is_text: bool = True

    @property
    def element(self) -> str:
        """Spark's name of the type of the values."""
        if BYTES in self.kinds:
            return "string" if self.is_text else "binary"
        if self.kinds == {INT64}:
            return "long"
        if self.kinds == {FLOAT}:
            return "float"
        return "double" if self.kinds else "string"

    @property
    def is_list(self) -> bool:
        """Lists of at most one value are single values, and null where there is none."""
        return self.has_many or (bool(self.kinds) and not self.has_one)


class Inference:
    """Gathers what blocks of Examples have; the same in whatever order they come."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.num_rows = 0
        self.num_malformed = 0

    def add(self, block: Block) -> None:
        spans, malformed = scan(block)
        self.num_rows += len(block)
        for name, found in spans.items():
            seen = self.seen.setdefault(name, Seen(set()))
            for kind in (BYTES, FLOAT, INT64):
                rows = np.flatnonzero(found.kinds == kind)
                if not len(rows):
                    continue
                lists, is_bad = read_lists(block, kind, found.starts[rows], found.ends[rows])
                malformed[rows[is_bad]] = True
                counts = np.diff(lists.offsets.to_numpy())[~is_bad]
                if not len(counts):
                    continue
                seen.kinds.add(kind)
                seen.has_many |= bool((counts > 1).any())
                seen.has_one |= bool((counts == 1).any())
                if kind == BYTES and seen.is_text:
                    seen.is_text = _is_text(lists.values)
        self.num_malformed += int(malformed.sum())

    def types(self) -> dict[str, str]:
        """Spark's names of types by column, in the order of the names."""
        found = {}
        for name in sorted(self.seen):
            seen = self.seen[name]
            found[name] = f"array<{seen.element}>" if seen.is_list else seen.element
        return found


def _is_text(values: Any) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True
