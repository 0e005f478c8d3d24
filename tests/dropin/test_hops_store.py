"""Files of the drop-in for hops, in a folder and in another store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hops import (
    hdfs,
    place,
)


@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
def test_files_of_the_project(
    project: Path, tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(place.VARIABLE, f"{scheme}{project}")
    monkeypatch.chdir(tmp_path)
    assert hdfs.project_name() == "demo"
    assert hdfs.project_path().endswith("/projects/demo/")
    assert hdfs.project_path(exclude_nn_addr=True) == f"{project}/"
    assert hdfs.project_path("other").endswith("/projects/other/")
    hdfs.mkdir("Resources/deep")
    hdfs.dump("hello", "Resources/deep/a.txt")
    assert hdfs.load("Resources/deep/a.txt") == b"hello"
    assert hdfs.exists("Resources/deep/a.txt") and not hdfs.exists("Resources/b.txt")
    assert hdfs.isfile("Resources/deep/a.txt") and hdfs.isdir("Resources")
    with hdfs.open_file("Resources/b.txt", flags="w") as stream:
        stream.write(b"bytes")
    assert [Path(name).name for name in hdfs.ls("Resources")] == ["b.txt", "deep"]
    assert len(hdfs.ls("Resources", recursive=True)) == 3
    assert [Path(name).name for name in hdfs.glob("Resources/*.txt")] == ["b.txt"]
    assert len(hdfs.glob("Resources/*.txt", recursive=True)) == 2
    assert hdfs.load(hdfs.ls("Resources")[0]) == b"bytes"
    assert {entry["kind"] for entry in hdfs.lsl("Resources")} == {"file", "directory"}
    Path("local.txt").write_text("local")
    hdfs.copy_to_hdfs("local.txt", "Resources")
    with pytest.raises(OSError, match=r"overwrite=True"):
        hdfs.copy_to_hdfs("local.txt", "Resources")
    Path("local.txt").write_text("other")
    hdfs.copy_to_hdfs("local.txt", "Resources", overwrite=True)
    assert hdfs.load("Resources/local.txt") == b"other"
    Path("down").mkdir()
    path = hdfs.copy_to_local("Resources/local.txt", "down")
    assert Path(path).read_text() == "other" and Path(path).parent == tmp_path / "down"
    assert (Path(hdfs.copy_to_local("Resources", "down")) / "deep/a.txt").read_text() == "hello"
    Path(path).write_text("OTHER")  # of the same size
    assert hdfs.copy_to_local("Resources/local.txt", "down") == path
    assert Path(path).read_text() == "OTHER"
    Path(path).write_text("longer than it was")
    assert hdfs.copy_to_local("Resources/local.txt", "down") == path
    assert Path(path).read_text() == "other"
    hdfs.cp("Resources/b.txt", "Resources/c.txt")
    hdfs.move("Resources/c.txt", "Resources/deep")
    hdfs.rename("Resources/deep/c.txt", "Resources/deep/d.txt")
    assert hdfs.load("Resources/deep/d.txt") == b"bytes"
    hdfs.delete("Resources/b.txt")
    hdfs.rmr("Resources/deep")
    assert [Path(name).name for name in hdfs.ls("Resources")] == ["local.txt"]


#: Of a list of hyperparameters; to fsspec, a pattern.
ODD = "layers=[64, 32]&act=relu*"


@pytest.fixture(params=["path", "memory"])
def store(
    request: pytest.FixtureRequest, project: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The project is a folder of this machine, or in a store without names for copying."""
    if request.param == "memory":
        monkeypatch.setenv(place.VARIABLE, "memory://projects/demo")
    yield hdfs.project_path()
    if request.param == "memory":
        hdfs.rmr("memory://projects")


def test_names_are_no_patterns(store: str, tmp_path: Path) -> None:
    hdfs.dump("log", f"E/{ODD}/output.log")
    hdfs.dump("events", f"E/{ODD}/deep[1]/events")
    hdfs.dump("another", "E/layers=6&act=relu/output.log")
    local = Path(hdfs.copy_to_local(f"E/{ODD}", str(tmp_path)))
    assert (local / "deep[1]/events").read_text() == "events"
    file = hdfs.copy_to_local(f"E/{ODD}/output.log", str(tmp_path))
    assert Path(file).read_text() == "log"
    hdfs.cp(f"E/{ODD}/output.log", "copied.log")
    hdfs.cp(f"E/{ODD}", "copied")
    hdfs.cp(f"E/{ODD}", "copied")
    assert hdfs.load("copied.log") == hdfs.load(f"copied/{ODD}/output.log") == b"log"
    hdfs.cp(f"E/{ODD}", "copied", overwrite=True)
    assert len(hdfs.ls("copied", recursive=True)) == 7
    hdfs.move(f"E/{ODD}", "moved[1]")
    hdfs.rename("moved[1]", "renamed[1]")
    assert hdfs.load("renamed[1]/deep[1]/events") == b"events"
    assert not hdfs.exists("moved[1]") and not hdfs.exists(f"E/{ODD}")
    hdfs.delete("renamed[1]/output.log")
    hdfs.rmr("renamed[1]")
    assert not hdfs.exists("renamed[1]")
    assert hdfs.load("E/layers=6&act=relu/output.log") == b"another"


def test_nothing_is_copied_over_itself(store: str) -> None:
    hdfs.dump("one", "E/a/a/one.txt")
    for source, target in (("E/a/a/one.txt", "E/a/a"), ("E/a/a", "E")):
        with pytest.raises(OSError, match="cannot be copied over"):
            hdfs.cp(source, target, overwrite=True)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        hdfs.cp("E/none", "E/a/a/one.txt", overwrite=True)
    if not place.has_scheme(store):
        with pytest.raises(OSError, match="cannot be copied over"):
            hdfs.copy_to_hdfs(f"{store}E/a", "E", overwrite=True)
    hdfs.cp("E/a", "E/a/b")
    hdfs.rename("E/a/b", "E/a/b")
    assert hdfs.load("E/a/b/a/one.txt") == hdfs.load("E/a/a/one.txt") == b"one"


@pytest.mark.parametrize("name", ["plain", ODD])
def test_from_store_to_store(project: Path, name: str) -> None:
    hdfs.dump("one", f"{name}/deep/one.txt")
    hdfs.mkdir(f"{name}/empty")
    hdfs.cp(name, "memory://box/copied")
    assert len(hdfs.ls("memory://box/copied", recursive=True)) == 3
    hdfs.move(f"{name}/deep/one.txt", "memory://box")
    assert hdfs.load("memory://box/one.txt") == b"one"
    assert not (project / name / "deep/one.txt").exists()
    hdfs.rename("memory://box/copied", "back")
    assert (project / "back/deep/one.txt").read_text() == "one"
    assert not hdfs.exists("memory://box/copied")
    hdfs.cp("memory://box/one.txt", "back/two.txt")
    assert (project / "back/two.txt").read_text() == "one"
    hdfs.rmr("memory://box")


def test_paths_of_another_store() -> None:
    project = "hdfs://nn:8020/Projects/demo/"
    assert place.make_absolute("x/y", project) == "hdfs://nn:8020/Projects/demo/x/y"
    assert place.make_absolute("s3://b/x", project) == "s3://b/x"
    assert hdfs.get_plain_path("hdfs://nn:8020/x/y") == "/x/y"
