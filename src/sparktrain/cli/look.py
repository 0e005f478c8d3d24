"""What `sparktrain tfrecord` finds in files, as lines and numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa

from sparktrain.data.example_columns import Problems, make_values, read_features
from sparktrain.data.example_infer import Inference
from sparktrain.data.example_parse import BYTES, FLOAT, INT64, KIND_NAMES
from sparktrain.data.example_scan import Scanner, Spans
from sparktrain.data.listing import list_tree
from sparktrain.data.record_blocks import HEAD, Block, Damage, read_blocks
from sparktrain.data.records import describe
from sparktrain.data.storage import open_plain, open_store

_ELEMENTS = {BYTES: pa.binary(), FLOAT: pa.float32(), INT64: pa.int64()}
#: Values of a list, features of a feature list, and bytes of a value that are shown.
_SHOWN_VALUES, _SHOWN_FEATURES, _SHOWN_BYTES = 8, 3, 60


def open_all(paths: list[str]) -> Iterator[tuple[str, IO[bytes]]]:
    for info, _ in list_tree(paths, {}):
        filesystem, _ = open_store(info.url, {})
        with open_plain(filesystem, info.path) as stream:
            yield info.path, stream


def count(path: str, stream: IO[bytes]) -> int:
    return sum(len(block) for block, _ in _blocks(path, stream, verify=False))


def verify(stream: IO[bytes]) -> tuple[int, list[Damage]]:
    """How many records are whole, and all damage."""
    damages: list[Damage] = []
    found = sum(len(block) for block, _ in read_blocks(stream, on_damage=damages.append))
    return found, damages


def infer(paths: list[str]) -> Inference:
    inference = Inference()
    for path, stream in open_all(paths):
        for block, _ in _blocks(path, stream):
            inference.add(block)
    return inference


def describe_records(path: str, stream: IO[bytes], number: int) -> Iterator[str]:
    """The first so many records, a line for each and for each of their features."""
    left = number
    for block, base in _blocks(path, stream):
        for row in range(min(len(block), left)):
            offset = base + int(block.starts[row]) - HEAD.size
            size = int(block.ends[row] - block.starts[row])
            yield f"record at byte {offset}, {size} bytes"
            for line in _describe_record(block, row):
                yield f"  {line}"
        left -= len(block)
        if left <= 0:
            break


def _blocks(path: str, stream: IO[bytes], *, verify: bool = True) -> Iterator[tuple[Block, int]]:
    try:
        yield from read_blocks(stream, verify=verify)
    except Damage as damage:
        raise describe(path, damage) from None


def _describe_record(block: Block, row: int) -> Iterator[str]:
    alone = Block(block.data, block.starts[row : row + 1], block.ends[row : row + 1])
    scanned = Scanner().scan(alone)
    if scanned.malformed[0]:
        raw = block.row(row)
        yield f"no Example: {raw[:_SHOWN_BYTES]!r}{'...' if len(raw) > _SHOWN_BYTES else ''}"
        return
    for name in sorted(scanned.features):
        yield f"{name}: {_describe_feature(alone, name, scanned.features[name])}"
    for name in sorted(scanned.lists):
        problems = Problems()
        _, features = read_features(alone, scanned.lists[name], np.array([0]), problems, name)
        if problems.by_row:
            yield f"{name}: {problems.by_row[0]}"
            continue
        size = len(features.kinds)
        yield f"{name}: {size} features"
        for number in range(min(size, _SHOWN_FEATURES)):
            one = slice(number, number + 1)
            spans = Spans(features.kinds[one], features.starts[one], features.ends[one])
            yield f"  {_describe_feature(alone, name, spans)}"
        if size > _SHOWN_FEATURES:
            yield "  ..."


def _describe_feature(block: Block, name: str, spans: Spans) -> str:
    kind = int(spans.kinds[0])
    if kind not in _ELEMENTS:
        return KIND_NAMES[kind]
    problems = Problems()
    column = make_values(block, name, spans, pa.list_(_ELEMENTS[kind]), problems)
    if problems.by_row:
        return problems.by_row[0]
    values = column[0].as_py()
    shown = ", ".join(_shorten(value) for value in values[:_SHOWN_VALUES])
    more = f", ... ({len(values)} values)" if len(values) > _SHOWN_VALUES else ""
    return f"{KIND_NAMES[kind]} [{shown}{more}]"


def _shorten(value: Any) -> str:
    if not isinstance(value, bytes):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    try:
        text = json.dumps(value.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        text = repr(value[:_SHOWN_BYTES])
    if len(text) <= _SHOWN_BYTES:
        return text
    return f"{text[:_SHOWN_BYTES]}... ({len(value)} bytes)"
