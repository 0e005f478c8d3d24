"""CSV and Parquet files of any store become blocks: every row once, bad ones named."""

from __future__ import annotations

import datetime
import gzip
import http.server
import threading
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparktrain as st
from sparktrain.data import csv_file, tabular
from sparktrain.data.ahead import read_ahead
from sparktrain.data.csv_file import Tally
from sparktrain.data.faults import BadFileError, BadRowError
from sparktrain.data.fields import find_columns
from sparktrain.data.files import Files
from sparktrain.data.shards import list_files, split
from sparktrain.data.tabular import read_blocks
from sparktrain.data.views import to_numpy


def read_worker(files: Files, num_workers: int = 1, worker: int = 0, **options: Any) -> list[Any]:
    """All blocks of one worker."""
    infos = list_files(files, num_workers)
    columns = find_columns("train", files, infos)
    shards = split(infos, num_workers)[worker]
    return list(read_blocks(shards, files.options, columns, range(len(shards)), **options))


def read(files: Files, **options: Any) -> dict[str, list[Any]]:
    """All rows by column, as Python values."""
    columns = find_columns("train", files, list_files(files))
    found: dict[str, list[Any]] = {}
    for block in read_worker(files, **options):
        for name, values in to_numpy(block, columns).items():
            found.setdefault(name, []).extend(values.tolist())
    return found


def write_csv(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_csv_with_header_and_guessed_types(tmp_path: Path) -> None:
    write_csv(
        tmp_path / "a.csv", "\ufeffn,x,s,b,d\n1,0.5,hi,true,2024-01-02\n2,1,,false,1970-01-02\n"
    )
    # Another order of columns, and Windows line ends.
    write_csv(tmp_path / "b.csv", "s,x,n,d,b\r\nyo,2.5,3,1970-01-01,true\r\n")
    assert read(st.files(tmp_path, format="csv")) == {
        "n": [1, 2, 3],
        "x": [0.5, 1.0, 2.5],
        "s": [b"hi", b"", b"yo"],
        "b": [True, False, True],
        "d": [(datetime.date(2024, 1, 2) - datetime.date(1970, 1, 1)).days, 1, 0],
    }


def test_csv_without_header_takes_names_and_types_of_the_schema(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", "1;'a;b'\n2;'it''s'")
    found = read(
        st.files(
            tmp_path,
            format="csv",
            header=False,
            schema="n float, s string",
            delimiter=";",
            quote="'",
        )
    )
    assert found == {"n": [1.0, 2.0], "s": [b"a;b", b"it's"]}


def test_csv_defaults_masks_times_and_chosen_columns(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "a.csv", "n,x,t,u\n,1,1970-01-01T00:00:01Z,q\n5,,1970-01-01 00:00:02,\n"
    )
    declared = st.files(
        path,
        format="csv",
        schema={"n": "integer", "x": "double", "t": "timestamp", "u": "string"},
        columns=["t", "n", "x"],
        defaults={"n": -1},
        mask=["x"],
    )
    assert read(declared) == {
        "t": [1_000_000, 2_000_000],
        "n": [-1, 5],
        "x": [1.0, 0.0],
        "x_is_null": [False, True],
    }


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.csv.gz", gzip.compress),
        ("a.csv.zz", zlib.compress),
        ("a.zlib", zlib.compress),
        ("a.csv.deflate", zlib.compress),
    ],
)
def test_compression_by_extension(tmp_path: Path, name: str, pack: Any) -> None:
    text = "n\n" + "".join(f"{number}\n" for number in range(300_000))
    (tmp_path / name).write_bytes(pack(text.encode()))
    assert read(st.files(tmp_path, format="csv")) == {"n": list(range(300_000))}
    cut = (tmp_path / name).read_bytes()[:-50_000]
    found = st.files(tmp_path, format="csv", schema="n long")
    (tmp_path / name).write_bytes(cut)
    with pytest.raises(BadFileError, match=f"{name} cannot be read: EOFError"):
        read(found)


