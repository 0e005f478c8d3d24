"""The functions of hops.hdfs: what they are called with, and what they tell of files."""

from __future__ import annotations

import inspect
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hops import entries, hdfs, owners, place
from sparktrain.errors import ConfigError

#: As hops-util-py has them: names and defaults.
SIGNATURES = {
    "project_id": "",
    "project_user": "",
    "project_name": "",
    "project_path": "project=None exclude_nn_addr=False",
    "get": "",
    "get_fs": "",
    "close": "",
    "is_tls_enabled": "",
    "abs_path": "hdfs_path",
    "get_plain_path": "abs_path",
    "exists": "hdfs_path project=None",
    "isdir": "hdfs_path project=None",
    "isfile": "hdfs_path project=None",
    "ls": "hdfs_path recursive=False exclude_nn_addr=False",
    "lsl": "hdfs_path recursive=False project=None",
    "glob": "hdfs_path recursive=False project=None",
    "stat": "hdfs_path project=None",
    "access": "hdfs_path mode project=None",
    "mkdir": "hdfs_path project=None",
    "delete": "hdfs_path recursive=False",
    "rmr": "hdfs_path project=None",
    "move": "src dest",
    "rename": "src dest",
    "chmod": "hdfs_path mode project=None",
    "chown": "hdfs_path user group project=None",
    "cp": "src_hdfs_path dest_hdfs_path overwrite=False",
    "copy_to_hdfs": "local_path relative_hdfs_path overwrite=False project=None",
    "copy_to_local": "hdfs_path local_path='' overwrite=False project=None",
    "open_file": "hdfs_path project=None flags='rw' buff_size=0",
    "dump": "data hdfs_path",
    "load": "hdfs_path",
    "add_module": "hdfs_path project=None",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    known = inspect.signature(getattr(hdfs, name)).parameters.values()
    shown = [
        one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in known
    ]
    assert " ".join(shown) == SIGNATURES[name]


@pytest.fixture(params=["path", "memory"])
def project(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """In a folder of this machine, or in a store."""
    is_store = request.param == "memory"
    monkeypatch.setenv(place.VARIABLE, "memory:///box/demo" if is_store else str(tmp_path))
    yield hdfs.project_path()
    if is_store:
        hdfs.rmr("memory:///box")


def test_both_names_of_a_path(project: str) -> None:
    hdfs.mkdir(hdfs_path="R")
    hdfs.dump(data="abc", hdfs_path="R/a.txt")
    assert hdfs.exists(hdfs_path="R/a.txt") and hdfs.exists(path="R/a.txt")
    assert hdfs.ls(hdfs_path="R") == hdfs.ls(path="R") == [hdfs.abs_path(hdfs_path="R/a.txt")]
    plain = hdfs.get_plain_path(abs_path=project)
    assert plain == hdfs.get_plain_path(path=project) == hdfs.project_path(exclude_nn_addr=True)
    with pytest.raises(TypeError, match=r"exists\(\) got path='a' and hdfs_path='b'"):
        hdfs.exists(path="a", hdfs_path="b")


def test_what_is_told_of_files(project: str) -> None:
    hdfs.dump("abc", "R/a.txt")
    hdfs.mkdir("R/deep")
    file, folder = hdfs.stat("R/a.txt"), hdfs.stat(hdfs_path="/R/deep")
    assert file.st_size == 3 and stat.S_ISREG(file.st_mode) and file.st_mtime > 1e9
    assert stat.S_ISDIR(folder.st_mode)
    row = next(one for one in hdfs.lsl("R") if one["kind"] == "file")
    assert row["path"] == row["name"] == hdfs.abs_path("R/a.txt") and row["size"] == 3
    assert row["last_mod"] == int(file.st_mtime)
    if not place.has_scheme(project):
        assert (row["owner"], row["group"]) == (file.st_uid, file.st_gid)
        assert row["permissions"] == stat.S_IMODE(file.st_mode)
    assert hdfs.access("R/a.txt", os.R_OK) and not hdfs.access("R/none", os.R_OK)
    with pytest.raises(FileNotFoundError):
        hdfs.stat("R/none")


def test_patterns_need_their_folder(project: str) -> None:
    hdfs.dump("abc", "R/a.txt")
    full = [hdfs.abs_path("R/a.txt")]
    assert hdfs.glob("R/*.txt") == hdfs.glob("*/a.txt") == full and hdfs.glob("R/*.csv") == []
    for recursive in (False, True):
        with pytest.raises(FileNotFoundError, match=r"'nowhere/\*\.txt', and there is no folder"):
            hdfs.glob("nowhere/*.txt", recursive=recursive)


@pytest.mark.parametrize("call", [hdfs.move, hdfs.rename])
def test_nothing_is_moved_over_another(project: str, call: Any) -> None:
    hdfs.dump("one", "R/a.txt")
    hdfs.dump("two", "R/b.txt")
    with pytest.raises(FileExistsError, match="there already"):
        call("R/a.txt", "R/b.txt")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        call("R/none", "R/c.txt")
    assert (hdfs.load("R/a.txt"), hdfs.load("R/b.txt")) == (b"one", b"two")


def test_the_store_and_the_project(project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hdfs.dump("abc", "a.txt")
    for filesystem in (hdfs.get_fs(), hdfs.get()):
        assert filesystem.cat_file(f"{hdfs.project_path()}a.txt") == b"abc"
    monkeypatch.delenv("HOPSWORKS_PROJECT_ID", raising=False)
    with pytest.raises(ConfigError, match="HOPSWORKS_PROJECT_ID is not set"):
        hdfs.project_id()
    monkeypatch.setenv("HOPSWORKS_PROJECT_ID", "119")
    assert hdfs.project_id() == "119"
    assert hdfs.is_tls_enabled() is False and hdfs.close() is None  # type: ignore[func-returns-value]


def test_owners_of_files_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(place.VARIABLE, str(tmp_path))
    hdfs.dump("abc", "a.txt")
    for path in ("a.txt", f"file://{tmp_path}/a.txt"):
        hdfs.chmod(path, 0o640)
        assert stat.S_IMODE(hdfs.stat(path).st_mode) == 0o640
        hdfs.chmod(path, 0o600)
        hdfs.chown(path, os.getuid(), os.getgid())  # type: ignore[arg-type]
    assert hdfs.access(hdfs_path="a.txt", mode=os.R_OK)


def test_webhdfs_takes_octal_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.webhdfs import WebHDFS

    calls = []
    monkeypatch.setattr(WebHDFS, "_connect", lambda self: None)
    monkeypatch.setattr(WebHDFS, "_call", lambda self, op, **told: calls.append((op, told)))
    monkeypatch.setenv(place.VARIABLE, "webhdfs://nn:9870/Projects/demo")
    hdfs.chmod("a.txt", 0o755)
    hdfs.chown("a.txt", "ann", "staff")
    (mode, told), (owner, names) = calls
    assert (mode, told["permission"]) == ("SETPERMISSION", "755")
    assert (owner, names["owner"], names["group"]) == ("SETOWNER", "ann", "staff")
    assert told["path"] == "/Projects/demo/a.txt"


@pytest.mark.parametrize(
    ("project", "what"),
    [
        ("hdfs://nn:8020/Projects/demo", "without a Spark session of its own.*webhdfs://"),
        ("memory://box/demo", "only files of this machine and of Hadoop"),
    ],
)
def test_who_cannot_change_owners(project: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(place.VARIABLE, project)
    monkeypatch.setattr("hops.session.find_active", lambda: None)
    with pytest.raises(NotImplementedError, match=rf"chmod\(\).*a\.txt.*{what}"):
        hdfs.chmod("a.txt", 0o755)
    with pytest.raises(NotImplementedError, match=rf"chown\(\).*{what}"):
        hdfs.chown("a.txt", "ann", "staff")


def test_hadoop_itself_changes_owners(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """viewfs:// is Hadoop's, and may be mounted on a folder of this machine."""
    (tmp_path / "a.txt").write_text("abc")
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.box.link./data", f"file://{tmp_path}")
    try:
        owners.chmod("viewfs://box/data/a.txt", 0o640)
        assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640
        owners.chown("viewfs://box/data/a.txt", (tmp_path / "a.txt").owner(), "")
    finally:
        hadoop.unset("fs.viewfs.mounttable.box.link./data")


@pytest.mark.parametrize(
    "entry",
    [
        {"mtime": 1_700_000_000.5, "mode": 0o100640, "uid": 1, "gid": 2},
        {"modificationTime": 1_700_000_000_500, "permission": "640", "owner": 1, "group": 2},
        {"LastModified": "2023-11-14T22:13:20.500+00:00", "mode": 0o640, "owner": 1, "group": 2},
    ],
)
def test_stores_have_names_of_their_own(entry: dict[str, Any]) -> None:
    entry = {"name": "/a", "type": "file", "size": 3, **entry}
    found = entries.make_stat(entry)
    assert found == entries.Stat(stat.S_IFREG | 0o640, 3, 1_700_000_000.5, 1, 2)
    row = entries.describe(entry, "/a")
    assert (row["last_mod"], row["permissions"]) == (1_700_000_000, 0o640)
    assert entries.describe({"name": "/a", "type": "directory"}, "/a") == {
        "path": "/a",
        "name": "/a",
        "kind": "directory",
        "size": 0,
    }
