"""The tf.data.Dataset of a table: shapes, types, what fit takes, order, and the waiting."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from sparktrain.data.arrow import make_block
from sparktrain.data.faults import Place
from sparktrain.data.schema import TYPES, Column
from sparktrain.data.spill import SpillWriter
from sparktrain.data.tables import TableSpec
from sparktrain.errors import ConfigError
from sparktrain.trainer.clock import watch_default_strategy
from sparktrain.trainer.dataset import Source, make_choice, make_dataset
from sparktrain.trainer.feed import FedTable
from sparktrain.trainer.meter import FeedMeter

ROWS = 20
#: Every kind of column, with nulls where they are filled.
COLUMNS = [
    Column("n", "long"),
    Column("flag", "boolean"),
    Column("age", "float", fill=-1.0, is_masked=True),
    Column("text", "string"),
    Column("image", "double", 1, (2, 2)),
    Column("raw", "binary", 0, (3,)),
    Column("day", "date"),
]
RAGGED = [
    Column("n", "long"),
    Column("words", "integer", 1, (None,)),
    Column("deep", "string", 2, (None, None)),
    Column("padded", "float", 1, (None,), pad=-1.0),
    Column("names", "string", 1, (None,), pad="-"),
    Column("fixed", "integer", 1, (4,), pad=9),
    Column("half", "integer", 2, (None, 2), pad=0),
]


def make_table() -> pa.RecordBatch:
    numbers = range(ROWS)
    lists = [list(range(n % 4)) for n in numbers]
    return pa.RecordBatch.from_pydict(
        {
            "n": list(numbers),
            "flag": [n % 2 == 0 for n in numbers],
            "age": pa.array([None if n % 3 == 0 else n for n in numbers], pa.float32()),
            "text": [f"é{n}" for n in numbers],
            "image": [[n, n, n, n + 0.5] for n in numbers],
            "raw": [bytes([n, n, 255]) for n in numbers],
            "day": pa.array(list(numbers), pa.date32()),
            "words": pa.array(lists, pa.list_(pa.int32())),
            "deep": [[["é"] * n, []] for n in map(len, lists)],
            "padded": pa.array(lists, pa.list_(pa.float32())),
            "names": [["é"] * len(one) for one in lists],
            "fixed": pa.array(lists, pa.list_(pa.int32())),
            "half": pa.array([[[1]] * len(one) for one in lists], pa.list_(pa.list_(pa.int32()))),
        }
    )


class Stored:
    """A source of blocks that are there, or come slowly."""

    def __init__(
        self, columns: Sequence[Column], block: int = 6, wait_s: float = 0.0, rows: int = ROWS
    ) -> None:
        self.columns = columns
        self.asked: list[tuple[int, int | None]] = []
        self._wait_s = wait_s
        whole = make_block(make_table().slice(0, rows), columns, Place("t", 0, 0))
        self._blocks = [whole.slice(start, block) for start in range(0, rows, block)]

    def blocks(
        self, pass_number: int, seed: int | None, is_again: bool = False
    ) -> Iterator[pa.RecordBatch]:
        self.asked.append((pass_number, seed))
        for block in self._blocks:
            time.sleep(self._wait_s)
            yield block


def make(source: Source, meter: FeedMeter | None = None, **wishes: Any) -> Any:
    wishes = {
        **dict.fromkeys(("features", "label", "weight")),
        "batch_size": 8,
        "shuffle": False,
        "seed": 0,
        "drop_remainder": False,
        **wishes,
    }
    choice = make_choice("t", source.columns, **wishes)
    return make_dataset(source, choice, meter or FeedMeter())


def read(dataset: Any, name: str = "n") -> list[int]:
    return [int(n) for batch in dataset for n in batch[name].numpy()]


@pytest.mark.parametrize("block", [1, 6, 8, 100])
def test_batches_are_dicts_of_all_columns(block: int) -> None:
    batches = list(make(Stored(COLUMNS, block)))
    assert [len(batch["n"]) for batch in batches] == [8, 8, 4]
    whole = {name: np.concatenate([b[name].numpy() for b in batches]) for name in batches[0]}
    assert list(whole["n"]) == list(whole["day"]) == list(range(ROWS))
    assert list(whole["flag"]) == [n % 2 == 0 for n in range(ROWS)]
    assert list(whole["age"]) == [-1.0 if n % 3 == 0 else n for n in range(ROWS)]
    assert list(whole["age_is_null"]) == [n % 3 == 0 for n in range(ROWS)]
    assert list(whole["text"]) == [f"é{n}".encode() for n in range(ROWS)]
    assert whole["image"].tolist() == [[[n, n], [n, n + 0.5]] for n in range(ROWS)]
    assert whole["raw"].tolist() == [[n, n, 255] for n in range(ROWS)]


@pytest.mark.parametrize("drop", [True, False])
def test_types_and_shapes_are_known_before_the_first_batch(drop: bool) -> None:
    dataset = make(Stored(COLUMNS), drop_remainder=drop)
    rows = 8 if drop else None
    for column in COLUMNS:
        spec = dataset.element_spec[column.name]
        assert spec.dtype == column.dtype and spec.shape.as_list() == [rows, *column.shape]
    assert dataset.element_spec["age_is_null"] == tf.TensorSpec((rows,), tf.bool)
    assert len(dataset.element_spec) == len(COLUMNS) + 1


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind not in ("vector", "image")])
def test_every_type_of_the_table_is_one_of_tensorflows(kind: str) -> None:
    source = Stored(COLUMNS, rows=0)
    source.columns = [Column("n", kind)]
    (spec,) = make(source).element_spec.values()
    assert spec.dtype == tf.as_dtype(TYPES[kind][0])


@pytest.mark.parametrize("block", [6, 100])
def test_ragged_and_padded_columns(block: int) -> None:
    dataset = make(Stored(RAGGED, block))
    batches = list(dataset)
    assert [len(batch["n"]) for batch in batches] == [8, 8, 4]
    lists = [list(range(n % 4)) for n in range(ROWS)]
    start = 0
    for batch in batches:
        mine = lists[start : start + len(batch["n"])]
        start += len(mine)
        assert isinstance(batch["words"], tf.RaggedTensor) and batch["words"].dtype == tf.int32
        assert batch["words"].to_list() == mine
        assert batch["deep"].to_list() == [[["é".encode()] * len(one), []] for one in mine]
        assert batch["padded"].numpy().tolist() == [[*one, -1.0, -1.0, -1.0][:3] for one in mine]
        names = [[*["é".encode()] * len(one), b"-", b"-", b"-"][:3] for one in mine]
        assert batch["names"].numpy().tolist() == names
        assert batch["fixed"].numpy().tolist() == [[*one, 9, 9, 9, 9][:4] for one in mine]
        half = [[*[[1, 0]] * len(one), [0, 0], [0, 0], [0, 0]][:3] for one in mine]
        assert batch["half"].numpy().tolist() == half
    spec = dataset.element_spec
    assert isinstance(spec["words"], tf.RaggedTensorSpec) and spec["words"].ragged_rank == 1
    assert spec["deep"].ragged_rank == 2
    assert spec["padded"].shape.as_list() == [None, None]
    assert spec["half"].shape.as_list() == [None, None, 2]


def test_a_ragged_column_next_to_names_with_a_slash() -> None:
    table = pa.RecordBatch.from_pydict({"a": [[1], [2, 3]], "a/0": [4, 5], "b/c": [6, 7]})
    columns = [Column("a", "long", 1, (None,)), Column("a/0", "long"), Column("b/c", "long")]
    source = Stored(RAGGED)
    source.columns, source._blocks = columns, [make_block(table, columns, Place("t", 0, 0))]
    (batch,) = make(source)
    assert batch["a"].to_list() == [[1], [2, 3]]
    assert batch["a/0"].numpy().tolist() == [4, 5] and batch["b/c"].numpy().tolist() == [6, 7]


@pytest.mark.parametrize("columns", [COLUMNS, RAGGED[:2]])
def test_a_remainder_is_dropped_if_asked(columns: list[Column]) -> None:
    assert read(make(Stored(columns), drop_remainder=True)) == list(range(16))
    assert read(make(Stored(columns), drop_remainder=True, batch_size=100)) == []


@pytest.mark.parametrize("columns", [COLUMNS, RAGGED[:2]])
@pytest.mark.parametrize("shuffle", [False, 4])
def test_no_rows_are_no_batches(columns: list[Column], shuffle: int) -> None:
    dataset = make(Stored(columns, rows=0), shuffle=shuffle)
    assert list(dataset) == [] and list(dataset) == []


def test_features_label_and_weight_are_as_fit_takes_them() -> None:
    source = Stored(COLUMNS)
    x, y = next(iter(make(source, features=["image"], label="n")))
    assert (x.shape, y.shape) == ((8, 2, 2), (8,))
    x, y, weight = next(iter(make(source, features=["image", "day"], label="n", weight="age")))
    assert set(x) == {"image", "day"} and weight.dtype == tf.float32
    x, y = next(iter(make(source, label="n")))
    assert set(x) == {"flag", "age", "age_is_null", "text", "image", "raw", "day"}
    assert next(iter(make(source, features="image"))).shape == (8, 2, 2)
    x, y = next(iter(make(source, features=["age_is_null"], label="age_is_null")))
    assert x.dtype == tf.bool
    x, y = next(iter(make(Stored(RAGGED), features=["words"], label="n")))
    assert isinstance(x, tf.RaggedTensor)


@pytest.mark.parametrize("columns", [COLUMNS, RAGGED[:2]])
def test_shuffled_rows_are_all_there_and_the_same_for_the_same_seed(columns: list[Column]) -> None:
    orders = [make(Stored(columns), shuffle=10, seed=seed) for seed in (3, 3, 4)]
    passes = [[read(dataset) for _ in range(2)] for dataset in orders]
    assert passes[0] == passes[1] != passes[2]
    assert passes[0][0] != passes[0][1]
    for one in itertools.chain.from_iterable(passes):
        assert sorted(one) == list(range(ROWS)) != one


def test_every_iteration_is_a_new_pass() -> None:
    source = Stored(COLUMNS)
    dataset = make(source, shuffle=True, seed=7)
    for _ in range(3):
        list(dataset)
    assert source.asked == [(0, 7), (1, 7), (2, 7)]
    plain = Stored(COLUMNS)
    assert read(make(plain, seed=7)) == list(range(ROWS)) and plain.asked == [(0, None)]


@pytest.mark.parametrize(
    ("wishes", "parts"),
    [
        ({"batch_size": 0}, ["batch_size=0", "at least 1"]),
        ({"batch_size": True}, ["batch_size=True"]),
        ({"batch_size": 2.0}, ["batch_size=2.0"]),
        ({"features": ["no"]}, ["features='no'", "age_is_null"]),
        ({"features": []}, ["features=[]", "None means all"]),
        ({"label": "no"}, ["label='no'", "image"]),
        ({"weight": "n"}, ["weight='n'", "label"]),
        ({"shuffle": -1}, ["shuffle=-1"]),
        ({"shuffle": 1.5}, ["shuffle=1.5"]),
        ({"shuffle": "spark"}, ["shuffle='spark'", "st.table"]),
        ({"seed": -1}, ["seed=-1"]),
        ({"seed": None}, ["seed=None"]),
    ],
)
def test_wishes_that_cannot_be_met(wishes: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        make(Stored(COLUMNS), **wishes)
    for part in ("ctx.dataset('t')", *parts):
        assert part in str(caught.value)


def test_an_error_of_the_source_reaches_the_reader_with_its_text(tmp_path: Path) -> None:
    block = make_block(make_table(), COLUMNS, Place("t", 0, 0))
    writer = SpillWriter(tmp_path / "t.arrow", block.schema)
    entries = [writer.append(block) for _ in range(2)]
    writer.close()
    table = FedTable(TableSpec("t", tuple(COLUMNS)))
    table.open(tmp_path / "t.arrow")
    table.add(entries)
    table.finish()
    assert read(make(table)) == [*range(ROWS), *range(ROWS)]
    os.truncate(tmp_path / "t.arrow", entries[1].offset + 10)
    with pytest.raises(tf.errors.OpError, match=r"the spill .*t\.arrow ends at byte"):
        list(make(table))


def test_the_meter_counts_rows_and_bytes() -> None:
    meter = FeedMeter()
    source = Stored(COLUMNS)
    for _ in range(2):
        list(make(source, meter))
    assert meter.rows == 2 * ROWS and meter.bytes >= 2 * ROWS * (8 + 4 * 8 + 3)
    assert meter.wait_s is None


@pytest.mark.parametrize(("wait_s", "low", "high"), [(0.3, 0.2, 3.0), (0.0, 0.0, 0.25)])
def test_a_step_measures_how_long_it_waits(wait_s: float, low: float, high: float) -> None:
    """As Keras does it: the next batch is asked for inside the compiled step."""
    clock = watch_default_strategy()
    iterator = iter(make(Stored(COLUMNS, wait_s=wait_s)))
    strategy = tf.distribute.get_strategy()

    @tf.function
    def step() -> Any:
        return strategy.run(lambda batch: tf.size(tf.nest.flatten(batch)[0]), (next(iterator),))

    try:
        if not wait_s:
            next(iterator)
            time.sleep(0.5)  # the next batches are made meanwhile
        step()
        first = clock.seconds
        step()
        assert low <= clock.seconds - (0.0 if wait_s else first) < high
    finally:
        del strategy.run


def test_epochs_add_up_and_the_first_one_is_kept() -> None:
    meter = FeedMeter()
    assert meter.to_dict()["first_s"] == 0.0
    meter.add_epoch(2.0, 1.5)
    meter.add_epoch(1.0, 0.25)
    expected = {"train_s": 3.0, "wait_s": 1.75, "first_s": 2.0, "first_wait_s": 1.5}
    assert meter.to_dict() == {"rows": 0, "bytes": 0, **expected}