BAD = 'n,x\n1,2\n3,oops\n5,6\n7\n"8\n",9\n10,\n11,12\n'


@pytest.mark.parametrize(
    ("rows", "line", "reason"),
    [
        ("1,2\n3,oops\n5,6\n", 3, "column 'x': CSV conversion error to double"),
        ("1,2\n\n\n7\n", 5, "Expected 2 columns, got 1"),
        ("1,2\n7,8,9\n", 3, "Expected 2 columns, got 3"),
        ("1,2\n10,\n", 3, r"column 'x' is null. Give fill="),
        ('"1\n",2\n', 2, "column 'n'"),
        ("1,2\n" * 5000 + "a,3\n" + "1,2\n" * 5000, 5002, "column 'n'"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, rows: str, line: int, reason: str) -> None:
    path = write_csv(tmp_path / "bad.csv", "n,x\n" + rows)
    found = st.files(path, format="csv", schema="n long, x double")
    with pytest.raises(BadRowError, match=rf"bad\.csv, line {line}: .*{reason}.*bad_rows="):
        read(found)


def test_bad_rows_are_skipped_and_counted(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "bad.csv", BAD)
    tally = Tally()
    declared = st.files(path, format="csv", schema="n long, x double", bad_rows="skip")
    assert read(declared, tally=tally) == {"n": [1, 5, 11], "x": [2.0, 6.0, 12.0]}
    assert tally.num_skipped == 4


def test_text_of_several_lines_is_cut_at_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_file, "PIECE_BYTES", 37)
    monkeypatch.setattr(csv_file, "MAX_ROW_BYTES", 200)
    texts = [f'"a\n{"b" * (number % 23)},""{number}\n"' for number in range(100)]
    rows = "".join(f"{number},{text}\n" for number, text in enumerate(texts))
    path = write_csv(tmp_path / "a.csv", "n,s\n" + rows)
    declared = st.files(path, format="csv", schema="n long, s string")
    found = read(declared)
    assert found["n"] == list(range(100))
    assert found["s"][50] == b'a\nbbbb,"50\n'
    own = [read_rows(declared, 3, worker) for worker in range(3)]
    assert sorted(chain(*own)) == list(range(100))
    write_csv(path, 'n,s\n1,"' + "x,y\n" * 100)
    with pytest.raises(BadRowError, match=r"a\.csv, line 2: .*never closed.*quote=None"):
        read(declared)


def read_rows(declared: Files, num_workers: int, worker: int) -> list[int]:
    return [
        n for block in read_worker(declared, num_workers, worker) for n in block["n"].to_pylist()
    ]


@pytest.mark.parametrize("num_workers", range(1, 6))
@pytest.mark.parametrize("num_files", [1, 2, 5, 7])
@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_every_row_is_read_by_exactly_one_worker(
    tmp_path: Path, num_workers: int, num_files: int, format: str
) -> None:
    numbers = iter(range(10_000))
    total = 0
    for number in range(num_files):
        rows = [next(numbers) for _ in range(number * 17 % 40)]
        total += len(rows)
        path = tmp_path / f"part-{number}.{format}"
        if format == "csv":
            write_csv(path, "n\n" + "".join(f"{row}\n" for row in rows))
        else:
            pq.write_table(pa.table({"n": pa.array(rows, pa.int64())}), path, row_group_size=9)
    declared = st.files(tmp_path, format=format, schema="n long" if format == "csv" else None)
    own = [read_rows(declared, num_workers, worker) for worker in range(num_workers)]
    assert sorted(chain(*own)) == list(range(total))


def test_order_and_sizes_of_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        rows = "".join(f"{number}\n" for _ in range(25_000))
        write_csv(tmp_path / f"{number}.csv", f"n\n{rows}")
    declared = st.files(tmp_path, format="csv")
    infos = list_files(declared)
    columns = find_columns("train", declared, infos)
    (shards,) = split(infos, 1)
    blocks = list(read_blocks(shards, declared.options, columns, [2, 0]))
    assert [block.num_rows for block in blocks] == [10_000, 10_000, 5_000] * 2
    assert [block["n"][0].as_py() for block in blocks] == [2, 2, 2, 0, 0, 0]
    monkeypatch.setattr(tabular, "BLOCK_BYTES", 8000)
    blocks = list(read_blocks(shards, declared.options, columns, [1]))
    assert {block.num_rows for block in blocks} == {1000}


def test_parquet_types(tmp_path: Path) -> None:
    when = datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "u8": pa.array([200, 3], pa.uint8()),
            "f": pa.array([0.5, 1.5], pa.float32()),
            "c": pa.array(["x", "y"]).dictionary_encode(),
            "t": pa.array([when, when], pa.timestamp("ns", "UTC")),
            "m": pa.array([1, 2], pa.int32()).cast(pa.decimal128(12, 2)),
            "l": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64())),
            "k": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
            "z": pa.array([None, 4], pa.int64()),
            "odd": pa.array([{"a": 1}, {"a": 2}]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    names = [name for name in table.column_names if name != "odd"]
    declared = st.files(tmp_path, format="parquet", columns=names, fill={"z": 7})
    assert read(declared) == {
        "u8": [200, 3],
        "f": [0.5, 1.5],
        "c": [b"x", b"y"],
        "t": [1_000_000, 1_000_000],
        "m": [1.0, 2.0],
        "l": [[1.0, 2.0], [3.0, 4.0]],
        "k": [[1, 2], [3, 4]],
        "z": [7, 4],
    }
    with pytest.raises(st.SchemaError, match=r"'odd'.*has no tensor"):
        read(st.files(tmp_path, format="parquet"))


def test_a_bad_row_of_parquet_is_named_with_its_place_in_the_file(tmp_path: Path) -> None:
    rows = pa.table({"n": pa.array([*range(25), None, *range(4)], pa.int64())})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=10)
    declared = st.files(tmp_path, format="parquet")
    with pytest.raises(BadRowError, match=r"'n' of .*a\.parquet is null in row 25 "):
        for worker in range(2):
            read_worker(declared, 2, worker)


