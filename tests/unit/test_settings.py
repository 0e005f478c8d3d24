"""Settings: where a value comes from, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from sparktrain.errors import ConfigError
from sparktrain.settings import Settings, env_key, resolve, spark_key, to_markdown

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"

#: Of every setting: an argument, a Spark text and an environment text, and what they become.
VALUES: dict[str, tuple[tuple[Any, Any], tuple[str, Any], tuple[str, Any]]] = {
    "progress": (("live", "live"), ("plain", "plain"), ("off", "off")),
    "runs_dir": (("/a", "/a"), ("/b", "/b"), ("/c", "/c")),
    "distribution": (("none", "none"), ("auto", "auto"), ("none", "none")),
    "restart_on_error": ((True, True), ("false", False), ("yes", True)),
    "slot_wait_s": ((1, 1.0), ("2.5", 2.5), ("3", 3.0)),
    "restart_wait_s": ((1.5, 1.5), ("2", 2.0), ("3", 3.0)),
    "launch_timeout_s": ((1.0, 1.0), ("2", 2.0), ("3", 3.0)),
    "driver_timeout_s": ((1.0, 1.0), ("2", 2.0), ("3", 3.0)),
    "stop_grace_s": ((0, 0.0), ("0.5", 0.5), ("3", 3.0)),
    "spill_dir": (("/a", "/a"), ("/b", "/b"), ("/c", "/c")),
    "gpus_per_worker": ((2, "2"), ("AUTO", "auto"), ("0", "0")),
    "gpus_at_most": ((1, 1), ("2", 2), ("0", 0)),
    "gpus_per_evaluator": ((1, 1), ("2", 2), ("0", 0)),
    "gpu_resource": (("a", "a"), ("b", "b"), ("c", "c")),
    "gpu_memory_fraction": ((0.1, 0.1), ("1", 1.0), ("0", 0.0)),
    "gpu_memory_mb": ((1, 1), ("2", 2), ("0", 0)),
    "gpu_claims_dir": (("/a", "/a"), ("/b", "/b"), ("/c", "/c")),
    "control_port": ((4001, 4001), ("4002", 4002), ("4003", 4003)),
    "kept_log_lines": ((1, 1), ("2", 2), ("0", 0)),
    "max_result_bytes": ((1, 1), ("2", 2), ("3", 3)),
    "events": (("graph", "graph"), ("profile", "profile"), ("", "")),
    "events_dir": (("/a", "/a"), ("s3://b", "s3://b"), ("/c", "/c")),
    "tensorboard_at": (("chief", "chief"), ("driver", "driver"), ("chief", "chief")),
    "tensorboard_host": (("::1", "::1"), ("0.0.0.0", "0.0.0.0"), ("h", "h")),
    "tensorboard_port": ((6006, 6006), ("6007", 6007), ("0", 0)),
    "tensorboard_keep": ((True, True), ("false", False), ("yes", True)),
}
NAMES = [field.name for field in dataclasses.fields(Settings)]


def find(
    name: str,
    argument: Any = None,
    spark: str | None = None,
    environ: str | None = None,
) -> Any:
    arguments = {} if argument is None else {name: argument}
    conf = {} if spark is None else {spark_key(name): spark}
    env = {} if environ is None else {env_key(name): environ}
    return getattr(resolve(arguments, conf.get, env), name)


@pytest.mark.parametrize("name", NAMES)
def test_argument_goes_before_spark_before_environment_before_default(name: str) -> None:
    argument, spark, environ = VALUES[name]
    assert find(name, argument[0], spark[0], environ[0]) == argument[1]
    assert find(name, None, spark[0], environ[0]) == spark[1]
    assert find(name, None, None, environ[0]) == environ[1]
    assert find(name) == getattr(Settings(), name)


@pytest.mark.parametrize("name", NAMES)
def test_values_get_the_type_of_the_default(name: str) -> None:
    for source, (raw, _) in zip(("argument", "spark", "environ"), VALUES[name], strict=True):
        assert type(find(name, **{source: raw})) is type(getattr(Settings(), name))


def test_keys_follow_from_the_name() -> None:
    assert spark_key("slot_wait_s") == "spark.sparktrain.slotWaitS"
    assert spark_key("progress") == "spark.sparktrain.progress"
    assert env_key("slot_wait_s") == "SPARKTRAIN_SLOT_WAIT_S"


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({"zebra": 1, "progres": 2}, lambda key: None, {})
    text = str(caught.value)
    assert "unknown settings: progres, zebra." in text
    assert [name for name in NAMES if name not in text] == []


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("progress", "loud", "one of auto, live, plain, off"),
        ("distribution", "ring", "one of auto, none, periodic"),
        ("restart_on_error", "maybe", "true or false"),
        ("slot_wait_s", "soon", "a number, zero or more"),
        ("slot_wait_s", "-1", "a number, zero or more"),
        ("slot_wait_s", "nan", "a number, zero or more"),
        ("slot_wait_s", "inf", "a number, zero or more"),
        ("control_port", "http", "a whole number, zero or more, 65535 at most"),
        ("control_port", "-5", "a whole number, zero or more, 65535 at most"),
        ("control_port", "65536", "a whole number, zero or more, 65535 at most"),
        ("kept_log_lines", "1.5", "a whole number, zero or more"),
    ],
)
def test_bad_values_are_refused_with_their_source_and_value(
    name: str, raw: str, expected: str
) -> None:
    for source, label in (
        ("argument", f"{name}="),
        ("spark", spark_key(name)),
        ("environ", env_key(name)),
    ):
        with pytest.raises(ConfigError) as caught:
            find(name, **{source: raw})
        assert f"The setting {label} has the value {raw!r}." in str(caught.value)
        assert f"Expected {expected}." in str(caught.value)


@pytest.mark.parametrize("name", ["slot_wait_s", "control_port"])
def test_a_truth_value_is_no_number(name: str) -> None:
    with pytest.raises(ConfigError, match="the value True"):
        find(name, argument=True)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        pytest.param("slot_wait_s", float("nan"), id="no number"),
        pytest.param("slot_wait_s", [1], id="a list"),
        pytest.param("kept_log_lines", float("inf"), id="infinite count"),
        pytest.param("kept_log_lines", 2.7, id="part of a line"),
        pytest.param("control_port", 70_000, id="no such port"),
    ],
)
def test_numbers_that_cannot_be_meant_are_refused(name: str, raw: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        find(name, argument=raw)
    assert f"The setting {name}= has the value {raw!r}. Expected a " in str(caught.value)


def test_the_largest_port_and_a_whole_number_written_as_a_float_are_taken() -> None:
    assert find("control_port", argument=65535) == 65535
    assert find("kept_log_lines", argument=2.0) == 2


@pytest.mark.parametrize(
    ("raw", "value"), [(True, "auto"), (False, "off"), ("true", "auto"), ("False", "off")]
)
def test_progress_takes_truth_values(raw: Any, value: str) -> None:
    assert find("progress", argument=raw) == value


@pytest.mark.parametrize("text", ["true", "TRUE", "1", "yes", "false", "False", "0", "no"])
def test_switches_take_the_usual_words(text: str) -> None:
    assert find("restart_on_error", environ=text) is (text.lower() in ("true", "1", "yes"))


def test_page_of_settings_is_the_table() -> None:
    assert PAGE.read_text() == to_markdown()


def test_table_has_a_row_with_a_meaning_for_every_setting() -> None:
    rows = [line.split(" | ") for line in to_markdown().splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows] == [f"| `{name}`" for name in NAMES]
    assert all(len(row) == 5 and len(row[4]) > 20 for row in rows)


def test_the_driver_timeout_has_a_second_name() -> None:
    conf = {"spark.sparktrain.driverTimeout": "7"}
    assert resolve({}, conf.get, {}).driver_timeout_s == 7.0
    conf["spark.sparktrain.driverTimeoutS"] = "8"
    assert resolve({}, conf.get, {}).driver_timeout_s == 8.0
