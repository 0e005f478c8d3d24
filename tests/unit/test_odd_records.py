"""Records as protobuf allows them but nobody writes; tf.train.SequenceExample is the judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from record_cases import LISTS, NAMES, TYPES, OddWriter, describe, make_block
from sparktrain.data.example_columns import Problems, make_column
from sparktrain.data.example_infer import Inference
from sparktrain.data.example_parse import MISSING
from sparktrain.data.example_scan import Scanned, Scanner, Spans

KINDS = {name: kind for kind, name in LISTS.items()}


def judge(record: bytes) -> Any:
    """What protobuf reads; None if it refuses the record."""
    try:
        return tf.train.SequenceExample.FromString(record)
    except Exception:
        return None


def read(block: Any, scanned: Scanned, name: str, depth: int, kind: int) -> tuple[Any, Any]:
    target = TYPES[kind]
    for _ in range(depth):
        target = pa.list_(target)
    problems = Problems()
    column = make_column(block, name, scanned, target, problems)
    column.validate(full=True)
    assert len(column) == len(block)
    return column, problems.by_row


class Counted:
    values = malformed = 0


def compare(records: list[bytes], scanned: Scanned, names: list[str], counted: Counted) -> None:
    block, size = make_block(records), len(records)
    judges = [judge(record) for record in records]
    for name in names:
        none = Spans(np.full(size, MISSING, np.uint8), np.zeros(size, int), np.zeros(size, int))
        scanned.features.setdefault(name, none)
        columns = {
            (kind, depth): read(block, scanned, name, depth, kind)
            for kind in LISTS
            for depth in (0, 1, 2)
        }
        for row, example in enumerate(judges):
            if example is None or scanned.malformed[row]:
                counted.malformed += 1
                continue
            found, expected = expect(example, name)
            for (kind, depth), (column, problems) in columns.items():
                if found is None:
                    assert column[row].as_py() is None and row not in problems
                elif found == (kind, depth) and row not in problems:
                    counted.values += 1
                    assert describe(column[row].as_py()) == describe(expected), records[row]


def expect(example: Any, name: str) -> tuple[tuple[int, int] | None, Any]:
    """Kind and depth in which protobuf has the feature, and its values."""
    if name in example.context.feature:
        feature = example.context.feature[name]
        kind = feature.WhichOneof("kind")
        if kind is None:
            return None, None
        return (KINDS[kind], 1), list(getattr(feature, kind).value)
    if name not in example.feature_lists.feature_list:
        return None, None
    steps = example.feature_lists.feature_list[name].feature
    kinds = {one.WhichOneof("kind") for one in steps} - {None}
    if len(kinds) > 1:
        return (-1, -1), None
    kind = kinds.pop() if kinds else "int64_list"
    values = [
        None if one.WhichOneof("kind") is None else list(getattr(one, kind).value) for one in steps
    ]
    return (KINDS[kind], 2), values


@pytest.mark.parametrize("oddness", [0.0, 0.05, 0.5])
def test_values_are_those_that_protobuf_reads(oddness: float) -> None:
    counted = Counted()
    for seed in range(12):
        writer = OddWriter(seed, oddness)
        chance = writer.random
        features = [(n, chance.choice([0, 1, 2, 3])) for n in chance.sample(NAMES, 5)]
        lists = [(n, chance.choice([1, 2, 3])) for n in chance.sample(NAMES, 3)]
        wanted = None if seed % 3 else chance.sample(NAMES, 3)
        scanner = Scanner(wanted)
        for size in (40, 1, 7):  # what is learned of one block serves the next
            records = [writer.record(features, lists if seed % 2 else []) for _ in range(size)]
            Inference(wanted).add(make_block(records))
            compare(records, scanner.scan(make_block(records)), wanted or NAMES, counted)
    print(f"{counted.values} values compared, {counted.malformed} records refused by one of us")
    # Most of what is odd is read all the same.
    assert counted.values > 1000 and counted.malformed < counted.values
    if oddness == 0:
        assert counted.malformed == 0
