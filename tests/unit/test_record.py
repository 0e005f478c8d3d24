"""The run directory: what the driver writes, and what it does when it cannot."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparktrain.driver.plan import Plan
from sparktrain.driver.record import RunRecord
from sparktrain.errors import TAIL_LINES, RunDirError
from sparktrain.settings import Settings
from sparktrain.version import __version__


@pytest.fixture
def plan(make_plan: Callable[..., Plan], tmp_path: Path) -> Plan:
    return make_plan(
        tmp_path,
        Settings(kept_log_lines=7),
        function=b"pickled-function",
        env={"API_KEY": "hush-hush"},
        max_restarts=1,
        timeout_s=60.0,
    )


def read_all(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


def test_the_directory_is_made_and_tells_what_runs(plan: Plan, tmp_path: Path) -> None:
    run_dir = tmp_path / "deep" / "er"
    with RunRecord(replace(plan, run_dir=run_dir)):
        told = json.loads((run_dir / "run.json").read_text())
    assert told["run_id"] == "r1"
    assert told["function"] == "train"
    assert told["nodes"] == ["chief:0", "worker:0"]
    assert (told["max_restarts"], told["timeout_s"]) == (1, 60.0)
    assert told["settings"]["kept_log_lines"] == 7
    assert told["versions"]["sparktrain"] == __version__


def test_the_users_environment_is_written_nowhere(plan: Plan, tmp_path: Path) -> None:
    with RunRecord(plan) as record:
        record.finish({"ok": True})
    assert "hush-hush" not in read_all(tmp_path)


def test_a_directory_that_cannot_be_made_is_refused_by_name(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    run_dir = tmp_path / "file" / "run"
    with pytest.raises(RunDirError) as caught, RunRecord(replace(plan, run_dir=run_dir)):
        pass
    assert f"The run directory {run_dir} cannot be written: NotADirectoryError:" in str(
        caught.value
    )
    assert "spark.sparktrain.runsDir" in str(caught.value)


def test_a_directory_whose_files_cannot_be_written_is_refused(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    with pytest.raises(RunDirError, match="IsADirectoryError"), RunRecord(plan):
        pass


def test_lines_go_to_the_log_of_their_node_at_once(plan: Plan, tmp_path: Path) -> None:
    with RunRecord(plan) as record:
        assert record.add_lines("chief:0", ["one", "two"]) == ["one", "two"]
        record.add_lines("worker:0", ["Grüße \udc80"])
        record.add_lines("chief:0", iter(["three"]))
        assert record.log_path("chief:0") == tmp_path / "logs" / "chief-0.log"
        assert record.log_path("chief:0").read_text() == "one\ntwo\nthree\n"
    assert record.log_path("worker:0").read_text(encoding="utf-8") == "Grüße ?\n"


def test_a_log_goes_on_where_an_earlier_run_in_the_directory_ended(
    plan: Plan, tmp_path: Path
) -> None:
    for line in ("first run", "second run"):
        with RunRecord(plan) as record:
            record.add_lines("chief:0", [line])
    assert record.log_path("chief:0").read_text() == "first run\nsecond run\n"


def test_dropped_lines_leave_a_note_where_they_are_missing(plan: Plan, tmp_path: Path) -> None:
    with RunRecord(plan) as record:
        record.add_lines("chief:0", ["before"])
        written = record.add_lines("chief:0", ["after"], dropped=12)
        text = record.log_path("chief:0").read_text()
    assert len(written) == 2
    assert "12 lines are missing here" in written[0]
    assert text.splitlines() == ["before", *written]
    assert record.tail("chief:0") == ("before", *written)


def test_no_lines_make_no_log(plan: Plan, tmp_path: Path) -> None:
    with RunRecord(plan) as record:
        assert record.add_lines("chief:0", []) == []
        assert not record.log_path("chief:0").exists()


def test_the_tail_has_the_last_hundred_lines_of_the_node(plan: Plan, tmp_path: Path) -> None:
    with RunRecord(plan) as record:
        for number in range(250):
            record.add_lines("chief:0", [str(number)])
        record.add_lines("worker:0", ["other"])
    assert TAIL_LINES == 100
    assert record.tail("chief:0") == tuple(str(number) for number in range(150, 250))
    assert record.tail("worker:0") == ("other",)
    assert record.tail("evaluator:0") == ()
    assert len(record.log_path("chief:0").read_text().splitlines()) == 250


def test_metrics_are_a_line_each(plan: Plan, tmp_path: Path) -> None:
    rows = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}]
    with RunRecord(plan) as record:
        for row in rows:
            record.add_metrics(row)
            text = (tmp_path / "metrics.jsonl").read_text()
            assert json.loads(text.splitlines()[-1]) == row
    assert [json.loads(line) for line in text.splitlines()] == rows


def test_the_result_is_written_at_the_end(plan: Plan, tmp_path: Path) -> None:
    with RunRecord(plan) as record:
        assert not (tmp_path / "result.json").exists()
        record.finish({"ok": False, "error": "NodeLostError: gone"})
    told = json.loads((tmp_path / "result.json").read_text())
    assert told == {"ok": False, "error": "NodeLostError: gone"}


def read_strictly(text: str) -> Any:
    """JSON as other languages read it: without NaN and Infinity."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_numbers_json_does_not_have_are_null(plan: Plan, tmp_path: Path) -> None:
    row = {"epoch": 1, "loss": math.nan, "high": math.inf, "low": -math.inf, "acc": 0.5}
    with RunRecord(plan) as record:
        record.add_metrics(row)
        record.finish({"ok": True, "metrics": [row], "nodes": ({"rows": math.nan},)})
    told = {"epoch": 1, "loss": None, "high": None, "low": None, "acc": 0.5}
    assert read_strictly((tmp_path / "metrics.jsonl").read_text()) == told
    assert read_strictly((tmp_path / "result.json").read_text()) == {
        "ok": True,
        "metrics": [told],
        "nodes": [{"rows": None}],
    }
    assert math.isnan(row["loss"])  # what was given is not changed


def test_a_disk_that_breaks_does_not_end_the_run(plan: Plan, tmp_path: Path) -> None:
    with RunRecord(plan) as record:
        (tmp_path / "metrics.jsonl").mkdir()
        with pytest.warns(UserWarning, match="goes on without its logs"):
            record.add_metrics({"loss": 1.0})
        assert record.add_lines("chief:0", ["still told"]) == ["still told"]
        assert record.tail("chief:0") == ("still told",)
        record.finish({"ok": True})
