"""`sparktrain tfrecord` on real files, written by TensorFlow."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from typer.testing import CliRunner

import sparktrain as st
from sparktrain.cli.app import app


def make_record(number: int, name: bytes = b"caf\xc3\xa9") -> bytes:
    example = tf.train.Example()
    example.features.feature["label"].int64_list.value.append(number)
    example.features.feature["name"].bytes_list.value.append(name)
    example.features.feature["pixels"].float_list.value.extend([number / 2] * 20)
    return bytes(example.SerializeToString())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in range(2):
        with tf.io.TFRecordWriter(str(tmp_path / f"part-{part}.tfrecord")) as writer:
            for number in range(10 * (part + 1)):
                writer.write(make_record(number))
    (tmp_path / "_SUCCESS").touch()
    return tmp_path


def run(*words: Any) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["tfrecord", *map(str, words)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.output


def test_counts_of_a_folder(folder: Path) -> None:
    code, text = run("count", folder)
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == ["10", "20", "30"]


def test_a_compressed_file_is_read_by_its_name(folder: Path) -> None:
    path = folder / "part-0.tfrecord"
    packed = folder / "packed.tfrecord.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert run("count", packed)[1].split()[0] == "10"


def test_schema_of_all_files(folder: Path) -> None:
    code, text = run("schema", folder)
    assert (code, text.splitlines()) == (0, ["label: long", "name: string", "pixels: array<float>"])


def test_bytes_that_are_no_text_anywhere_are_binary(folder: Path) -> None:
    with tf.io.TFRecordWriter(str(folder / "part-2.tfrecord")) as writer:
        writer.write(make_record(1, b"\xff\xfe"))
    assert "name: binary" in run("schema", folder)[1]


def test_records_are_shown_with_their_values(folder: Path) -> None:
    code, text = run("show", folder / "part-0.tfrecord", "-n", 2)
    assert code == 0 and text.count("record at byte") == 2
    assert 'name: bytes ["café"]' in text and "label: int64 [1]" in text
    assert "pixels: float [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ... (20 values)]" in text


def test_all_damage_is_told_and_the_rest_is_counted(folder: Path) -> None:
    path = folder / "part-1.tfrecord"
    broken = bytearray(path.read_bytes())
    size = len(make_record(1)) + 16
    start = broken.index(make_record(5)) - 12
    broken[start + 20] ^= 1
    path.write_bytes(broken[:-3])
    code, text = run("verify", folder)
    lines = text.splitlines()
    assert code == 1 and lines[0].startswith("ok") and lines[1].startswith("damaged")
    assert "18 records" in lines[1]
    assert lines[2].startswith(f"  byte {start}: the CRC of its {size - 16} bytes")
    assert "the file ends inside the record" in lines[3]


def test_sound_files_are_ok(folder: Path) -> None:
    code, text = run("verify", folder / "*.tfrecord")
    assert code == 0 and text.count("ok ") == 2


def test_what_is_no_example_is_said(tmp_path: Path) -> None:
    path = tmp_path / "texts.tfrecord"
    with path.open("wb") as file:
        writer = st.tfrecord.RecordWriter(file)
        writer.write(b"\xff\xfe no example")
    assert "no Example: b'\\xff" in run("show", path)[1]
    code, text = run("schema", path)
    assert code == 1 and "1 of 1 records are no Examples" in text


def test_a_path_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(st.ConfigError, match="There is no file or folder"):
        run("count", tmp_path / "nothing*")


def test_records_go_through_file_objects(tmp_path: Path) -> None:
    path = tmp_path / "some.tfrecord"
    records = [b"", b"a", b"b" * 100_000]
    with path.open("wb") as file:
        writer = st.tfrecord.RecordWriter(file)
        for record in records:
            writer.write(record)
        with pytest.raises(st.RecordError, match="A record is a str"):
            writer.write("text")  # type: ignore[arg-type]
    assert [record.numpy() for record in tf.data.TFRecordDataset(str(path))] == records
    with path.open("rb") as file:
        assert list(st.tfrecord.RecordReader(file)) == records
    path.write_bytes(path.read_bytes()[:-1])
    with (
        path.open("rb") as file,
        pytest.raises(st.RecordError, match=r"some.tfrecord cannot be read at byte 33"),
    ):
        list(st.tfrecord.RecordReader(file))