def test_files_that_differ_from_the_first_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": pa.array([3], pa.int16())}), tmp_path / "b.parquet")
    declared = st.files(tmp_path, format="parquet")
    assert read(declared) == {"n": [1, 2, 3]}
    pq.write_table(pa.table({"n": [1.5]}), tmp_path / "c.parquet")
    with pytest.raises(BadFileError, match=r"c\.parquet: column 'n' is double"):
        read(declared)
    pq.write_table(pa.table({"m": [1]}), tmp_path / "c.parquet")
    with pytest.raises(BadFileError, match=r"c\.parquet has not exactly one column 'n'; it has m"):
        read(declared)
    write_csv(tmp_path / "a.csv", "n\n1\n")
    write_csv(tmp_path / "b.csv", "m\n1\n")
    with pytest.raises(BadFileError, match=r"b\.csv has not exactly one column 'n'"):
        read(st.files(f"{tmp_path}/*.csv", format="csv"))
    with pytest.raises(st.SchemaError, match=r"'k'.*a\.csv has no such column"):
        read(st.files(f"{tmp_path}/*.csv", format="csv", schema="k long"))


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_vanished_or_broken_file_is_named(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"b.{format}"
    for one in (tmp_path / f"a.{format}", path):
        if format == "csv":
            write_csv(one, "n\n1\n")
        else:
            pq.write_table(pa.table({"n": [1]}), one)
    declared = st.files(tmp_path, format=format)
    infos = list_files(declared)
    columns = find_columns("train", declared, infos)
    (shards,) = split(infos, 1)
    path.unlink()
    with pytest.raises(BadFileError, match=rf"b\.{format} is not there any more"):
        list(read_blocks(shards, declared.options, columns, [0, 1]))
    if format == "parquet":
        path.write_bytes((tmp_path / "a.parquet").read_bytes()[:-9])
        with pytest.raises(BadFileError, match=r"b\.parquet cannot be read"):
            list(read_blocks(shards, declared.options, columns, [0, 1]))


def test_empty_files_have_no_rows(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", "n\n")
    write_csv(tmp_path / "b.csv", "")
    write_csv(tmp_path / "c.csv", "n\n\n\n")
    assert read_worker(st.files(tmp_path, format="csv", schema="n long")) == []
    assert read_worker(st.files(tmp_path, format="csv")) == []
    # Types are guessed from the first file that has rows.
    write_csv(tmp_path / "d.csv", "n\n5\n")
    assert read(st.files(tmp_path, format="csv")) == {"n": [5]}
    write_csv(tmp_path / "x", "")
    with pytest.raises(st.SchemaError, match="There is no column"):
        read(st.files(tmp_path / "x", format="csv"))


def find_readers() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "sparktrain-read-ahead"]


def test_closing_early_ends_the_thread_and_closes_the_file(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", "n\n" + "1\n" * 50_000)
    declared = st.files(tmp_path, format="csv")
    infos = list_files(declared)
    columns = find_columns("train", declared, infos)
    blocks = read_blocks(split(infos, 1)[0], declared.options, columns, [0])
    assert next(blocks).num_rows == 10_000
    assert len(find_readers()) == 1
    blocks.close()
    assert find_readers() == []
    # One that nobody ever asked has started nothing.
    read_blocks(split(infos, 1)[0], declared.options, columns, [0]).close()
    assert find_readers() == []


def test_exactly_one_item_is_made_ahead() -> None:
    made: list[int] = []
    is_closed = threading.Event()

    def make() -> Iterator[int]:
        try:
            for number in range(5):
                made.append(number)
                yield number
        finally:
            is_closed.set()

    items = read_ahead(make())
    assert next(items) == 0
    for _ in range(200):
        if len(made) == 2:
            break
        threading.Event().wait(0.01)
    threading.Event().wait(0.05)
    assert made == [0, 1]
    items.close()
    assert is_closed.is_set()


def test_an_error_comes_after_the_items_before_it() -> None:
    def make() -> Iterator[int]:
        yield 1
        raise KeyError("x")

    items = read_ahead(make())
    assert next(items) == 1
    with pytest.raises(KeyError):
        next(items)


def test_other_stores(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    store.pipe("/tabular/a.csv.gz", gzip.compress(b"n\n1\n2\n"))
    pq.write_table(pa.table({"n": [3]}), tmp_path / "x")
    store.pipe("/tabular/b.parquet", (tmp_path / "x").read_bytes())
    assert read(st.files("memory://tabular/*.gz", format="csv")) == {"n": [1, 2]}
    assert read(st.files("memory://tabular/b.parquet", format="parquet")) == {"n": [3]}
    store.rm("/tabular", recursive=True)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    handler = partial(QuietHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_files_over_http(tmp_path: Path, web: str) -> None:
    rows = np.arange(1_000_000)
    write_csv(tmp_path / "a.csv", "n\n" + "\n".join(map(str, rows)) + "\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"n\n7\n"))
    pq.write_table(pa.table({"n": rows}), tmp_path / "c.parquet", row_group_size=50_000)
    urls = [f"{web}/a.csv", f"{web}/b.csv.gz"]
    assert read(st.files(urls, format="csv")) == {"n": [*rows.tolist(), 7]}
    assert read(st.files(f"{web}/c.parquet", format="parquet")) == {"n": rows.tolist()}
    # The server's own index is read for a glob.
    assert read(st.files(f"{web}/b*.gz", format="csv")) == {"n": [7]}
    with pytest.raises(st.ConfigError, match="found no file"):
        read(st.files(f"{web}/nosuch.csv", format="csv"))
