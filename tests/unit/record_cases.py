"""What tests of records share: blocks, and messages as protobuf allows them but nobody writes."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from sparktrain.data import varints
from sparktrain.data.example_parse import BYTES, FLOAT, INT64
from sparktrain.data.record_blocks import Block

LISTS = {BYTES: "bytes_list", FLOAT: "float_list", INT64: "int64_list"}
TYPES = {BYTES: pa.binary(), FLOAT: pa.float32(), INT64: pa.int64()}
NAMES = ["a", "b", "label", "image/encoded", "é", "x1", "n" * 130, "", "abcdefgh", "abcdefghi"]


def make_block(records: list[bytes]) -> Block:
    """As they are in a file: with bytes between them."""
    sizes = np.array([len(record) for record in records], np.int64)
    ends = np.cumsum(sizes + 16) - 4
    framed = b"".join(b"twelve bytes" + record + b"foot" for record in records)
    data = np.frombuffer(framed + bytes(varints.PADDING), np.uint8)
    return Block(data, ends - sizes, ends)


class OddWriter:
    """Writes SequenceExamples in the ways that protobuf allows.

    Args:
        seed: The same seed writes the same.
        oddness: How often something is written as nobody writes it, from 0 to 1.
    """

    def __init__(self, seed: int, oddness: float = 0.1) -> None:
        self.random = random.Random(seed)
        self._oddness = oddness

    def is_odd(self, share: float = 1.0) -> bool:
        return self.random.random() < self._oddness * share

    def record(self, features: list[tuple[str, int]], lists: list[tuple[str, int]]) -> bytes:
        """One with most of these features and feature lists, of these kinds."""
        chance = self.random
        entries = [
            self.entry(name, self.feature(kind)) for name, kind in features if chance.random() < 0.9
        ]
        if self.is_odd(0.3):
            chance.shuffle(entries)
        if self.is_odd(0.2) and entries:
            entries.append(self.entry(chance.choice(NAMES), self.feature()))
        parts = [self.field(1, self.mix(entries))]
        if self.is_odd(0.1):  # a message in two pieces, which count as one
            parts = [self.field(1, self.mix(entries[:2])), self.field(1, self.mix(entries[2:]))]
        if lists:
            found = [self.list_entry(*one) for one in lists if chance.random() < 0.9]
            parts.append(self.field(2, self.mix(found)))
        if self.is_odd(0.1):
            chance.shuffle(parts)
        return self.mix(parts)

    def list_entry(self, name: str, kind: int) -> bytes:
        count = self.random.choice([0, 1, 2, 9, 30])
        kinds = [kind if self.random.random() < 0.9 else 0 for _ in range(count)]
        return self.entry(name, self.mix([self.field(1, self.feature(one)) for one in kinds]))

    def entry(self, name: str, value: bytes) -> bytes:
        parts = [self.field(1, name.encode()), self.field(2, value)]
        if self.is_odd(0.1):
            parts.reverse()
        if self.is_odd(0.1):
            parts.pop()
        if self.is_odd(0.1):  # the last of two names counts
            parts.insert(0, self.field(1, self.random.choice(NAMES).encode()))
        if self.is_odd(0.05):
            parts.append(self.field(2, self.feature()))
        return self.field(1, b"".join(parts))

    def feature(self, kind: int | None = None) -> bytes:
        kind = self.random.choice([0, 1, 2, 3]) if kind is None else kind
        parts = [self.field(kind, self.values(kind))] if kind else []
        if self.is_odd(0.2):
            second = self.random.choice([1, 2, 3])
            parts.append(self.field(second, self.values(second)))
        return self.mix(parts)

    def values(self, kind: int) -> bytes:
        chance, count = self.random, self.random.choice([0, 1, 1, 1, 2, 5, 20])
        if kind == BYTES:
            sizes = [chance.choice([0, 1, 5, 130]) for _ in range(count)]
            return self.mix([self.field(1, chance.randbytes(size)) for size in sizes])
        make: Callable[[], bytes] = self.number if kind == INT64 else self.real
        found = [make() for _ in range(count)]
        if not self.is_odd():
            is_packed = bool(count) or chance.random() < 0.3
            return self.mix([self.field(1, b"".join(found))] if is_packed else [])
        parts: list[bytes] = []
        while found:  # one by one, or some together, one behind the other
            if chance.random() < 0.5:
                parts.append(self.tag(1, 0 if kind == INT64 else 5) + found.pop(0))
            else:
                some = chance.randint(0, len(found))
                parts.append(self.field(1, b"".join(found[:some])))
                found = found[some:]
        return self.mix(parts)

    def number(self) -> bytes:
        known = [0, 1, -1, 5, 127, 128, 300, 2**31, 2**40, 2**63 - 1, -(2**63)]
        return self.varint(self.random.choice([*known, self.random.getrandbits(63) - 2**62]))

    def real(self) -> bytes:
        known = [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 1e-45, self.random.random()]
        return struct.pack("<f", self.random.choice(known))

    def mix(self, parts: list[bytes]) -> bytes:
        """Fields with some among them that nobody knows."""
        while self.is_odd(0.3):
            parts.insert(self.random.randint(0, len(parts)), self.unknown())
        return b"".join(parts)

    def unknown(self) -> bytes:
        chance = self.random
        number, kind = chance.choice([5, 9, 15, 16, 100, 2000]), chance.choice([0, 1, 2, 5])
        if kind == 0:
            bits = chance.choice([7, 30, 63])
            return self.tag(number, 0) + self.varint(chance.getrandbits(bits))
        if kind == 2:
            return self.field(number, chance.randbytes(chance.randint(0, 9)))
        return self.tag(number, kind) + chance.randbytes(8 if kind == 1 else 4)

    def field(self, number: int, value: bytes) -> bytes:
        return self.tag(number, 2) + self.varint(len(value), longest=5) + value

    def tag(self, number: int, kind: int) -> bytes:
        return self.varint(number << 3 | kind, longest=5)

    def varint(self, value: int, longest: int = 9) -> bytes:
        """A number, sometimes with more bytes than it needs."""
        found = varints.encode(np.array([value]))[0].tolist()
        if self.is_odd(0.2) and len(found) < longest:
            found[-1] |= 0x80
            found += [0x80] * self.random.randint(0, longest - len(found) - 1) + [0]
        return bytes(found)


def describe(values: Any) -> Any:
    """To compare lists with NaN in them."""
    return repr(values)
