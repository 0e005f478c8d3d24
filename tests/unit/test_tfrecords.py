"""TFRecord files of any store become batches of tensors; broken records are named."""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import fsspec
import numpy as np
import pytest
import tensorflow as tf

import sparktrain as st
from sparktrain.data.faults import BadFileError, BadRowError
from sparktrain.data.fields import find_columns
from sparktrain.data.files import Files
from sparktrain.data.order import file_order
from sparktrain.data.records import pack_record
from sparktrain.data.shards import list_files, split
from sparktrain.trainer.record_errors import explain, explaining
from sparktrain.trainer.tfrecords import make_record_dataset

NUMBER = "n long"


def make_example(**features: Any) -> bytes:
    """A serialized Example; a feature is a list of floats, whole numbers or bytes."""
    made = {}
    for name, values in features.items():
        if values and isinstance(values[0], float):
            made[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        elif values and isinstance(values[0], bytes):
            made[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        else:
            made[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def pack(examples: Sequence[bytes]) -> bytes:
    return b"".join(pack_record(example) for example in examples)


def write_numbers(path: Path, numbers: Sequence[int]) -> Path:
    path.write_bytes(pack([make_example(n=[number]) for number in numbers]))
    return path


def make_dataset(
    files: Files, num_workers: int = 1, worker: int = 0, batch_size: int = 4, **options: Any
) -> tuple[Any, Any]:
    infos = list_files(files, num_workers)
    columns = find_columns("train", files, infos)
    shards = split(infos, num_workers)[worker]
    return make_record_dataset(shards, files.options, columns, batch_size, **options), shards


def read_numbers(files: Files, *where: int, **options: Any) -> list[int]:
    dataset, shards = make_dataset(files, *where, **options)
    with explaining(shards, files.options):
        return [int(number) for batch in dataset for number in batch["n"]]


def read_one(tmp_path: Path, examples: list[bytes], **declared: Any) -> dict[str, Any]:
    """The one batch of a file."""
    path = tmp_path / "one.tfrecord"
    path.write_bytes(pack(examples))
    files = st.files(path, format="tfrecord", **declared)
    dataset, shards = make_dataset(files, batch_size=10)
    with explaining(shards, files.options):
        (batch,) = list(dataset)
    assert list(batch) == list(dataset.element_spec)
    for name, spec in dataset.element_spec.items():
        assert spec.is_compatible_with(batch[name]), name
    return batch


def test_the_frames_are_those_of_tensorflow(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for data in (b"", b"abc", b"x" * 1000):
            writer.write(data)
    assert path.read_bytes() == b"".join(map(pack_record, (b"", b"abc", b"x" * 1000)))


def test_kinds_and_shapes(tmp_path: Path) -> None:
    row = {
        "b": [1],
        "i": [7],
        "n": [1 << 40],
        "f": [0.5],
        "d": [1.5],
        "s": ["é".encode()],
        "raw": [bytes(range(6))],
        "x": [1.0, 2.0, 3.0, 4.0],
        "k": [5, 6],
    }
    batch = read_one(
        tmp_path,
        [make_example(**row), make_example(**row)],
        schema="b boolean, i integer, n long, f float, d double, s string, raw binary,"
        " x array<float>, k array<integer>",
        shapes={"raw": (2, 3), "x": (2, 2), "k": (2,)},
    )
    expected = {
        "b": np.array([True, True]),
        "i": np.array([7, 7], np.int32),
        "n": np.array([1 << 40, 1 << 40]),
        "f": np.array([0.5, 0.5], np.float32),
        "d": np.array([1.5, 1.5]),
        "s": np.array(["é".encode()] * 2, object),
        "raw": np.arange(12, dtype=np.uint8).reshape(2, 2, 3) % 6,
        "x": np.array([[[1, 2], [3, 4]]] * 2, np.float32),
        "k": np.array([[5, 6]] * 2, np.int32),
    }
    assert list(batch) == list(expected)
    for name, values in expected.items():
        found = batch[name].numpy()
        assert found.dtype == values.dtype, name
        np.testing.assert_array_equal(found, values, name)


def test_varying_lengths_are_ragged_or_padded(tmp_path: Path) -> None:
    examples = [make_example(w=[1], p=[1], q=[1], e=[2]), make_example(w=[], p=[1, 2], q=[3, 4])]
    batch = read_one(
        tmp_path,
        examples,
        schema="w array<long>, p array<integer>, q array<long>, e long",
        shapes={"w": (None,), "q": (3,)},
        pad={"p": -1, "q": 9},
        fill={"e": 5},
    )
    assert batch["w"].to_list() == [[1], []]
    assert batch["w"].row_splits.dtype == tf.int64
    assert batch["p"].numpy().tolist() == [[1, -1], [1, 2]]
    assert batch["q"].numpy().tolist() == [[1, 9, 9], [3, 4, 9]]
    assert batch["e"].numpy().tolist() == [2, 5]


def test_missing_features_are_filled_and_masked(tmp_path: Path) -> None:
    examples = [make_example(a=[1], x=[1.0, 2.0], s=[b"q"], v=[b"ab"]), make_example(other=[1])]
    batch = read_one(
        tmp_path,
        examples,
        schema="a long, x array<float>, s string, v binary, y array<float>",
        shapes={"x": (2,), "v": (2,), "y": (2,)},
        mask=["a", "x", "s"],
        fill={"x": -1.0, "v": b"zz", "y": 3.0},
    )
    assert batch["a"].numpy().tolist() == [1, 0]
    assert batch["a_is_null"].numpy().tolist() == [False, True]
    assert batch["x"].numpy().tolist() == [[1, 2], [-1, -1]]
    assert batch["x_is_null"].numpy().tolist() == [False, True]
    assert batch["s"].numpy().tolist() == [b"q", b""]
    assert batch["v"].numpy().tolist() == [[97, 98], [122, 122]]
    assert batch["y"].numpy().tolist() == [[3, 3], [3, 3]]


@pytest.mark.parametrize(
    ("example", "declared", "message"),
    [
        ({"m": [1]}, {"schema": NUMBER}, "column 'n'.*required but could not be found"),
        ({"n": [1.0]}, {"schema": NUMBER}, "column 'n'.*schema"),
        ({"n": [1, 2]}, {"schema": NUMBER}, "column 'n'.*schema"),
        (
            {"n": [1, 2]},
            {"schema": "n array<long>", "shapes": {"n": (1,)}, "pad": {"n": 0}},
            "column 'n'.*at most 1 values",
        ),
        (
            {"n": [b"abc"]},
            {"schema": "n binary", "shapes": {"n": (2,)}},
            "column 'n'.*2 bytes",
        ),
    ],
)
def test_a_record_that_does_not_fit_names_its_column(
    tmp_path: Path, example: dict[str, Any], declared: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadRowError, match=message):
        read_one(tmp_path, [make_example(**example)], **declared)


def test_compression_by_extension(tmp_path: Path) -> None:
    data = pack([make_example(n=[1]), make_example(n=[2])])
    (tmp_path / "a.tfrecord").write_bytes(data)
    (tmp_path / "b.tfrecord.gz").write_bytes(gzip.compress(data))
    (tmp_path / "c.zz").write_bytes(zlib.compress(data))
    (tmp_path / "d.zlib").write_bytes(zlib.compress(data))
    found = st.files(tmp_path, format="tfrecord", schema=NUMBER)
    assert read_numbers(found) == [1, 2] * 4
    assert read_numbers(st.files(f"{tmp_path}/*.gz", format="tfrecord", schema=NUMBER)) == [1, 2]


@pytest.mark.parametrize("num_files", [1, 4])
def test_every_record_is_read_by_exactly_one_worker(tmp_path: Path, num_files: int) -> None:
    total = 0
    for number in range(num_files):
        rows = range(total, total + number * 7 % 12)
        write_numbers(tmp_path / f"{number}.tfrecord", rows)
        total += len(rows)
    found = st.files(tmp_path, format="tfrecord", schema=NUMBER)
    for num_workers in range(1, 6):
        own = [read_numbers(found, num_workers, worker) for worker in range(num_workers)]
        assert sorted(number for part in own for number in part) == list(range(total))


def test_passes_have_their_own_order_of_files(tmp_path: Path) -> None:
    for number in range(6):
        write_numbers(tmp_path / f"{number}.tfrecord", [number])
    found = st.files(tmp_path, format="tfrecord", schema=NUMBER)
    assert read_numbers(found, order=[3, 1]) == [3, 1]
    passes = iter(range(10))
    dataset, _ = make_dataset(found, order=lambda: file_order(6, 1, next(passes), shuffle=True))
    for number in range(3):
        seen = [int(one) for batch in dataset for one in batch["n"]]
        assert seen == file_order(6, 1, number, shuffle=True)


def test_batches_go_over_files_and_the_last_may_be_dropped(tmp_path: Path) -> None:
    write_numbers(tmp_path / "a", range(3))
    write_numbers(tmp_path / "b", range(3, 7))
    found = st.files(tmp_path, format="tfrecord", schema=NUMBER)
    dataset, _ = make_dataset(found)
    assert [batch["n"].numpy().tolist() for batch in dataset] == [[0, 1, 2, 3], [4, 5, 6]]
    dataset, _ = make_dataset(found, drop_remainder=True)
    assert [batch["n"].numpy().tolist() for batch in dataset] == [[0, 1, 2, 3]]
    assert dataset.element_spec["n"].shape == (4,)


def test_no_shards_are_no_batches_of_the_right_kind(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "a", [1])
    found = st.files(path, format="tfrecord", schema=NUMBER)
    columns = find_columns("train", found, list_files(found))
    dataset = make_record_dataset([], found.options, columns, 4)
    assert dataset.element_spec["n"].dtype == tf.int64
    assert list(dataset) == []


HEAD = len(pack([make_example(n=[1])]))


def flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: flip(data, HEAD + 8), "the CRC of the length does not fit"),
        (lambda data: flip(data, HEAD + 12), "bytes of data does not fit"),
        (lambda data: data[: HEAD + 20], "the file ends inside the record, after 20 of"),
    ],
)
@pytest.mark.parametrize("name", ["b.tfrecord", "b.tfrecord.gz"])
def test_a_broken_record_is_named_with_file_and_byte(
    tmp_path: Path, damage: Any, reason: str, name: str
) -> None:
    data = damage(pack([make_example(n=[number]) for number in (1, 1, 1)]))
    write_numbers(tmp_path / "a.tfrecord", [1])
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    found = st.files(tmp_path, format="tfrecord", schema=NUMBER)
    with pytest.raises(BadFileError, match=rf"{name} is damaged: .* byte {HEAD}\b.*{reason}"):
        read_numbers(found)


def test_a_compressed_file_that_is_cut_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    data = gzip.compress(pack([make_example(n=rng.integers(1 << 60, size=9).tolist())] * 50))
    (tmp_path / "a.gz").write_bytes(data[:-40])
    found = st.files(tmp_path, format="tfrecord", schema="n array<long>", shapes={"n": (9,)})
    dataset, shards = make_dataset(found)
    expected = pytest.raises(BadFileError, match=r"a\.gz is damaged.*cannot be read on")
    with expected, explaining(shards, found.options):
        list(dataset)


def test_a_vanished_file_is_named(tmp_path: Path) -> None:
    write_numbers(tmp_path / "a", [1])
    gone = write_numbers(tmp_path / "b", [1])
    found = st.files(tmp_path, format="tfrecord", schema=NUMBER)
    dataset, shards = make_dataset(found)
    gone.unlink()
    expected = pytest.raises(BadFileError, match="b is not there any more")
    with expected, explaining(shards, found.options):
        list(dataset)


def test_errors_of_others_are_left_alone(tmp_path: Path) -> None:
    found = st.files(write_numbers(tmp_path / "a", [1]), format="tfrecord", schema=NUMBER)
    _, shards = make_dataset(found)
    with pytest.raises(tf.errors.InvalidArgumentError), explaining(shards, found.options):
        raise tf.errors.InvalidArgumentError(None, None, "Matrix size-incompatible")
    loss = tf.errors.DataLossError(None, None, "corrupted record at 0")
    assert "whole when read again" in str(explain(loss, shards, found.options))


def find_copies() -> list[Path]:
    return sorted(Path(tempfile.gettempdir()).glob("sparktrain-records-*/*"))


@pytest.fixture
def remote() -> Any:
    store = fsspec.filesystem("memory")
    for number in range(4):
        data = pack([make_example(n=[number])] * 50)
        store.pipe(f"/records/{number}.gz", gzip.compress(data))
    yield store
    store.rm("/records", recursive=True)


def test_remote_files_are_read_from_copies(remote: Any) -> None:
    found = st.files("memory://records/*", format="tfrecord", schema=NUMBER)
    dataset, _ = make_dataset(found, batch_size=50)
    for _ in range(2):
        assert [int(batch["n"][0]) for batch in dataset] == [0, 1, 2, 3]
    assert sorted(read_numbers(found, 5, 0) + read_numbers(found, 5, 3)) == sorted(
        [0, 1, 2, 3] * 20
    )
    assert find_copies() == []


def test_copies_go_when_a_pass_is_left_early(remote: Any) -> None:
    found = st.files("memory://records/*", format="tfrecord", schema=NUMBER)
    dataset, _ = make_dataset(found, batch_size=10)
    batches = iter(dataset)
    assert int(next(batches)["n"][0]) == 0
    (folder,) = {path.parent for path in find_copies()}
    assert folder.stat().st_mode & 0o077 == 0
    assert len(find_copies()) <= 2
    del batches  # the leak check of all tests waits for the folder and the thread to go


def test_a_broken_remote_file_is_named(remote: Any) -> None:
    data = flip(pack([make_example(n=[1])] * 3), HEAD + 12)
    remote.pipe("/records/2.gz", gzip.compress(data))
    found = st.files("memory://records/*", format="tfrecord", schema=NUMBER)
    with pytest.raises(BadFileError, match=rf"/records/2.gz is damaged.*byte {HEAD} of the"):
        read_numbers(found)
    remote.pipe("/records/2.gz", b"no gzip")
    with pytest.raises(BadFileError, match=r"/records/2.gz cannot be read: BadGzipFile"):
        read_numbers(found)
    dataset, shards = make_dataset(found)
    remote.rm("/records/2.gz")
    expected = pytest.raises(BadFileError, match=r"/records/2.gz is not there any more")
    with expected, explaining(shards, found.options):
        list(dataset)
