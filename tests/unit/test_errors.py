"""Every error: its place in the tree, its text, and its journey through pickle."""

from __future__ import annotations

import ast
import dataclasses
import pickle
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import sparktrain
from sparktrain import errors
from sparktrain.errors import ConfigError, SparktrainError, TrainingError

SOURCE = Path(sparktrain.__file__).parent
#: A full stop, comma, colon or semicolon that has a word glued to it.
GLUED = re.compile(r"[.,;:][A-Za-z]")
#: The same in the source, where names such as keras.Input or Policy.OFF are well.
GLUED_SENTENCE = re.compile(r"(?<!keras)(?<!tf)[.,;][A-Z][a-z]* ")

TEXTS = {
    "problem": "This is wrong.",
    "advice": "Do that instead.",
    "what": "the function broke",
    "node": "worker:0",
    "table": "train",
    "column": "pixels",
    "model": "digits",
    "host": "host-1",
    "traceback": "Traceback (most recent call last):\n  File x\nValueError: broken",
    "log_path": "/runs/r1/logs/worker-0",
}


def walk(cls: type[SparktrainError]) -> Iterator[type[SparktrainError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from walk(child)


ALL = sorted(set(walk(SparktrainError)), key=lambda cls: cls.__name__)


def make_value(name: str, hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if hint is str:
        return TEXTS[name]
    if hint is float:
        return 1.5
    if hint is int or int in typing.get_args(hint):
        return 7
    if origin is tuple:
        return ("first line", "second line")
    return {"numpy": {"2.0": ("chief:0",), "2.1": ("worker:0", "worker:1")}}


def make_sample(cls: type[SparktrainError], *leave_out: str) -> SparktrainError:
    hints = typing.get_type_hints(cls)
    fields = {
        field.name: make_value(field.name, hints[field.name])
        for field in dataclasses.fields(cls)
        if field.name not in leave_out
    }
    return cls(**fields)


def get_fields(error: SparktrainError) -> dict[str, Any]:
    return {field.name: getattr(error, field.name) for field in dataclasses.fields(error)}


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
@pytest.mark.parametrize("cls", ALL)
def test_pickling_keeps_class_text_and_fields(cls: type[SparktrainError], dumps: Any) -> None:
    error = make_sample(cls)
    back = pickle.loads(dumps(error))
    assert type(back) is cls
    assert str(back) == str(error)
    assert get_fields(back) == get_fields(error)
    assert back.args == (str(error),)


@pytest.mark.parametrize("cls", ALL)
def test_text_reads_as_sentences(cls: type[SparktrainError]) -> None:
    text = str(make_sample(cls, "tail", "traceback"))
    assert "  " not in text
    assert GLUED.search(text) is None
    assert text == text.strip()


@pytest.mark.parametrize("cls", [cls for cls in ALL if dataclasses.fields(cls)])
def test_text_holds_the_value_of_every_field(cls: type[SparktrainError]) -> None:
    error = make_sample(cls)
    told = {name: value for name, value in get_fields(error).items() if isinstance(value, str)}
    assert [name for name, value in told.items() if value not in str(error)] == []


def test_training_error_shows_traceback_tail_and_log_under_their_titles() -> None:
    text = str(make_sample(TrainingError))
    assert text.startswith("worker:0 on host-1: the function broke. Do that instead.\n\n")
    assert "Traceback on worker:0:\nTraceback (most recent call last):\n  File x\n" in text
    assert "Last lines of worker:0 (2):\n  first line\n  second line\n" in text
    assert text.endswith("The whole log: /runs/r1/logs/worker-0")


def test_mismatch_names_every_version_and_who_has_it() -> None:
    text = str(make_sample(errors.VersionMismatchError))
    assert "numpy: 2.0 on chief:0, 2.1 on worker:0, worker:1." in text


def test_resource_error_names_needed_and_present_slots() -> None:
    text = str(errors.ResourceError(needed=3, slots=2, waited_s=4.04, advice="Ask for less."))
    assert "needs 3 task slots" in text
    assert "has 2 (looked for 4.0 s). Ask for less." in text


@pytest.mark.parametrize("cls", list(walk(ConfigError)))
def test_wishes_that_cannot_be_met_are_value_errors(cls: type[SparktrainError]) -> None:
    assert issubclass(cls, ValueError)


def test_only_wishes_are_value_errors_and_the_timeout_is_a_timeout_error() -> None:
    assert {cls for cls in ALL if issubclass(cls, ValueError)} == set(walk(ConfigError))
    assert {cls for cls in ALL if issubclass(cls, TimeoutError)} == {errors.RunTimeoutError}


def test_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"    ([│├└─ ]*)(\w+Error)\b", line):
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            drawn[found[2]] = path[depth - 1] if depth else None
    real = {cls.__name__: cls.__bases__[0].__name__ for cls in ALL}
    assert drawn == {**real, "SparktrainError": None}


def test_public_names_resolve_and_hold_every_error_but_the_wires() -> None:
    assert len(sparktrain.__all__) == len(set(sparktrain.__all__))
    for name in sparktrain.__all__:
        assert getattr(sparktrain, name) is not None
    public = {name for name in sparktrain.__all__ if name.endswith("Error")}
    assert public == {cls.__name__ for cls in ALL} - {"WireError"}


def read_sentences() -> Iterator[tuple[str, str]]:
    """(place, text) of what the source gives to errors; values are shown as the digit 1."""
    for path in sorted(SOURCE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("Error"):
                for keyword in call.keywords:
                    text = flatten(keyword.value)
                    if text is not None:
                        yield f"{path.name}:{keyword.value.lineno}", text


def flatten(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(flatten(part) or "" for part in node.values)
    return "1" if isinstance(node, ast.FormattedValue) else None


def test_texts_in_the_source_have_no_double_spaces_and_no_glued_sentences() -> None:
    sentences = list(read_sentences())
    assert len(sentences) > 30
    wrong = [one for one in sentences if "  " in one[1] or GLUED_SENTENCE.search(one[1])]
    assert wrong == []
