"""The command line: versions, functions of scripts, name=value pairs, and errors as text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparktrain.cli.app import app, load_function, main, parse_pairs, parse_settings
from sparktrain.errors import ConfigError
from sparktrain.version import __version__

SCRIPT = """
import os

import neighbour


def train(ctx):
    return neighbour.VALUE + ctx


class Trainer:
    pass


_hidden = len
number = 5

if __name__ == "__main__":
    raise SystemExit("this part must not run")
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour.py").write_text("VALUE = 40\n")
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    yield str(path)
    sys.modules.pop("neighbour", None)


def test_version_is_shown() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"sparktrain {__version__}\n")


def test_help_lists_the_commands() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for name in ("demo", "run", "doctor"):
        assert f" {name} " in result.output


def test_no_command_shows_the_help() -> None:
    assert "doctor" in CliRunner().invoke(app, []).output


def test_an_unknown_command_is_refused_by_name() -> None:
    result = CliRunner().invoke(app, ["nosuch"])
    assert result.exit_code == 2
    assert "No such command 'nosuch'" in result.output


def test_run_wants_a_function() -> None:
    result = CliRunner().invoke(app, ["run"])
    assert result.exit_code == 2
    assert "Missing argument" in result.output


def test_a_function_of_a_script_is_loaded_with_its_neighbours(script: str) -> None:
    assert load_function(f"{script}:train")(2) == 42
    assert str(Path(script).parent) in sys.path


@pytest.mark.parametrize("target", ["train", "script.py", ":train", "script.py:", ""])
def test_a_target_that_names_no_function_is_refused(target: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_function(target)
    assert f"{target!r} does not name a function." in str(caught.value)
    assert "script.py:function" in str(caught.value)


def test_a_script_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nosuch.py", tmp_path):
        with pytest.raises(ConfigError, match="There is no file") as caught:
            load_function(f"{path}:train")
        assert repr(str(path)) in str(caught.value)


@pytest.mark.parametrize("name", ["nosuch", "number"])
def test_a_function_that_is_not_there_is_refused_with_those_that_are(
    script: str, name: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_function(f"{script}:{name}")
    assert f"{script} has no function {name!r}." in str(caught.value)
    assert str(caught.value).endswith("It has: train, Trainer.")


def test_pairs_become_a_dict() -> None:
    assert parse_pairs("--arg", None) == {}
    assert parse_pairs("--arg", ["a=1", "b=", "c=x=y", "a=2"]) == {"a": "2", "b": "", "c": "x=y"}


@pytest.mark.parametrize("pair", ["epochs", "=3", "="])
def test_what_is_no_pair_is_refused_by_option_and_value(pair: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pairs("--arg", [pair])
    assert str(caught.value) == f"--arg got {pair!r}. Expected --arg name=value."


def test_settings_are_known_names_and_the_unknown_are_refused_with_the_known() -> None:
    assert parse_settings(None) == {}
    assert parse_settings(["progress=off", "slot_wait_s=2"]) == {
        "progress": "off",
        "slot_wait_s": "2",
    }
    with pytest.raises(ConfigError) as caught:
        parse_settings(["zebra=1", "progress=off", "spark=x"])
    assert "--setting got unknown names: spark, zebra." in str(caught.value)
    assert "control_port" in str(caught.value)
    assert "progress" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--arg", "epochs"], "--arg got 'epochs'."),
        (["--env", "=1"], "--env got '=1'."),
        (["--setting", "progress"], "--setting got 'progress'."),
        (["--setting", "nosuch=1"], "--setting got unknown names: nosuch. Known settings: "),
        (["--setting", "num_workers=2"], "--setting got unknown names: num_workers."),
        (["--num-workers", "0"], "run() got num_workers=0."),
        (["--max-restarts", "-1"], "run() got max_restarts=-1."),
        (["--timeout-s", "0"], "run() got timeout_s=0.0."),
    ],
)
def test_wrong_options_are_refused_before_spark_starts(
    script: str, options: list[str], text: str
) -> None:
    result = CliRunner().invoke(app, ["run", f"{script}:train", *options])
    assert result.exit_code == 1
    assert isinstance(result.exception, ConfigError)
    assert text in str(result.exception)


def test_our_errors_are_shown_as_text_without_a_stack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sparktrain", "run", "nosuch.py:train"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "ConfigError: There is no file 'nosuch.py'. Check the path.\n"


def test_what_spark_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.errors import AnalysisException

    import sparktrain.cli.app as module

    def refuse() -> None:
        raise AnalysisException("Path does not exist: file:/absent.\n'Project [*]\n+- more")

    monkeypatch.setattr(module, "app", refuse)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    shown = capsys.readouterr().err.strip()
    assert "Path does not exist: file:/absent." in shown and "AnalysisException" in shown
    assert len(shown.splitlines()) == 1

    def fail() -> None:
        raise KeyError("of the user's own script")

    monkeypatch.setattr(module, "app", fail)
    with pytest.raises(KeyError):
        main()
