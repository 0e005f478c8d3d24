"""What a loss says about labels, and the form in which labels get there."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from sparktrain.data.schema import UNKNOWN, Column
from sparktrain.fit_spec import LabelSpec, LossKind, find_kind
from sparktrain.ml.estimator import _Search
from sparktrain.ml.packing import to_json
from sparktrain.ml.prepare import _find_label
from sparktrain.scoring.picks import make_column
from sparktrain.scoring.spec import ARGMAX, PROBABILITIES, Pick, TensorInfo
from sparktrain.trainer.fit_labels import LabelPlan, match_labels, plan_label


def column(name: str, dtype: str = "float", *shape: int | None) -> Column:
    return Column(name, dtype, len(shape), shape)


class Scored:
    """A loss of one's own that says what it takes."""

    from_logits = True


@pytest.mark.parametrize(
    ("loss", "kind", "is_logits"),
    [
        ("sparse_categorical_crossentropy", "sparse", False),
        ("SparseCategoricalCrossentropy", "sparse", False),
        ({"class_name": "BinaryCrossentropy", "config": {"from_logits": True}}, "binary", True),
        ({"class_name": "function", "config": "categorical_crossentropy"}, "categorical", False),
        ("mse", "each", False),
        ({"class_name": "KLDivergence", "config": {}}, "each", False),
        ("circle", "no classes", False),
        ("hinge", "each", True),
        ({"class_name": "SquaredHinge", "config": {"name": "squared_hinge"}}, "each", True),
        (functools.partial(len, from_logits=True), "", True),
        (Scored(), "", True),
        (len, "", False),
        (None, "", False),
    ],
)
def test_losses_are_known_by_name(loss: Any, kind: str, is_logits: bool) -> None:
    assert find_kind(loss) == LossKind(kind, is_logits)


def test_losses_with_arguments_are_known_on_both_sides() -> None:
    keras = pytest.importorskip("keras")
    loss = functools.partial(keras.losses.binary_crossentropy, from_logits=True)
    assert find_kind(loss) == find_kind(to_json("loss", loss)) == LossKind("binary", True)
    own = functools.partial(test_every_loss_of_keras_is_known, from_logits=True)
    assert find_kind(to_json("loss", own)) == LossKind("", True)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_hinge_losses_decide_by_the_sign(loss: str) -> None:
    plan = label(column("y", "integer"), 1, loss=loss, is_of_classes=True, num_classes=2)
    scores = np.array([[0.3], [-0.3], [-3.0]], "float32")

    def make(how: str, values: Any) -> Any:
        return make_column(Pick("out", "c", how, is_logits=plan.is_logits), values).to_pylist()

    assert make(ARGMAX, scores) == [1, 0, 0]
    three = label(column("y", "integer"), 3, loss=loss, is_of_classes=True, num_classes=3)
    assert three.is_logits
    for values in (scores, np.array([[5.0, -2.0, 0.0]], "float32")):
        found = np.array(make(PROBABILITIES, values))
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)
        assert (found >= 0).all()


def test_every_loss_of_keras_is_known() -> None:
    keras = pytest.importorskip("keras")
    from keras.src.losses import ALL_OBJECTS_DICT

    bases = (keras.losses.Loss, ALL_OBJECTS_DICT["LossFunctionWrapper"])
    names = [name for name, loss in ALL_OBJECTS_DICT.items() if loss not in bases]
    assert len(names) > 40
    for name in names:
        assert find_kind(name).labels, name
        loss = keras.losses.get(name)
        made = [loss, keras.losses.serialize(loss)]
        assert [find_kind(one).labels for one in made] == [find_kind(name).labels] * 2, name


def label(
    of: Column, *shape: int, loss: Any = "mse", is_of_classes: bool | None = None, **spec: Any
) -> LabelPlan:
    output = TensorInfo("out", "float32", shape)
    made = LabelSpec(of.name, **spec)
    return plan_label(made, of, output, find_kind(loss), is_of_classes)


