"""How the variables of a model are split over parameter servers: by size, into parts.

A part is what travels in one message and is changed at once. Large variables are cut, small ones
share a part. All workers find the same parts, since they have the same model.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

#: Small enough for one part to be computed on while the next one is on its way.
PART_BYTES = 1 << 20


@dataclass(frozen=True)
class Variable:
    """One variable, and how it travels."""

    name: str
    shape: tuple[int, ...]
    #: A number type of numpy.
    dtype: str

    @property
    def size(self) -> int:
        size = 1
        for length in self.shape:
            size *= length
        return size

    @property
    def nbytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Piece:
    """Values of one variable, as if it were flat."""

    variable: int
    start: int
    stop: int


@dataclass(frozen=True)
class Part:
    """Pieces of one type that live on one server."""

    number: int
    server: int
    dtype: str
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        return sum(piece.stop - piece.start for piece in self.pieces)

    @property
    def nbytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize


def split(
    variables: Sequence[Variable], num_servers: int, part_bytes: int | None = PART_BYTES
) -> tuple[Part, ...]:
    """The parts of all variables, in the order of the variables.

    Args:
        part_bytes: How large a part may be; None makes each variable one part.
    """
    groups: list[tuple[Variable, list[Piece]]] = []
    if part_bytes is None:
        groups = [(v, [Piece(i, 0, v.size)]) for i, v in enumerate(variables)]
    else:
        total = sum(variable.nbytes for variable in variables)
        limit = max(min(part_bytes, -(-total // num_servers)), 8)
        for dtype in dict.fromkeys(v.dtype for v in variables):
            own = [i for i, v in enumerate(variables) if v.dtype == dtype]
            length = max(limit // np.dtype(dtype).itemsize, 1)
            for pieces in _pack(((i, variables[i].size) for i in own), length):
                groups.append((variables[own[0]], pieces))
    loads = [0] * num_servers
    sizes = [
        sum(p.stop - p.start for p in pieces) * np.dtype(first.dtype).itemsize
        for first, pieces in groups
    ]
    servers: dict[int, int] = {}
    for number in sorted(range(len(groups)), key=lambda n: (-sizes[n], n)):
        servers[number] = loads.index(min(loads))
        loads[servers[number]] += sizes[number]
    return tuple(
        Part(number, servers[number], first.dtype, tuple(pieces))
        for number, (first, pieces) in enumerate(groups)
    )


def _pack(sizes: Iterable[tuple[int, int]], length: int) -> list[list[Piece]]:
    """Pieces of at most so many values together; what is larger is cut evenly."""
    packed: list[list[Piece]] = []
    room = 0
    for index, size in sizes:
        if size > length:
            count = -(-size // length)
            edges = [size * n // count for n in range(count + 1)]
            packed += [[Piece(index, *edge)] for edge in itertools.pairwise(edges)]
            room = 0
        elif size > 0:
            if size > room:
                packed.append([])
                room = length
            packed[-1].append(Piece(index, 0, size))
            room -= size
    return packed


def fingerprint(variables: Sequence[Variable]) -> str:
    """Two models with the same one can share parameters. Names do not count: Keras numbers them."""
    told = [{**asdict(variable), "name": ""} for variable in variables]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def gather(part: Part, arrays: Sequence[Any]) -> Any:
    """The values of a part; not copied if it is of one variable."""
    flat = [arrays[p.variable].reshape(-1)[p.start : p.stop] for p in part.pieces]
    return flat[0] if len(flat) == 1 else np.concatenate(flat)


def scatter(part: Part, values: Any, arrays: Sequence[Any]) -> None:
    """Writes the values of a part into the arrays of the variables."""
    start = 0
    for piece in part.pieces:
        stop = start + piece.stop - piece.start
        arrays[piece.variable].reshape(-1)[piece.start : piece.stop] = values[start:stop]
        start = stop
