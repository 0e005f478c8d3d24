"""Copies on this machine, and modules: where a file may be the copy already."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hops import hdfs, place, stores


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory; modules that are loaded from it are forgotten."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    known = set(sys.modules)
    yield folder
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def project(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project is the working directory, as where nothing is set."""
    monkeypatch.delenv(place.VARIABLE, raising=False)
    monkeypatch.setattr("hops.place.find_active", lambda: None)
    return here


@pytest.fixture
def away(tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The project is in a store."""
    monkeypatch.setenv(place.VARIABLE, "memory://away/demo")
    yield "memory://away/demo/"
    stores.remove(*stores.open_path("memory://away"), recursive=True)


def list_files(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_there_already_stays(project: Path, tmp_path: Path, overwrite: bool) -> None:
    hdfs.dump("rows", "Resources/deep/a.csv")
    hdfs.dump("1", "data.csv")
    (tmp_path / "link").symlink_to(project)
    before = list_files(project)
    for path in ("Resources", "data.csv", f"file://{project}/data.csv", "/Resources"):
        found = hdfs.copy_to_local(path, overwrite=overwrite)
        assert found == str(project / path.rpartition("/")[2])
        assert hdfs.copy_to_local(path, str(tmp_path / "link"), overwrite=overwrite)
    assert list_files(project) == before


def test_a_folder_is_not_replaced_by_what_is_in_it(project: Path) -> None:
    hdfs.dump("1", "a/a/one.txt")
    before = list_files(project)
    with pytest.raises(OSError, match=r"one is in the other"):
        hdfs.copy_to_local("a/a", overwrite=True)
    with pytest.raises(OSError, match=r"one is in the other"):
        hdfs.copy_to_local("a", "a", overwrite=True)
    assert list_files(project) == before


def test_a_link_to_a_file_is_not_copied_over_it(project: Path, tmp_path: Path) -> None:
    hdfs.dump("rows", "data.csv")
    link = tmp_path / "data.csv"
    link.symlink_to(project / "data.csv")
    with pytest.raises(OSError, match=r"cannot be copied over"):
        hdfs.copy_to_hdfs(str(link), "", overwrite=True)
    assert list_files(project) == {"data.csv": "rows"}


def test_a_copy_that_changed_is_fetched_anew(away: str, here: Path) -> None:
    hdfs.dump("one", "R/a.csv")
    hdfs.dump("two", "R/b.csv")
    assert hdfs.copy_to_local("R") == str(here / "R")
    hdfs.dump("two!", "R/b.csv")
    stores.remove(*stores.open_path(f"{away}R/a.csv"))
    hdfs.copy_to_local("R")
    assert list_files(here) == {"R/b.csv": "two!"}
    hdfs.dump("owt!", "R/b.csv")
    hdfs.copy_to_local("R")  # of the same size
    assert list_files(here) == {"R/b.csv": "two!"}
    hdfs.copy_to_local("R", overwrite=True)
    assert list_files(here) == {"R/b.csv": "owt!"}


def test_a_copy_that_fails_leaves_the_old_one(
    away: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hdfs.dump("one", "R/a.csv")
    hdfs.dump("two", "R/b.csv")
    hdfs.copy_to_local("R")
    before = list_files(here)
    hdfs.dump("longer", "R/b.csv")
    copy_file = stores._copy_file

    def fail(filesystem: Any, name: str, *to: Any) -> None:
        if name.endswith("b.csv"):
            raise ConnectionError("the store is gone")
        copy_file(filesystem, name, *to)

    monkeypatch.setattr(stores, "_copy_file", fail)
    for path in ("R", "R/b.csv"):
        (here / "b.csv").write_text("old")
        with pytest.raises(ConnectionError):
            hdfs.copy_to_local(path, overwrite=True)
    assert list_files(here) == {**before, "b.csv": "old"}


@pytest.mark.parametrize("kind", ["away", "project"])
def test_modules(kind: str, here: Path, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(kind)
    (here / "deps").mkdir()
    hdfs.dump("VALUE = 1\n", "deps/hops_given.py")
    hdfs.dump("an own file", "own.txt")
    (here / "hops_given.py").write_text("VALUE = 'another one of this name'\n")
    path = hdfs.add_module("deps/hops_given.py")
    import hops_given  # type: ignore[import-not-found]

    # Where the working directory is on the path, as in notebooks, it comes first.
    assert hops_given.VALUE == 1 and hops_given.__file__ == path
    folder = here / ("deps" if kind == "project" else "localized_deps")
    assert path == str(folder / "hops_given.py")
    assert "another one" in (here / "hops_given.py").read_text()
    hdfs.dump("VALUE = 20\n", "deps/hops_given.py")
    assert hdfs.add_module("deps/hops_given.py") == path
    assert hops_given.VALUE == 20
    with pytest.raises(ValueError, match=r"expected a \.py, \.ipynb"):
        hdfs.add_module("own.txt")
    with pytest.raises(FileNotFoundError):
        hdfs.add_module("deps/none.py")


def test_a_module_in_the_working_directory(project: Path) -> None:
    (project / "hops_mod.py").write_text("A = 1\n")
    assert hdfs.add_module("hops_mod.py") == str(project / "hops_mod.py")
    assert list_files(project) == {"hops_mod.py": "A = 1\n"}


def test_notebooks(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PythonExporter:
        """Of nbconvert, as far as it is asked."""

        def from_filename(self, name: str) -> tuple[str, None]:
            return "".join(json.loads(Path(name).read_text())["cells"][0]["source"]), None

    cells = {"cells": [{"cell_type": "code", "source": ["B = 2\n"]}]}
    (project / "hops_note.ipynb").write_text(json.dumps(cells))
    monkeypatch.setitem(sys.modules, "nbconvert", None)
    with pytest.raises(ImportError, match=r"hops_note\.ipynb.*Install nbconvert"):
        hdfs.add_module("hops_note.ipynb")
    monkeypatch.setitem(sys.modules, "nbconvert", SimpleNamespace(PythonExporter=PythonExporter))
    assert hdfs.add_module("hops_note.ipynb") == str(project / "localized_deps/hops_note.py")
    import hops_note  # type: ignore[import-not-found]

    assert hops_note.B == 2