def test_labels_take_the_form_of_the_loss() -> None:
    whole = column("y", "integer")
    sparse = label(whole, 3, loss="sparse_categorical_crossentropy")
    assert (sparse.task, sparse.num_classes, sparse.is_plain) == ("classification", 3, True)
    hot = label(whole, 3, loss="categorical_crossentropy")
    assert hot.one_hot == 3 and hot.task == "classification"
    binary = label(whole, 1, loss="binary_crossentropy")
    assert (binary.num_classes, binary.dtype, binary.shape) == (2, "float32", (1,))
    many = label(column("y", "float", 4), 4, loss="binary_crossentropy")
    assert many.task == "values"
    number = label(column("y", "double"), 1)
    assert (number.task, number.shape, number.is_plain) == ("regression", (1,), False)
    own = label(whole, 3, loss="own", is_of_classes=True)
    assert own.task == "classification" and own.dtype == "int32"


@pytest.mark.parametrize("loss", ["mse", "categorical_hinge", "KLDivergence"])
def test_losses_that_compare_values_get_one_for_each_class(loss: str) -> None:
    found = label(column("y", "integer"), 3, loss=loss, is_of_classes=True, num_classes=3)
    assert (found.task, found.one_hot, found.shape) == ("classification", 3, (3,))
    given = label(column("y", "float", 3), 3, loss=loss, is_of_classes=True)
    assert (given.task, given.one_hot, given.is_plain) == ("classification", 0, True)
    two = label(column("y", "integer"), 1, loss=loss, is_of_classes=True, num_classes=2)
    assert (two.task, two.one_hot, two.dtype) == ("classification", 0, "float32")


def test_losses_without_classes_are_refused_by_name() -> None:
    with pytest.raises(st.ConfigError, match=r"loss circle .*'out'.*'y'"):
        label(column("y", "integer"), 3, loss="circle", is_of_classes=True)
    with pytest.raises(st.SchemaError, match=r"shape \(3,\)"):
        label(column("y", "float", 3), 3, loss="sparse_categorical_crossentropy")


def test_a_regressor_is_one_whatever_its_loss() -> None:
    """Labels between zero and one, with the loss of two classes."""
    share = column("y", "double")
    made = [label(share, 1, loss="binary_crossentropy", is_of_classes=one) for one in (None, False)]
    assert [one.task for one in made] == ["classification", "regression"]
    assert made[1].num_classes == 0 and made[1].dtype == "float32"
    kinds = (st.KerasRegressor, st.KerasClassifier, st.KerasEstimator)
    for kind, wished in zip(kinds, (False, True, None), strict=True):
        est = kind(model=len, featureCols="x", labelCol="y", loss="binary_crossentropy")
        search = _Search(None, [est], is_grid=False)  # type: ignore[arg-type]
        assert search._candidates[0].is_of_classes is wished


@pytest.mark.parametrize(
    ("of", "shape", "options", "words"),
    [
        (column("y", "integer"), (3,), {"loss": "sparse_categorical_crossentropy",
         "num_classes": 10}, ["'y'", "10 classes", "has 3"]),
        (column("y", "float", 2), (3,), {}, ["'y'", "(2,)", "(3,)"]),
        (column("y", "string"), (1,), {}, ["'y'", "strings"]),
    ],
)  # fmt: skip
def test_labels_that_do_not_fit_are_named(
    of: Column, shape: tuple[int, ...], options: Any, words: list[str]
) -> None:
    with pytest.raises(st.SchemaError) as caught:
        label(of, *shape, **options)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("wished", [None, True, False])
def test_arrays_of_texts_are_no_labels(wished: bool | None) -> None:
    texts = Column("y", "string", 1, (UNKNOWN,))
    wishes: Any = SimpleNamespace(is_of_classes={"": wished}, classes=None)
    with pytest.raises(st.SchemaError, match=r"'y'.*arrays of texts.*one text a row") as caught:
        _find_label({}, "", texts, wishes)
    assert "KerasClassifier" not in str(caught.value)


def test_labels_are_matched_with_outputs() -> None:
    outputs = [TensorInfo("a", "float32", (1,)), TensorInfo("b", "float32", (1,))]
    specs = [LabelSpec("y", "b"), LabelSpec("x", "a")]
    found = match_labels(specs, outputs)
    assert [(spec.column, out.name) for spec, out in found] == [("x", "a"), ("y", "b")]
    with pytest.raises(st.ConfigError, match="2 outputs"):
        match_labels([LabelSpec("y")], outputs)
    with pytest.raises(st.ConfigError, match="c, a, but the model has a, b"):
        match_labels([LabelSpec("y", "c"), LabelSpec("x", "a")], outputs)
