"""predict() on real Spark: every kind of model, column and answer, against Keras itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sparktrain as st
from predict_cases import build_flat, write_models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Any]:
    return write_models(folder)


ROWS = np.random.default_rng(5).normal(size=(300, 4)).astype("float32")


@pytest.fixture
def frame(spark: Any, models: Any) -> Any:
    rows = [(number, row.tolist(), f"name {number}") for number, row in enumerate(ROWS)]
    return spark.createDataFrame(rows, "id long, features array<float>, name string").repartition(3)


def collect(scored: Any, column: str = "prediction") -> np.ndarray[Any, Any]:
    rows = sorted(scored.collect(), key=lambda row: row["id"])
    return np.array([row[column] for row in rows])


KINDS = ["flat.keras", "flat.h5", "flat_saved", "flat.weights.h5", "object"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_model(kind: str, frame: Any, models: Any, folder: Path) -> None:
    model = models["flat"] if kind == "object" else folder / kind
    build = build_flat if kind.endswith("weights.h5") else None
    scored = st.predict(frame, model, build=build, inputs={"any": "features"}, batch_size=64)
    assert scored.columns[:3] == ["id", "features", "name"]
    assert scored.schema["prediction"].metadata == {"sparktrain.shape": [3]}
    expected = models["flat"].predict(ROWS, verbose=0)
    np.testing.assert_allclose(collect(scored), expected, rtol=1e-5, atol=1e-6)
    row = scored.filter("id = 7").first()
    assert row["name"] == "name 7"


def test_files_of_keras_2(spark: Any, tmp_path: Path) -> None:
    """Keras 3 reads neither: the version that is in the file says who does."""
    pytest.importorskip("tf_keras", reason="tf-keras is not installed")
    script = Path(__file__).with_name("predict_cases.py")
    command = [sys.executable, str(script), str(tmp_path)]
    written = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    expected = json.loads(written.stdout.splitlines()[-1])
    frame = spark.createDataFrame([([1.0] * 4,)], "words array<float>")
    for name in ("old.keras", "old.h5"):
        found = st.predict(frame, tmp_path / name, outputs={"mood": "p"}).first()["p"]
        assert found == pytest.approx(expected, abs=1e-5), name


def test_classes_layers_and_what_is_kept(frame: Any, models: Any, folder: Path) -> None:
    import keras

    classes = ["cat", "dog", "eel"]
    scored = st.predict(
        frame,
        folder / "flat.keras",
        outputs={
            "scores": [
                "p",
                st.argmax("best", classes=classes),
                st.top_k("two", 2, classes=classes),
            ],
            "hidden": "inner",
        },
        keep=["id"],
        types={"p": "array<double>"},
    )
    assert scored.columns == ["id", "p", "best", "two", "inner"]
    assert dict(scored.dtypes)["p"] == "array<double>"
    model = models["flat"]
    expected = model.predict(ROWS, verbose=0)
    assert collect(scored, "best").tolist() == [classes[best] for best in expected.argmax(axis=1)]
    two = collect(scored, "two")
    assert two[0][0][0] == classes[expected[0].argmax()]
    inner = keras.Model(model.inputs, model.get_layer("hidden").output).predict(ROWS, verbose=0)
    np.testing.assert_allclose(collect(scored, "inner"), inner, rtol=1e-5, atol=1e-6)


def test_one_value_as_a_plain_number(frame: Any) -> None:
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    scored = st.predict(frame, model, inputs="features", types={"prediction": "double"})
    assert dict(scored.dtypes)["prediction"] == "double"
    assert scored.schema["prediction"].metadata == {}
    expected = model.predict(ROWS, verbose=0)[:, 0]
    np.testing.assert_allclose(collect(scored), expected, rtol=1e-5, atol=1e-6)


def test_decimals_and_times(spark: Any) -> None:
    """As training has them: float64, and days and microseconds since 1970."""
    import keras

    rows = [
        ("1.25", "2020-01-02", "2020-01-02 03:04:05.678901"),
        ("-99999999.99", "1969-12-31", "1969-12-31 23:59:59"),
    ]
    frame = spark.createDataFrame(rows, "d string, day string, at string").selectExpr(
        "cast(d as decimal(10,2)) as d",
        "cast(day as date) as day",
        "cast(at || ' UTC' as timestamp) as at",
        "cast(at as timestamp_ntz) as local",
    )
    dtypes = {"d": "float64", "day": "int32", "at": "int64", "local": "int64"}
    inputs = {name: keras.Input((), dtype=dtype, name=name) for name, dtype in dtypes.items()}
    same = keras.layers.Identity
    model = keras.Model(
        inputs, {f"{name}_out": same(dtype=dtypes[name])(one) for name, one in inputs.items()}
    )
    scored = st.predict(frame, model).selectExpr(
        "*", "unix_date(day) as days", "unix_micros(at) as micros"
    )
    for row in scored.collect():
        assert row["d_out"] == float(row["d"])
        assert row["day_out"] == row["days"]
        assert row["at_out"] == row["local_out"] == row["micros"]
    # The model has days as whole numbers of 32 bits: microseconds do not fit.
    with pytest.raises(Exception, match=r"columns at have values from .* takes int32"):
        st.predict(frame, model, inputs={**{n: n for n in dtypes}, "day": "at"}).collect()


def test_several_inputs_and_outputs(spark: Any, models: Any, folder: Path) -> None:
    from pyspark.ml.linalg import Vectors

    left = np.arange(10, dtype="float32").reshape(5, 2)
    right = np.arange(20, dtype="float32").reshape(5, 2, 2) / 7
    rows = [
        (n, float(left[n, 0]), int(left[n, 1]), Vectors.dense(right[n].ravel().tolist()))
        for n in range(5)
    ]
    frame = spark.createDataFrame(rows, ["id", "a", "b", "v"])
    scored = st.predict(frame, folder / "both.keras", inputs={"left": ["a", "b"], "right": "v"})
    assert scored.columns == ["id", "a", "b", "v", "one", "grid"]
    expected = models["both"].predict({"left": left, "right": right}, verbose=0)
    found = scored.orderBy("id").collect()
    np.testing.assert_allclose([row["one"] for row in found], expected["one"], rtol=1e-5)
    np.testing.assert_allclose([row["grid"] for row in found], expected["grid"], rtol=1e-5)
    # Vectors come back as they were, and what is behind them still works.
    assert found[2]["v"] == rows[2][3]
    assert scored.schema["grid"].metadata == {"sparktrain.shape": [3, 2]}


def test_lengths_that_vary_are_padded_only_where_asked(
    spark: Any, models: Any, folder: Path
) -> None:
    rows = [(n, list(range(1, 2 + n % 4))) for n in range(8)]
    frame = spark.createDataFrame(rows, "id long, words array<int>").coalesce(1)
    padded = st.predict(frame, folder / "text.keras", pad={"words": 0}, batch_size=8)
    together = np.zeros((8, 4), "int32")
    for number, (_, words) in enumerate(rows):
        together[number, : len(words)] = words
    expected = models["text"].predict(together, verbose=0)
    np.testing.assert_allclose(collect(padded), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(Exception, match=r"rows of 1 and of 4 values in one batch. Give pad="):
        st.predict(frame, folder / "text.keras", batch_size=8).collect()
    alone = st.predict(frame, folder / "text.keras", batch_size=1)
    single = [models["text"](np.array([words], "int32")).numpy()[0] for _, words in rows]
    np.testing.assert_allclose(collect(alone), single, rtol=1e-5, atol=1e-6)


def test_rows_that_fail_have_no_answer_and_a_reason(spark: Any, models: Any, folder: Path) -> None:
    rows = [(n, "x" if n == 3 else None if n == 5 else str(n)) for n in range(9)]
    frame = spark.createDataFrame(rows, "id long, line string").coalesce(1)
    scored = st.predict(frame, folder / "strings", on_error="null", batch_size=4)
    found = {row["id"]: row for row in scored.collect()}
    assert found[4]["number"] == 4.0 and found[4]["error"] is None
    assert found[8]["upper"] == "8"
    assert found[3]["number"] is None and "StringToNumber" in found[3]["error"]
    assert found[5]["upper"] is None and "is null in row 5" in found[5]["error"]
    with pytest.raises(Exception, match="is null in row 5 of partition 0"):
        st.predict(frame, folder / "strings").collect()
    quiet = st.predict(frame.filter("id != 3"), folder / "strings", nulls="null", keep=["id"])
    found = {row["id"]: row["number"] for row in quiet.collect()}
    assert found[5] is None and found[6] == 6.0
    filled = st.predict(frame.filter("id != 3"), folder / "strings", fill={"line": "55"})
    assert {row["id"]: row["number"] for row in filled.collect()}[5] == 55.0
    with pytest.raises(Exception, match=r"failed, among \d+ rows of partition 0: InvalidArg"):
        st.predict(frame.dropna(), folder / "strings").collect()


def test_an_answer_that_its_column_cannot_hold(spark: Any, models: Any, folder: Path) -> None:
    """One that is no text: the other rows of its batch are scored as ever."""
    rows = [(n, "odd" if n == 3 else str(n)) for n in range(9)]
    frame = spark.createDataFrame(rows, "id long, line string").coalesce(1)
    scored = st.predict(frame, folder / "strings", signature="odd", on_error="null")
    found = {row["id"]: row for row in scored.collect()}
    assert found[3]["raw"] is None and found[3]["size"] is None
    assert "'raw' is binary" in found[3]["error"]
    for row in (found[n] for n in range(9) if n != 3):
        assert (row["raw"], row["size"], row["error"]) == (str(row["id"]), 1, None)
    with pytest.raises(Exception, match="'binary' for bytes that are no text"):
        st.predict(frame, folder / "strings", signature="odd").collect()
    whole = st.predict(frame, folder / "strings", signature="odd", types={"raw": "binary"})
    assert bytes(whole.filter("id = 3").first()["raw"]) == b"\xff"


def test_a_model_that_takes_batches_of_one_size(spark: Any, models: Any, folder: Path) -> None:
    rows = [(n, [float(n), 1.0, 2.0]) for n in range(5)]
    frame = spark.createDataFrame(rows, "id long, x array<float>").coalesce(1)
    scored = st.predict(frame, folder / "strings", signature="pairs")
    assert collect(scored).tolist() == [n + 3.0 for n in range(5)]


def test_columns_of_any_name_are_read_and_kept(
    spark: Any, frame: Any, models: Any, folder: Path
) -> None:
    odd = frame.withColumnsRenamed({"features": "my.features", "name": "a`name"})
    scored = st.predict(odd, folder / "flat.keras", inputs="my.features", outputs="the.best")
    assert scored.columns == ["id", "my.features", "a`name", "the.best"]
    row = scored.filter("id = 7").first()
    assert row["a`name"] == "name 7" and list(row["my.features"]) == ROWS[7].tolist()
    expected = models["flat"].predict(ROWS[7:8], verbose=0)[0]
    np.testing.assert_allclose(row["the.best"], expected, rtol=1e-5, atol=1e-6)


def test_a_null_inside_an_array_is_a_null(spark: Any, models: Any, folder: Path) -> None:
    rows = [(0, [1.0, 2.0, 3.0, 4.0]), (1, [1.0, None, 3.0, 4.0]), (2, None)]
    frame = spark.createDataFrame(rows, "id long, features array<float>").coalesce(1)
    scored = st.predict(frame, folder / "flat.keras", nulls="null")
    answered = {row["id"]: row["prediction"] is not None for row in scored.collect()}
    assert answered == {0: True, 1: False, 2: False}


def test_answers_of_varying_lengths(spark: Any, models: Any, folder: Path) -> None:
    frame = spark.createDataFrame([(0, "a-b"), (1, "c"), (2, "d-e-f")], "id long, line string")
    scored = st.predict(frame.coalesce(1), folder / "strings", signature="split", outputs="p")
    found = {row["id"]: row["p"] for row in scored.collect()}
    assert found == {0: ["a", "b"], 1: ["c"], 2: ["d", "e", "f"]}


def test_a_model_of_this_process_with_layers_of_its_own(frame: Any) -> None:
    """A Sequential model, whose inner layer is asked for, in workers that know no such class."""
    import keras

    class Twice(keras.layers.Layer):  # type: ignore[misc]
        def call(self, values: Any) -> Any:
            return values * 2

    model = keras.Sequential(
        [keras.Input((4,)), Twice(name="twice"), keras.layers.Dense(2, name="last")]
    )
    scored = st.predict(frame, model, inputs="features", outputs={"twice": "t", "last": "p"})
    np.testing.assert_allclose(collect(scored, "t"), ROWS * 2, rtol=1e-6)
    expected = model.predict(ROWS, verbose=0)
    np.testing.assert_allclose(collect(scored, "p"), expected, rtol=1e-5, atol=1e-6)


def test_no_rows_at_all(frame: Any, models: Any, folder: Path) -> None:
    scored = st.predict(frame.filter("id < 0"), folder / "flat.keras")
    assert scored.collect() == []
    assert scored.columns == ["id", "features", "name", "prediction"]


def test_a_stream(spark: Any, frame: Any, models: Any, folder: Path, tmp_path: Path) -> None:
    frame.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
    scored = st.predict(stream, folder / "flat.keras", outputs="p")
    query = (
        scored.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(120)
    expected = models["flat"].predict(ROWS, verbose=0)
    found = collect(spark.read.parquet(str(tmp_path / "out")), "p")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_functions_for_select_and_sql(spark: Any, frame: Any, models: Any, folder: Path) -> None:
    expected = models["flat"].predict(ROWS, verbose=0)
    score = st.predict_udf(folder / "flat.keras", spark=spark, batch_size=50)
    found = frame.select("id", score("features").alias("p"))
    np.testing.assert_allclose(collect(found, "p"), expected, rtol=1e-5, atol=1e-6)
    best = st.predict_udf(
        folder / "flat.keras", spark=spark, outputs={"scores": ["p", st.argmax("best")]}
    )
    spark.udf.register("best_of", best)
    frame.createOrReplaceTempView("rows")
    found = spark.sql("select id, best_of(features).best as best from rows")
    assert collect(found, "best").tolist() == expected.argmax(axis=1).tolist()
    joined = st.predict_udf(folder / "flat.keras", spark=spark)
    parts = [f"features[{n}]" for n in range(4)]
    found = frame.selectExpr("id", *[f"{p} as f{n}" for n, p in enumerate(parts)])
    found = found.select("id", joined("f0", "f1", "f2", "f3").alias("p"))
    np.testing.assert_allclose(collect(found, "p"), expected, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_is_refused_before_the_job(
    frame: Any, models: Any, folder: Path, tmp_path: Path
) -> None:
    def refuse(words: str, model: Any = folder / "flat.keras", **options: Any) -> str:
        with pytest.raises(st.ConfigError, match=words) as caught:
            st.predict(options.pop("rows", frame), model, **options)
        return str(caught.value)

    refuse("no such file or folder", folder / "absent.keras")
    (tmp_path / "cut.keras").write_bytes((folder / "flat.keras").read_bytes()[:500])
    refuse("no zip archive", tmp_path / "cut.keras")
    (tmp_path / "odd.txt").write_text("x")
    refuse("not in a form that is read", tmp_path / "odd.txt")
    refuse("It is no model", 7)
    refuse("does not say what they are for", folder / "flat.weights.h5")
    refuse("it is no file of weights", build=build_flat)
    refuse("has no signature 'x'", folder / "flat_saved", signature="x")
    refuse("neither an output nor a layer 'absent'", outputs={"absent": "p"})
    refuse("has no output 'absent'", folder / "flat_saved", outputs={"absent": "p"})
    refuse("several columns name", outputs="name")
    refuse("'name'.*its values are string", inputs="name")
    refuse("column 'absent', which is not in", inputs="absent")
    refuse("none of its inputs is named like a column", rows=frame.drop("features"))
    refuse("batch_size=0", batch_size=0)
    refuse("on_error='ignore'", on_error="ignore")
    refuse("keep names 'absent'", keep=["absent"])
    refuse("types names 'q'", types={"q": "double"})
    refuse("types has 'double' for 'prediction', which is array", types={"prediction": "double"})
    refuse("types has 'doubel' for 'prediction'", types={"prediction": "doubel"})
    refuse("a DataFrame|Expected a Spark DataFrame", rows=[1, 2])


def test_a_damaged_model_says_so(frame: Any, models: Any, folder: Path, tmp_path: Path) -> None:
    import json
    import zipfile

    with (
        zipfile.ZipFile(folder / "flat.keras") as old,
        zipfile.ZipFile(tmp_path / "odd.keras", "w") as new,
    ):
        for name in old.namelist():
            data = old.read(name)
            if name == "config.json":
                config = json.loads(data)
                config["class_name"] = "FromTheFuture"
                config["module"] = "keras.src.models.future"
                data = json.dumps(config).encode()
            new.writestr(name, data)
    with pytest.raises(st.ModelError, match=r"odd.keras'.*cannot be loaded.*FromTheFuture"):
        st.predict(frame, tmp_path / "odd.keras")


def test_the_model_is_loaded_once_for_each_worker(
    spark: Any, frame: Any, models: Any, folder: Path, tmp_path: Path
) -> None:
    """Twelve tasks on two workers, and a job before them: no more than two processes load."""
    log = tmp_path / "loads"
    log.mkdir()

    def build() -> Any:
        import os
        import uuid

        Path(log, f"{os.getpid()}-{uuid.uuid4().hex}").touch()
        return build_flat()

    scored = st.predict(
        frame.repartition(12), folder / "flat.weights.h5", build=build, inputs="features"
    )
    assert scored.count() == 300
    assert len(collect(scored)) == 300
    loads = [path.name.split("-")[0] for path in log.iterdir()]
    assert len(loads) == len(set(loads)) <= 2


def test_a_loaded_model_costs_no_task_a_search_for_garbage(
    spark: Any, frame: Any, models: Any, folder: Path
) -> None:
    """Spark's workers collect after every task: what is loaded must not be gone through again."""
    assert st.predict(frame.repartition(4), folder / "flat.keras", inputs="features").count() == 300

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc
        import sys

        for _ in batches:
            pass
        if "tensorflow" in sys.modules:
            in_sight, frozen = len(gc.get_objects()), gc.get_freeze_count()
            yield pa.RecordBatch.from_pydict({"in_sight": [in_sight], "frozen": [frozen]})

    found = spark.range(0, 8, 1, 8).mapInArrow(look, "in_sight long, frozen long").collect()
    assert found
    for row in found:
        assert row.in_sight < 50_000 < 200_000 < row.frozen


def test_the_command(spark: Any, frame: Any, models: Any, folder: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from sparktrain.cli.app import app

    parts = ", ".join(f"features[{n}] as f{n}" for n in range(4))
    frame.selectExpr("id", *parts.split(", ")).write.csv(str(tmp_path / "in.csv"), header=True)
    command = [
        "predict",
        "--model",
        str(folder / "flat.keras"),
        "--input",
        str(tmp_path / "in.csv"),
    ]
    command += ["--output", str(tmp_path / "out.parquet"), "--inputs", "features=f0,f1,f2,f3"]
    done = CliRunner().invoke(app, [*command, "--outputs", "scores=p", "--keep", "id"])
    assert done.exit_code == 0, done.output
    assert "scored 300 rows in" in done.output
    scored = spark.read.parquet(str(tmp_path / "out.parquet"))
    assert scored.columns == ["id", "p"]
    expected = models["flat"].predict(ROWS, verbose=0)
    np.testing.assert_allclose(collect(scored, "p"), expected, rtol=1e-4, atol=1e-5)
    refused = CliRunner().invoke(app, [*command, "--input-format", "xls"])
    assert isinstance(refused.exception, st.ConfigError) and "xls" in str(refused.exception)
