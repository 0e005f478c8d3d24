"""Files reach the training step: every row once, whatever the format and the number of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparktrain as st
from sparktrain.data.records import pack_record

NUM_ROWS = 90
ALONE: dict[str, Any] = {"distribution": "none", "progress": False, "num_workers": 2}


def read(ctx: Any) -> list[str]:
    """Two passes over the table, mixed; writes the numbers of the rows that this rank read."""
    import json
    from pathlib import Path

    fed = ctx.dataset(batch_size=8, features=["x"], label="n", shuffle=16, seed=5)
    passes = []
    for _ in range(2):
        numbers = []
        for x, n in fed:
            assert x.shape[1:] == (2,) and bool((x.numpy()[:, 0] == n.numpy() / 2).all())
            numbers += n.numpy().tolist()
        passes.append(numbers)
    Path(ctx.run_dir, f"rank-{ctx.rank}.json").write_text(json.dumps(passes))
    return [str(x.dtype), str(n.dtype)]


def fit(ctx: Any) -> float:
    import keras

    with ctx.strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    fed = ctx.dataset(batch_size=8, features=["x"], label="n")
    history = model.fit(fed, epochs=1, verbose=0, callbacks=ctx.callbacks())
    return float(history.history["loss"][-1])


for function in (read, fit):
    function.__module__ = "__main__"  # travels by value


def write(folder: Path, format: str, num_files: int) -> Any:
    """Rows (x = [n/2, 1], n) in files; what run(data=...) is given."""
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(NUM_ROWS), num_files)):
        path = folder / f"part-{number}.{format}"
        if format == "tfrecord":
            path.write_bytes(b"".join(pack_record(make_example(int(n))) for n in part))
        else:
            rows = [{"x": [n / 2, 1.0], "n": int(n)} for n in part]
            schema = pa.schema([("x", pa.list_(pa.float32())), ("n", pa.int64())])
            pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=7)
    if format == "tfrecord":
        schema = {"x": "array<float>", "n": "long"}
        return st.files(f"{folder}/*.tfrecord", format=format, schema=schema, shapes={"x": (2,)})
    return st.files(str(folder), format=format)


def make_example(n: int) -> bytes:
    import tensorflow as tf

    features = {
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=[n / 2, 1.0])),
        "n": tf.train.Feature(int64_list=tf.train.Int64List(value=[n])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return bytes(example.SerializeToString())


@pytest.mark.parametrize("format", ["parquet", "tfrecord"])
@pytest.mark.parametrize("num_files", [1, 5])
def test_every_row_of_the_files_once(
    spark: Any, tmp_path: Path, format: str, num_files: int
) -> None:
    data = write(tmp_path / "data", format, num_files)
    result = st.run(read, spark=spark, data=data, run_dir=tmp_path / "run", **ALONE)
    assert result.value == ["<dtype: 'float32'>", "<dtype: 'int64'>"]
    ranks = [json.loads((tmp_path / f"run/rank-{rank}.json").read_text()) for rank in (0, 1)]
    for passed in (0, 1):
        assert sorted(ranks[0][passed] + ranks[1][passed]) == list(range(NUM_ROWS))
    for first, second in ranks:
        assert first and first != second and first != sorted(first)
    assert all(node.feed.rows == 2 * len(r[0]) for node, r in zip(result.nodes, ranks, strict=True))


def test_fit_on_records_names_the_broken_one(spark: Any, tmp_path: Path) -> None:
    data = write(tmp_path / "data", "tfrecord", 2)
    result = st.run(fit, spark=spark, data=data, num_workers=2, progress=False)
    assert [node.rows for node in result.nodes] == [45, 45] and np.isfinite(result.value)
    path = tmp_path / "data/part-1.tfrecord"
    whole = bytearray(path.read_bytes())
    size = len(whole) // 45
    whole[10 * size + 20] ^= 1  # in the eleventh record
    path.write_bytes(whole)
    with pytest.raises(st.DataError) as caught:
        st.run(fit, spark=spark, data=data, num_workers=2, progress=False)
    text = caught.value.what
    assert "part-1.tfrecord" in text and f"byte {10 * size}" in text, text


def test_a_file_that_vanishes_is_named(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        from pathlib import Path

        Path(ctx.args).unlink(missing_ok=True)
        for _ in ctx.dataset(batch_size=8):
            pass

    data = write(tmp_path / "data", "parquet", 2)
    gone = tmp_path / "data/part-1.parquet"
    with pytest.raises(st.DataError, match=r"part-1\.parquet"):
        st.run(train, spark=spark, data=data, args=str(gone), **ALONE)


def test_an_evaluator_reads_all_files(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> int:
        rows = sum(len(batch["n"]) for batch in ctx.dataset(batch_size=8))
        if ctx.rank is None:
            ctx.report(evaluated=rows)
        return rows

    data = write(tmp_path / "data", "parquet", 2)
    wishes = {**ALONE, "num_workers": 1}
    result = st.run(train, spark=spark, data=data, evaluator=True, **wishes)
    assert result.value == NUM_ROWS and {"evaluated": NUM_ROWS} in result.metrics


def test_what_files_cannot_be_is_said_before_any_job(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(st.ConfigError, match=r"nosuch-\*\.csv"):
        st.run(read, spark=spark, data=st.files(f"{tmp_path}/nosuch-*.csv", format="csv"), **ALONE)
    write(tmp_path / "data", "parquet", 1)
    wrong = st.files(str(tmp_path / "data"), format="parquet", columns=["nosuch"])
    with pytest.raises(st.SchemaError, match="nosuch"):
        st.run(read, spark=spark, data=wrong, **ALONE)
