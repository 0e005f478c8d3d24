"""What Spark computes before a fit: the split, the classes, the moments. No run is started."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml.feature import VectorAssembler

import estimator_cases as cases
import sparktrain as st
from sparktrain.data.schema import Wishes, make_columns
from sparktrain.ml.labels import find_classes, to_index
from sparktrain.ml.outputs import Added, finish
from sparktrain.ml.prepare import DataWishes, prepare
from sparktrain.ml.split import split
from sparktrain.ml.stats import find_moments


@pytest.fixture(scope="module")
def iris(spark_session: Any) -> Any:
    frame = cases.make_iris(spark_session)
    return VectorAssembler(inputCols=list("abcd"), outputCol="v").transform(frame)


def columns(frame: Any, *names: str) -> list[Any]:
    return make_columns("train", frame.schema.jsonValue()["fields"], Wishes(columns=names))


def find_ids(frame: Any) -> set[int]:
    return {row.id for row in frame.select("id").collect()}


def test_a_fraction_is_the_same_rows_however_they_come(iris: Any) -> None:
    names, vectors = ["id", "v", "species"], ["v"]
    train, held = split(iris, 0.3, names, vectors, 7)
    assert held is not None
    assert find_ids(train) | find_ids(held) == set(range(150))
    assert not find_ids(train) & find_ids(held) and 30 <= held.count() <= 60
    shaken = iris.repartition(7).orderBy("a")
    again = split(shaken, 0.3, names, vectors, 7)[1]
    assert again is not None and find_ids(again) == find_ids(held)
    other = split(iris, 0.3, names, vectors, 8)[1]
    assert other is not None and find_ids(other) != find_ids(held)


@pytest.mark.parametrize("validation", ["held", 1e-6])
def test_rows_to_validate_with_that_are_none_are_refused(iris: Any, validation: Any) -> None:
    marked = iris.selectExpr("*", "id < 0 as held")
    words = rf"'validation': There is no row: validation={validation!r} chose none.* larger"
    with pytest.raises(st.SchemaError, match=words):
        split(marked, validation, ["v"], ["v"], 0)


def test_a_column_says_which_rows_are_held_out(iris: Any) -> None:
    marked = iris.selectExpr("*", "if(id = 3, null, id < 10) as held")
    train, held = split(marked, "held", ["v"], ["v"], 0)
    assert held is not None and find_ids(held) == set(range(10)) - {3}
    assert train.count() == 141
    assert split(iris, None, ["v"], ["v"], 0) == (iris, None)


def test_moments_of_vectors_arrays_and_numbers(iris: Any) -> None:
    frame = iris.repartition(5)
    found = find_moments(frame, columns(frame, "v", "measures", "a"))
    rows = np.array([row.measures for row in iris.select("measures").collect()], "float64")
    for name in ("v", "measures"):
        np.testing.assert_allclose(found[name].mean, rows.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(found[name].variance, rows.var(axis=0), rtol=1e-5)
    assert found["a"].mean[0] == pytest.approx(found["v"].mean[0])
    constant = find_moments(iris.selectExpr("1.0D as one"), columns(
        iris.selectExpr("1.0D as one"), "one"))  # fmt: skip
    assert constant["one"].variance == (1.0,)
    with pytest.raises(st.SchemaError, match=r"'nan'.*no mean"):
        bad = iris.selectExpr("double('NaN') as nan")
        find_moments(bad, columns(bad, "nan"))
    with pytest.raises(st.SchemaError, match="'species'"):
        find_moments(iris, columns(iris, "species"))


def test_classes_are_sorted_names_or_whole_numbers(iris: Any) -> None:
    tables = {"train": iris}
    named = find_classes(tables, "", columns(iris, "species")[0], None)
    assert named.classes == cases.IRIS and named.num_classes == 3
    numbers = find_classes(tables, "", columns(iris, "label")[0], None)
    assert numbers.classes == () and numbers.num_classes == 3
    with_names = find_classes(tables, "", columns(iris, "label")[0], list("xyz"))
    assert with_names.classes == ("x", "y", "z")
    odd = iris.selectExpr("label * 10 as ten")
    mapped = find_classes({"train": odd}, "", columns(odd, "ten")[0], [0, 10, 20])
    assert mapped.classes == (0, 10, 20)
    places = odd.select(to_index("ten", mapped.classes).alias("p")).distinct().collect()
    assert sorted(row.p for row in places) == [0, 1, 2]


def test_nulls_count_as_what_stands_for_them(iris: Any) -> None:
    """Rows of arrays as numbers, in whatever task they are."""
    frame = iris.selectExpr(
        "if(id < 50, null, array(a, b)) as v",
        "if(id < 50, null, cast(c as decimal(10, 2))) as d",
        "if(id < 50, null, c > 4) as b",
        "if(id < 50, null, date'1970-01-03') as t",
    ).repartition(7)
    fill = {"v": 2, "d": 0.5, "b": 0, "t": 0}
    fields = frame.schema.jsonValue()["fields"]
    found = find_moments(frame, make_columns("train", fields, Wishes(fill=fill)))
    measures = np.array(iris.orderBy("id").select("a", "b", "c").collect())
    last = np.arange(150) >= 50
    expected = {
        "v": np.where(last[:, None], measures[:, :2], 2),
        "d": np.where(last, measures[:, 2], 0.5)[:, None],
        "b": (last & (measures[:, 2] > 4))[:, None],
        "t": np.where(last, 2, 0)[:, None],
    }
    for name, rows in expected.items():
        np.testing.assert_allclose(found[name].mean, rows.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(found[name].variance, rows.var(axis=0), rtol=1e-6)


def test_columns_may_have_dots_in_their_names(iris: Any) -> None:
    frame = iris.selectExpr("measures as `m.all`", "a as `a``b`", "a")
    found = find_moments(frame, columns(frame, "m.all", "a`b", "a"))
    assert len(found["m.all"].mean) == 4 and found["a`b"] == found["a"]


class Mine(st.KerasEstimator):
    """As users make them."""


def test_estimators_without_a_model_and_of_other_classes_are_saved(
    spark: Any, tmp_path: Path
) -> None:
    for kind in (st.KerasClassifier, Mine):
        path = str(tmp_path / kind.__name__)
        kind(epochs=3).write().save(path)
        again = kind.load(path)
        assert type(again) is kind and again.getEpochs() == 3 and again.getModel() is None
    with pytest.raises(st.ConfigError, match="holds a Mine"):
        st.KerasEstimator.load(path)


def test_labels_of_bytes_are_names(iris: Any) -> None:
    frame = iris.selectExpr("binary(species) as y")
    found = find_classes({"train": frame}, "", columns(frame, "y")[0], None)
    assert found.classes == cases.IRIS and json.dumps(found.classes)
    places = frame.select(to_index("y", found.classes).alias("p")).distinct().collect()
    assert sorted(row.p for row in places) == [0, 1, 2]
    given = find_classes({"train": frame}, "", columns(frame, "y")[0], list(cases.IRIS))
    assert given.classes == cases.IRIS
    odd = iris.selectExpr("unhex('ff') as y")
    with pytest.raises(st.SchemaError, match="no text"):
        find_classes({"train": odd}, "", columns(odd, "y")[0], None)


@pytest.mark.parametrize(
    "label",
    [
        "if(id = 1, array(0F, 1F), array(1F, 0F))",
        "array(0D, if(id = 1, 1D, -1D))",
        "binary(if(id = 1, 'b', 'a'))",
        "if(id = 1, 'b', 'a')",
    ],
)
def test_the_position_of_a_label_in_every_form(iris: Any, label: str) -> None:
    from pyspark.ml.functions import array_to_vector

    frame = iris.selectExpr("id", f"{label} as y")
    added = Added((), index=("y", "place", ("a", "b"), 2))
    frames = [frame]
    if "array" in label:
        frames.append(frame.withColumn("y", array_to_vector(frame["y"])))
    for one in frames:
        found = {row.id: row.place for row in finish(one.filter("id < 2"), added).collect()}
        assert found == {0: 0.0, 1: 1.0}


@pytest.mark.parametrize(
    ("expression", "classes", "words"),
    [
        ("date'2020-01-01'", None, "is a date"),
        ("timestamp'2020-01-01'", None, "is a timestamp"),
        ("species", [1, 2], "has strings, but classes has 1"),
    ],
)
def test_labels_that_are_no_names_are_refused_before_a_job(
    iris: Any, expression: str, classes: Any, words: str
) -> None:
    frame = iris.selectExpr(f"{expression} as y").filter("raise_error('a job') is null")
    with pytest.raises(st.SchemaError, match=words):
        find_classes({"train": frame}, "", columns(frame, "y")[0], classes)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("if(id = 5, -1, label)", ["label -1", "-1.0 to 2.0", "'y'"]),
        ("if(id = 5, 0.5D, label)", ["label 0.5"]),
        ("if(id = 5, null, label)", ["label null"]),
        ("if(id = 5, null, species)", ["null"]),
    ],
)
def test_labels_that_are_no_classes_are_named(iris: Any, expression: str, words: list[str]) -> None:
    frame = iris.selectExpr(f"{expression} as y")
    with pytest.raises(st.SchemaError) as caught:
        find_classes({"train": frame}, "", columns(frame, "y")[0], None)
    for word in words:
        assert word in str(caught.value)


def test_string_labels_are_fed_as_positions(iris: Any) -> None:
    wishes = DataWishes(
        features=["v"],
        label="species",
        weight=None,
        validation=0.2,
        seed=0,
        classes=None,
        standardize=True,
        shapes=None,
        pad=None,
        fill=None,
        is_of_classes={"": True},
    )
    prepared = prepare(iris, wishes)
    assert set(prepared.tables) == {"train", "validation"} and prepared.spec.has_validation
    rows = prepared.tables["train"].frame.select("species").distinct().collect()
    assert sorted(row.species for row in rows) == [0, 1, 2]
    assert len(prepared.spec.moments["v"].mean) == 4
    assert (prepared.wishes["validation"], prepared.wishes["seed"]) == (0.2, 0)
    other = replace(wishes, validation=iris.selectExpr("v", "label as species"))
    with pytest.raises(st.SchemaError, match=r"'species' of 'validation'.*whole numbers"):
        prepare(iris, other)
