"""Where a run may write: paths only, named as they were given when they are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sparktrain.driver.run_folder import resolve_run_dir
from sparktrain.errors import ConfigError


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/runs",
        "hdfs:///runs",
        "gs://b/x",
        "sc://host",
        "dbfs:/runs",
        "s3:/bucket/runs",
        "abfss://c@a.dfs.core.windows.net/runs",
        "DBFS:/runs",
    ],
)
def test_run_directories_that_are_urls_are_refused(url: str) -> None:
    expected = f"The run directory {url!r} is not a path of the file system. "
    for run_dir, runs_dir in ((url, "runs"), (None, url)):
        with pytest.raises(ConfigError, match=re.escape(expected)) as caught:
            resolve_run_dir(run_dir, runs_dir, "the-run-id")
        assert "use a path that all hosts share" in str(caught.value)
        assert "the-run-id" not in str(caught.value)


def test_a_file_url_of_another_host_is_refused() -> None:
    with pytest.raises(ConfigError, match="//host/x' is not a path of the file system"):
        resolve_run_dir("file://host/x", "runs", "r1")


@pytest.mark.parametrize("wrong", ["", "file:", "\0", "/runs/a\0b", "file:/runs/a\0b"])
def test_text_that_is_no_path_is_refused(wrong: str) -> None:
    expected = f"The run directory {wrong!r} is no path. Name a folder."
    for run_dir, runs_dir in ((wrong, "runs"), (None, wrong)):
        with pytest.raises(ConfigError, match=re.escape(expected)):
            resolve_run_dir(run_dir, runs_dir, "r1")


class BytesPath:
    """A path, but not as text."""

    def __fspath__(self) -> bytes:
        return b"/bytes"


@pytest.mark.parametrize("wrong", [12, b"/bytes", ["runs"], True, BytesPath()])
def test_run_directories_that_are_no_text_are_refused_by_value_and_type(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_run_dir(wrong, "runs", "r1")
    expected = f"run() got run_dir={wrong!r} of type {type(wrong).__name__}. Expected a path"
    assert expected in str(caught.value)


def test_the_home_of_an_unknown_user_is_refused_by_name() -> None:
    for run_dir, runs_dir in (("~nosuchuser/x", "runs"), (None, "~nosuchuser/x")):
        with pytest.raises(ConfigError, match="The run directory '~nosuchuser/x'") as caught:
            resolve_run_dir(run_dir, runs_dir, "r1")
        assert "by its full path" in str(caught.value)
        assert "r1" not in str(caught.value)


def test_run_directories_become_absolute_paths(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert resolve_run_dir("here", "runs", "r1") == tmp_path / "here"
    assert resolve_run_dir("/there", "runs", "r1") == Path("/there")
    assert resolve_run_dir(tmp_path / "x", "runs", "r1") == tmp_path / "x"
    assert resolve_run_dir("~/x", "runs", "r1") == Path("/home/me/x")


@pytest.mark.parametrize("url", ["file:/there/x", "file:///there/x"])
def test_file_urls_are_paths(url: str) -> None:
    assert resolve_run_dir(url, "runs", "r1") == Path("/there/x")
    assert resolve_run_dir(None, url, "r1") == Path("/there/x/r1")


@pytest.mark.parametrize("name", ["a:b", "12:30", "x/s3:/y", "files:old"])
def test_a_colon_does_not_make_a_url(name: str, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_run_dir(name, "runs", "r1") == tmp_path / name


def test_the_default_run_directory_is_below_runs_dir(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_run_dir(None, "runs", "r1") == tmp_path / "runs" / "r1"
    assert resolve_run_dir("mine", "runs", "r1") == tmp_path / "mine"
