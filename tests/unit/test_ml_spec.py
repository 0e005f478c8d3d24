"""What is decided from plain values: losses, inputs, labels, columns, contracts."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

import sparktrain as st
from sparktrain.data.schema import Column
from sparktrain.fit_spec import (
    DataSpec,
    ModelPart,
)
from sparktrain.ml.columns import check_alike
from sparktrain.ml.contract import FORMAT, Contract
from sparktrain.ml.outputs import Names, plan_columns
from sparktrain.ml.plotting import find_curves
from sparktrain.ml.wishes import _find_classes, _find_patience, make_data_wishes
from sparktrain.scoring.spec import ModelInfo, TensorInfo
from sparktrain.trainer.fit_inputs import guess_inputs, plan_inputs
from sparktrain.trainer.fit_plan import check_lengths


def column(name: str, dtype: str = "float", *shape: int | None) -> Column:
    return Column(name, dtype, len(shape), shape)


def test_the_loss_of_each_output_says_whether_labels_are_classes() -> None:
    part = ModelPart("f", function=b"x")
    mixed = {"a": "mse", "b": "binary_crossentropy"}
    labels = {"a": "x", "b": "y"}
    assert _find_classes(mixed, part, labels, None) == {"a": False, "b": True}
    assert _find_classes("mse", part, "y", None) == {"": False}
    assert _find_classes(None, part, "y", None) == {"": None}
    assert _find_classes("mse", part, "y", True) == {"": True}


def test_early_stopping_looks_at_validation_if_there_is_some() -> None:
    assert _find_patience(3, 0.1) == {"monitor": "val_loss", "patience": 3}
    assert _find_patience(3, None) == {"monitor": "loss", "patience": 3}
    assert _find_patience({"monitor": "accuracy"}, 0.1) == {"monitor": "accuracy"}
    assert _find_patience(None, 0.1) is None


def plan(data: DataSpec, columns: list[Column], *inputs: TensorInfo) -> Any:
    return plan_inputs(data, {one.name: one for one in columns}, inputs)


def test_one_column_is_reshaped_to_the_input() -> None:
    data = DataSpec(("x",), ())
    made = plan(data, [column("x", "float", 784)], TensorInfo("i", "float32", (28, 28, 1)))
    assert made[0].shape == (28, 28, 1) and not made[0].is_plain
    made = plan(data, [column("x", "float", 3)], TensorInfo("i", "float32", (3,)))
    assert made[0].is_plain
    made = plan(data, [column("x", "double", 3)], TensorInfo("i", "float32", (3,)))
    assert not made[0].is_plain


def test_several_columns_are_joined_for_one_input() -> None:
    data = DataSpec(("a", "v"), ())
    columns = [column("a", "integer"), column("v", "float", 3)]
    made = plan(data, columns, TensorInfo("i", "float32", (4,)))
    assert made[0].columns == ("a", "v") and not made[0].is_plain


def test_several_inputs_are_found_by_name_else_by_order() -> None:
    columns = [column("a"), column("b")]
    inputs = [TensorInfo("b", "float32", (1,)), TensorInfo("a", "float32", (1,))]
    made = plan(DataSpec(("a", "b"), ()), columns, *inputs)
    assert [one.columns for one in made] == [("b",), ("a",)]
    inputs = [TensorInfo("p", "float32", (1,)), TensorInfo("q", "float32", (1,))]
    made = plan(DataSpec(("a", "b"), ()), columns, *inputs)
    assert [one.columns for one in made] == [("a",), ("b",)]
    feeds = {"q": ("a",), "p": ("b",)}
    made = plan(DataSpec(("a", "b"), (), feeds), columns, *inputs)
    assert [one.columns for one in made] == [("b",), ("a",)]


@pytest.mark.parametrize(
    ("data", "columns", "inputs", "words"),
    [
        (DataSpec(("x",), ()), [column("x", "float", 3)], [TensorInfo("i", "float32", (4,))],
         ["'x'", "(3,)", "(4,)"]),
        (DataSpec(("x",), ()), [column("x", "string")], [TensorInfo("i", "float32", ())],
         ["'x'", "string"]),
        (DataSpec(("x",), (), {"k": ("x",)}), [column("x")],
         [TensorInfo("i", "float32", ()), TensorInfo("j", "float32", ())], ["k", "i, j"]),
        (DataSpec(("x",), ()), [column("x")],
         [TensorInfo("i", "float32", ()), TensorInfo("j", "float32", ())], ["1 columns", "2"]),
        (DataSpec(("x", "y"), ()), [column("x", "float", 2, 2), column("y", "float", 3, 2)],
         [TensorInfo("i", "float32", (10,))], ["'y'", "joined"]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(
    data: DataSpec, columns: list[Column], inputs: list[TensorInfo], words: list[str]
) -> None:
    with pytest.raises(st.ConfigError) as caught:
        plan(data, columns, *inputs)
    for word in words:
        assert word in str(caught.value)


def test_a_model_without_shapes_takes_what_it_is_given() -> None:
    columns = {"a": column("a", "integer"), "v": column("v", "float", 3)}
    joined = guess_inputs(DataSpec(("a", "v"), ()), columns)
    assert joined == (TensorInfo("inputs", "float32", (4,)),)
    assert guess_inputs(DataSpec(("a",), ()), columns) == (TensorInfo("inputs", "int32", (1,)),)


def make_contract(task: str = "classification", classes: list[Any] = [], *shape: int) -> Contract:  # noqa: B006
    info = ModelInfo(
        (TensorInfo("i", "float32", (2,)),), (TensorInfo("o", "float32", shape or (3,)),)
    )
    values = {
        "info": info.to_dict(),
        "feeds": [["i", ["x"]]],
        "labels": [
            {
                "column": "y",
                "output": "o",
                "task": task,
                "num_classes": 3,
                "classes": classes,
                "is_logits": False,
            }
        ],
        "versions": {"sparktrain": "9.9"},
    }
    return Contract.from_dict(json.loads(json.dumps(values)))


def test_a_contract_survives_json_and_refuses_newer_ones() -> None:
    contract = make_contract(classes=["a", "b", "c"])
    assert Contract.from_json(contract.to_json(), "here") == contract
    newer = json.dumps({**json.loads(contract.to_json()), "format": FORMAT + 1})
    with pytest.raises(st.ConfigError, match=r"'here'.*format 2.*sparktrain 9.9"):
        Contract.from_json(newer, "here")
    with pytest.raises(st.ConfigError, match="damaged"):
        Contract.from_json("{", "here")


NAMES = Names("prediction", "probability", "raw", "predicted", "index", "y", {})


def test_a_classifier_adds_what_spark_ml_has() -> None:
    added = plan_columns(make_contract(classes=["a", "b", "c"]), NAMES, ["x", "y"])
    assert [(one.column, one.how) for one in added.picks] == [
        ("prediction", "argmax"),
        ("probability", "probabilities"),
        ("raw", "as_is"),
        ("predicted", "class"),
    ]
    assert added.index == ("y", "index", ("a", "b", "c"), 3) and not added.pair
    assert plan_columns(make_contract(classes=["a", "b", "c"]), NAMES, ["x"]).index is None
    # A class that no row had: its value has no name, and labels never seen are no class at all.
    wide = plan_columns(make_contract("classification", ["a", "b"], 4), NAMES, ["x", "y"])
    assert wide.picks[-1].classes == ("a", "b", None, None)
    assert wide.index == ("y", "index", ("a", "b"), 4)
    fewer = dataclasses.replace(NAMES, probability="", raw="")
    assert [one.column for one in plan_columns(make_contract(), fewer, ["x"]).picks] == [
        "prediction"
    ]


def test_a_regressor_adds_a_number_or_an_array() -> None:
    one = plan_columns(make_contract("regression", [], 1), NAMES, ["x"])
    assert [(pick.column, pick.how) for pick in one.picks] == [("prediction", "first")]
    many = plan_columns(make_contract("regression"), NAMES, ["x"])
    assert many.picks[0].how == "as_is" and not many.vectors


def test_output_columns_are_those_of_the_model() -> None:
    named = dataclasses.replace(NAMES, outputs={"o": "size"})
    one = plan_columns(make_contract("regression", [], 1), named, ["x"])
    assert [pick.column for pick in one.picks] == ["size"]
    with pytest.raises(st.ConfigError, match=r"outputCols names o.*classifier.*probabilityCol"):
        plan_columns(make_contract(), named, ["x"])
    with pytest.raises(st.ConfigError, match=r"outputCols names p.*Its outputs are o"):
        plan_columns(make_contract("regression"), dataclasses.replace(NAMES, outputs={"p": ""}), [])


@pytest.mark.parametrize(
    ("kind", "label", "outputs", "words"),
    [
        (st.KerasClassifier, "y", {"o": "p"}, "names o.*classifier"),
        (st.KerasClassifier, {"o": "y"}, {"o": "p"}, "names o.*classifier"),
        (st.KerasEstimator, {"o": "y", "p": "z"}, {"q": "p"}, "names q.*outputs are o, p"),
        (st.KerasClassifier, {"o": "y", "p": "z"}, {"o": "p"}, None),
        (st.KerasRegressor, "y", {"o": "p"}, None),
        (st.KerasEstimator, "y", {"o": "p"}, None),
    ],
)
def test_output_columns_are_looked_at_before_the_run(
    kind: Any, label: Any, outputs: Any, words: str | None
) -> None:
    est = kind(labelCol=label, outputCols=outputs, weightCol="")
    if words is None:
        assert make_data_wishes(est.peek, ModelPart("f"), est._is_of_classes).weight is None
        return
    with pytest.raises(st.ConfigError, match=words):
        make_data_wishes(est.peek, ModelPart("f"), est._is_of_classes)


def test_labels_by_the_one_output_are_known_to_the_model() -> None:
    model = st.KerasModel.make(b"", make_contract(), [], "")
    for label in ("y", {"o": "y"}):
        assert model.copy()._set(labelCol=label)._find_names().label == "y"
    assert model._set(labelCol={"o": "y", "p": "z"})._find_names().label is None


def make_fed(**feeds: list[str]) -> st.KerasModel:
    contract = dataclasses.replace(
        make_contract(), feeds=tuple((name, tuple(columns)) for name, columns in feeds.items())
    )
    return st.KerasModel.make(b"", contract, [], "")


def test_what_is_said_of_a_column_holds_for_the_one_in_its_place() -> None:
    model = make_fed(i=["a", "b"])._set(fill={"a": 1, "y": 2}, pad={"b": 0, "q": 5})
    assert model._find_options()["fill"] == {"a": 1}
    model.setFeatureCols(["p", "q"])
    options = model._find_options()
    assert options["fill"] == {"p": 1} and options["pad"] == {"q": 5}
    model.setFeatureCols({"i": ["b", "p"]})
    assert model._find_feeds() == {"i": ("b", "p")}
    assert model._find_options()["fill"] == {"b": 1} and model._find_options()["pad"] == {"p": 0}


def test_columns_in_another_order_are_not_taken_silently() -> None:
    for model in (make_fed(i=["a", "b"]), make_fed(i=["a"], j=["b"])):
        assert model.setFeatureCols(["a", "b"])._find_feeds() == dict(model.contract.feeds)
        with pytest.raises(st.ConfigError, match=r"featureCols has b, a,.*with a, b.*that order"):
            model.setFeatureCols(["b", "a"])._find_feeds()
    by_name = make_fed(b=["b"], a=["a"]).setFeatureCols(["a", "b"])
    assert by_name._find_feeds() == {"b": ("b",), "a": ("a",)}


def test_columns_that_are_there_already_are_not_written_over() -> None:
    with pytest.raises(st.ConfigError, match="'prediction'"):
        plan_columns(make_contract(), NAMES, ["x", "prediction"])


def test_curves_put_validation_beside_training() -> None:
    rows = [{"epoch": 1, "loss": 3.0, "val_loss": 4.0}, {"epoch": 2, "loss": 1.0, "val_loss": 2.0}]
    assert find_curves(rows) == {"loss": {"train": [3.0, 1.0], "validation": [4.0, 2.0]}}


def test_rows_to_validate_with_have_the_form_of_the_others() -> None:
    train = {"x": column("x", "float", -1), "y": column("y", "string")}
    check_alike(train, {"x": column("x", "double", 4), "y": column("y", "binary")})
    with pytest.raises(st.SchemaError, match=r"'y' of 'validation'.*whole numbers.*text"):
        check_alike(train, {"x": column("x", "float", -1), "y": column("y", "integer")})
    with pytest.raises(st.SchemaError, match=r"'x' of 'validation'.*2 dimensions.*1 dim"):
        check_alike(train, {"x": column("x", "float", -1, -1), "y": column("y", "string")})
    with pytest.raises(st.SchemaError, match=r"'x' of 'validation'.*\(5,\).*\(4,\)"):
        check_lengths({"x": column("x", "float", 4)}, {"x": column("x", "float", 5)})
