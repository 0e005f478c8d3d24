"""What the functions of hops' experiments return, and what is kept of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hops import outputs, place, plain


def keep(value: Any, folder: Path, key: str | None = None, **more: Any) -> dict[str, Any]:
    kept = outputs.Kept(str(folder), place.find_project(), **more)
    return outputs.keep(value, kept, key)


@pytest.mark.parametrize(
    ("value", "key", "expected"),
    [
        (None, None, {}),
        (0.0, None, {"metric": 0.0}),
        (-0.5, "metric", {"metric": -0.5}),
        (np.float32(0.5), "accuracy", {"metric": 0.5}),
        ({"metric": 1.0}, "metric", {"metric": 1.0}),
        (
            {"accuracy": np.int64(3), "rows": np.arange(2)},
            "accuracy",
            {"accuracy": 3, "rows": [0, 1]},
        ),
    ],
)
def test_outputs(value: Any, key: str | None, expected: dict[str, Any]) -> None:
    assert outputs.make_outputs(value, key) == expected
    json.dumps(outputs.make_outputs(value, key))


@pytest.mark.parametrize("value", [None, {}, {"loss": 1}, "much", float("nan"), {"metric": None}])
def test_outputs_without_a_metric(value: Any) -> None:
    with pytest.raises(ValueError, match=r"metric|Metric"):
        outputs.make_outputs(value, "metric")


def test_returned_files_are_kept(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("diagram.png").write_bytes(b"png")
    own = project / "Experiments/app_1/a=1"
    own.mkdir(parents=True)
    (own / "model.keras").write_bytes(b"model")
    value = {"picture": "diagram.png", "model": str(own / "model.keras"), "metric": -1, "name": ""}
    found = keep(value, own, "metric")
    assert found == {
        "picture": "Experiments/app_1/a=1/diagram.png",
        "model": "Experiments/app_1/a=1/model.keras",
        "metric": -1,
        "name": "",
        "log": "Experiments/app_1/a=1/output.log",
    }
    assert not Path("diagram.png").exists() and (own / "diagram.png").read_bytes() == b"png"
    assert (own / "model.keras").read_bytes() == b"model"
    assert json.loads((own / ".outputs.json").read_text()) == found
    assert (own / ".metric").read_text() == "-1.0"
    assert keep(str(tmp_path), own)["metric"] == str(tmp_path)  # not all here
    with pytest.raises(FileNotFoundError, match=r"Could not find file or directory on path"):
        keep({"a": "no/such"}, own)


@pytest.mark.parametrize(
    "text",
    [
        "precision recall f1 " * 30,
        '{"a":"b/c"}' + "x" * 300,
        "a/" * 3000,
        "a/" * 2047,
        "\0/none",
        "3/4 of rows",
        "https://host/run",
    ],
)
def test_returned_text_is_no_file(project: Path, text: str) -> None:
    value = {"report": text, "metric": 1.0}
    found = keep(value, project / "E", "metric")
    assert found["report"] == text
    assert json.loads((project / "E/.outputs.json").read_text())["report"] == text


def test_returned_files_of_one_name(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = project / "E"
    own.mkdir()
    (own / "a.txt").write_text("written there")
    Path("other").mkdir()
    for name in ("a.txt", "other/a.txt", "output.log"):
        Path(name).write_text(name)
    value = {
        "x": "a.txt",
        "y": "other/a.txt",
        "again": "./a.txt",
        "n": "",
        "d": ".",
        "l": "output.log",
    }
    found = keep(value, own)
    assert [found[name] for name in ("x", "y", "again", "l", "n", "d")] == [
        "E/a-2.txt",
        "E/a-3.txt",
        "E/a-2.txt",
        "E/output-2.log",
        "",
        ".",
    ]
    texts = [(own / name).read_text() for name in ("a.txt", "a-2.txt", "a-3.txt", "output-2.log")]
    assert texts == ["written there", "a.txt", "other/a.txt", "output.log"]


def test_a_metric_of_another_name_is_not_the_one(project: Path) -> None:
    """A value that is no dict stands for any; one with a name is what its name says."""
    with pytest.raises(ValueError, match=r"returned \['metric'\].*looked at is 'accuracy'"):
        outputs.make_outputs({"metric": 1.0}, "accuracy")
    assert outputs.find_score(keep(0.5, project / "E", "accuracy"), "accuracy") == 0.5


def test_folders_that_the_function_made_are_kept(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "relu").mkdir()
    work = tmp_path / "work"
    (work / "saved_model").mkdir(parents=True)
    (work / "saved_model/weights").write_text("1")
    (work / "relu").symlink_to(tmp_path / "relu")  # was there before the function
    monkeypatch.chdir(work)
    found = keep({"m": "saved_model", "activation": "relu"}, project / "E")
    assert (found["m"], found["activation"]) == ("E/saved_model", "relu")
    assert (project / "E/saved_model/weights").read_text() == "1"
    assert not (project / "E/relu").exists()


def test_what_is_in_the_logdir_is_kept_once(project: Path, tmp_path: Path) -> None:
    logdir = tmp_path / "run/tensorboard/chief_0"
    logdir.mkdir(parents=True)
    (logdir / "model.keras").write_text("copied at the end of the function")
    own = project / "E"
    own.mkdir()
    value = {"logdir": str(logdir), "model": str(logdir / "model.keras"), "own": str(own)}
    found = keep(value, own, logdir=str(logdir))
    assert (found["logdir"], found["model"], found["own"]) == ("E", "E/model.keras", "E")
    assert [path.name for path in own.iterdir()] == [".outputs.json"]


@pytest.mark.parametrize("number", [math.inf, -math.inf])
def test_numbers_that_json_has_not(project: Path, number: float) -> None:
    value = {"metric": number, "history": [1.0, math.nan]}
    assert keep(value, project / "E", "metric")["metric"] == number

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    text = (project / "E/.outputs.json").read_text()
    assert float(json.loads(text, parse_constant=refuse)["metric"]) == number
    found = plain.from_json(text)
    assert found["metric"] == number and math.isnan(found["history"][1])
