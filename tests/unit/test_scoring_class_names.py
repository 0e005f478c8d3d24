"""Names of classes and how many: refused where they are given, not in the job."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest

from sparktrain.errors import ConfigError
from sparktrain.inference import argmax, top_k
from sparktrain.scoring.spec import ARGMAX, CLASS


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (["a", "b"], ("a", "b")),
        (("a", "a"), ("a", "a")),
        (np.array(["a", "b"]), ("a", "b")),
        (np.array([3, 4], np.int32), (3, 4)),
        (range(2), (0, 1)),
        ([1, 2.5], (1, 2.5)),
        ([False, True], (False, True)),
        ([datetime.date(2020, 1, 2)] * 2, (datetime.date(2020, 1, 2),) * 2),
        ({"a": 0, "b": 1}.keys(), ("a", "b")),
    ],
)
def test_names_are_plain_values(classes: Any, expected: Any) -> None:
    for pick in (argmax("c", classes=classes), top_k("c", 1, classes=classes)):
        assert pick.classes == expected
        assert [type(one) for one in pick.classes] == [type(one) for one in expected]
    assert argmax("c", classes=classes).how == CLASS


def test_without_names() -> None:
    assert argmax("c").how == ARGMAX and argmax("c").classes == ()
    assert top_k("c", 1).classes == ()


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        (["a", 1, 2], r"'c' got classes=\['a', 1, 2\], of int, str\."),
        ("abc", r"'c' got classes='abc'"),
        (b"abc", "got classes=b'abc'"),
        ([], r"got classes=\[\]"),
        ({"a": 1}, "got classes="),
        ({"a", "b"}, "got classes="),
        (3, "got classes=3"),
        (["a", None], "None as the name of class 1"),
        ([True, 1], "of bool, int"),
        ([2**70, 1], "of int"),
        ([object()], "of object"),
    ],
)
def test_what_is_no_list_of_names_is_refused(classes: Any, words: str) -> None:
    for make in (
        lambda: argmax("c", classes=classes),
        lambda: top_k("c", 1, classes=classes),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            make()
        assert "['cat', 'dog']" in str(caught.value)


def test_how_many() -> None:
    assert type(top_k("c", np.int64(2)).k) is int
    for odd in (0, -1, 2.0, True, "2", None):
        with pytest.raises(ConfigError, match="is to have k="):
            top_k("c", odd)  # type: ignore[arg-type]
