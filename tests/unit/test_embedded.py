"""What the embedded Spark needs of this machine; fake javas are shell scripts."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import pytest

from sparktrain import embedded
from sparktrain.embedded import (
    check_java,
    check_memory,
    find_available_memory_mb,
    find_java,
    parse_java_version,
)
from sparktrain.errors import SessionError


def make_java(folder: Path, *says: str, stream: int = 2) -> Path:
    """A java command that prints these lines."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    lines = [f"echo '{line}' >&{stream}" for line in says]
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.10" 2024-01-16\nOpenJDK Runtime Environment', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ('java version "1.8.0_292"', 8),
        ('java version "1.7.0"', 7),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2" 2019-01-15', 11),
        ("openjdk 17.0.1", None),
        ("sh: java: not found", None),
        ("", None),
    ],
)
def test_java_versions_are_read(text: str, version: int | None) -> None:
    assert parse_java_version(text) == version


@pytest.mark.parametrize("stream", [1, 2])
def test_a_java_that_is_new_enough_is_taken(tmp_path: Path, stream: int) -> None:
    java = make_java(tmp_path, 'openjdk version "17.0.1" 2021-10-19', stream=stream)
    assert check_java(str(java), 17) == 17


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "Java 11."),
        ('java version "1.8.0_292"', "Java 8."),
        ("good morning", "Java of an unknown version."),
    ],
)
def test_a_java_that_is_too_old_is_refused_with_its_path_and_version(
    tmp_path: Path, says: str, found: str
) -> None:
    java = make_java(tmp_path, says)
    with pytest.raises(SessionError) as caught:
        check_java(str(java), 17)
    assert f"{java} is {found}" in str(caught.value)
    assert "needs Java 17 or newer" in str(caught.value)
    assert "JAVA_HOME" in str(caught.value)


def test_a_java_that_cannot_be_started_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="nosuch is Java of an unknown version"):
        check_java(str(tmp_path / "nosuch"), 17)


def test_no_java_is_refused_with_what_to_install() -> None:
    with pytest.raises(SessionError) as caught:
        check_java(None, 17)
    assert "No Java was found" in str(caught.value)
    assert "apt-get install openjdk-17" in str(caught.value)


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "a")
    other = make_java(tmp_path / "other", "b")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}
    assert find_java(environ) == str(home)
    assert find_java({"PATH": str(other.parent)}) == str(other)
    assert find_java({"JAVA_HOME": "", "PATH": str(other.parent)}) == str(other)


def test_a_java_home_without_java_is_no_java_as_it_is_for_spark(tmp_path: Path) -> None:
    other = make_java(tmp_path / "other", "b")
    environ = {"JAVA_HOME": str(tmp_path / "nosuch"), "PATH": str(other.parent)}
    assert find_java(environ) is None
    assert find_java({"PATH": str(tmp_path)}) is None


def test_too_little_memory_is_refused_with_all_numbers() -> None:
    with pytest.raises(SessionError) as caught:
        check_memory(3, 2000, 7023)
    text = str(caught.value)
    assert "needs 7024 MB" in text
    assert "3 executors of 2000 MB and 1024 MB for its driver" in text
    assert "7023 MB are available" in text


def test_enough_or_unknown_memory_is_taken() -> None:
    check_memory(3, 2000, 7024)
    check_memory(3, 2000, None)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_available_memory_is_a_sensible_number() -> None:
    found = find_available_memory_mb()
    assert found is not None
    assert 0 < found < 100_000_000


def find_dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(10)
    return process.pid


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of this host as it is part of a home's."""
    monkeypatch.setattr(socket, "gethostname", lambda: "node-1.example.org")
    return "node1exampleorg"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_only_homes_of_dead_processes_of_this_host_are_removed(tmp_path: Path, host: str) -> None:
    dead = find_dead_pid()
    kept = [
        f"sparktrain-spark-{os.getpid()}-{host}-abc",
        f"sparktrain-spark-{os.getppid()}-{host}-abc",
        f"sparktrain-spark-{dead}-abc",
        f"sparktrain-spark-{dead}-otherhost-abc",
        f"sparktrain-spark-{dead}-{host}2-abc",
        f"sparktrain-spark-{dead}-otherhost-{host}",
        f"sparktrain-spark-notes-{host}-abc",
        f"sparktrain-spark-{host}",
        "sparktrain-spark-",
        f"other-spark-{dead}-{host}-abc",
        f"{dead}",
    ]
    gone = [f"sparktrain-spark-{dead}-{host}-abc", f"sparktrain-spark-{dead}-{host}-x_y"]
    for name in (*kept, *gone):
        (tmp_path / name / "conf").mkdir(parents=True)
        (tmp_path / name / "conf" / "file").write_text("x")
    embedded._remove_abandoned(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
    assert all((tmp_path / name / "conf" / "file").exists() for name in kept)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_what_an_abandoned_home_links_to_is_not_removed(tmp_path: Path, host: str) -> None:
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "spark.jar").write_text("x")
    home = tmp_path / f"sparktrain-spark-{find_dead_pid()}-{host}-abc"
    home.mkdir()
    (home / "jars").symlink_to(installed)
    embedded._remove_abandoned(tmp_path)
    assert not home.exists()
    assert (installed / "spark.jar").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_home_is_named_so_that_it_is_known_as_abandoned_when_its_process_is_dead(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, folder = tmp_path / "installed", tmp_path / "tmp"
    folder.mkdir()
    for name in ("jars", "bin", "conf", "work", "logs"):
        (installed / name).mkdir(parents=True)
    finder = types.SimpleNamespace(_find_spark_home=lambda: str(installed))
    monkeypatch.setitem(sys.modules, "pyspark", types.ModuleType("pyspark"))
    monkeypatch.setitem(sys.modules, "pyspark.find_spark_home", finder)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(atexit, "register", lambda *call: None)
    monkeypatch.setattr(embedded, "_home", None)
    monkeypatch.setattr(os, "getpid", find_dead_pid)
    home = embedded._make_home()
    assert home.name.startswith("sparktrain-spark-")
    assert f"-{host}-" in home.name
    assert sorted(entry.name for entry in home.iterdir() if entry.is_symlink()) == ["bin", "jars"]
    assert embedded._make_home() == home
    embedded._remove_abandoned(folder)
    assert not home.exists()
    assert (installed / "jars").is_dir()
