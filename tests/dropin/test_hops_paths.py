"""Which file a path of the drop-in for hops means, and which none may touch."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from hops import hdfs, place, session


@pytest.mark.parametrize(
    ("path", "full"),
    [
        ("x/y", "hdfs://nn:8020/Projects/demo/x/y"),
        ("", "hdfs://nn:8020/Projects/demo/"),
        ("/Resources", "hdfs://nn:8020/Projects/demo/Resources"),
        ("/Resources/", "hdfs://nn:8020/Projects/demo/Resources/"),
        ("/tmp/x", "hdfs://nn:8020/Projects/demo/tmp/x"),
        ("/Projects", "hdfs://nn:8020/Projects"),
        ("/Projects/demo/x", "hdfs://nn:8020/Projects/demo/x"),
        ("/Projects/other/x", "hdfs://nn:8020/Projects/other/x"),
        ("hdfs://other:8020/x", "hdfs://other:8020/x"),
        ("s3://b/x", "s3://b/x"),
        ("file:///tmp/x", "file:///tmp/x"),
        ("file:/tmp/x", "file:///tmp/x"),
    ],
)
def test_paths_of_a_store(path: str, full: str) -> None:
    project = "hdfs://nn:8020/Projects/demo/"
    assert place.make_absolute(path, project) == full
    assert place.make_absolute(full, project) == full


@pytest.mark.parametrize(
    ("path", "full"),
    [
        ("/Resources", "/home/ann/work/Resources"),
        ("/home/ann/work", "/home/ann/work"),
        ("/home/ann/work/x", "/home/ann/work/x"),
        ("/home/ann/work/../../x", "/home/ann/work/home/ann/work/../../x"),
        ("/home/ann/other/x", "/home/ann/other/x"),
        ("/home/ann", "/home/ann/work/home/ann"),
        ("/etc", "/home/ann/work/etc"),
        ("/", "/home/ann/work/"),
        ("file:///home/ann/work/x", "/home/ann/work/x"),
        ("file:///etc", "file:///etc"),
    ],
)
def test_paths_of_a_folder(path: str, full: str) -> None:
    assert place.make_absolute(path, "/home/ann/work/") == full
    # Below the root everything would be beside the project.
    assert place.make_absolute("/Resources", "/srv/") == "/srv/Resources"
    assert place.make_absolute("/demo/x", "memory://projects/demo/") == "memory://projects/demo/x"


def test_a_leading_slash_is_the_project(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.tfrecords").write_text("rows")
    hdfs.mkdir("/Resources", project="other")
    hdfs.copy_to_hdfs("data.tfrecords", "/Resources", project="other")
    other = project.parent / "other"
    assert (other / "Resources/data.tfrecords").read_text() == "rows"
    assert hdfs.exists("/Resources/data.tfrecords", "other")
    full = str(other / "Resources/data.tfrecords")
    assert hdfs.ls(str(other / "Resources")) == [full] and hdfs.load(full) == b"rows"
    hdfs.dump("x", "/Resources/x")
    assert (project / "Resources/x").read_text() == "x"
    hdfs.delete("/Resources/", recursive=True)
    assert not (project / "Resources").exists()


def test_nothing_outside_is_deleted(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.txt").write_text("precious")
    hdfs.delete(str(outside), recursive=True)
    hdfs.rmr(str(outside))
    hdfs.rmr(str(outside), project="other")
    assert (outside / "precious.txt").read_text() == "precious"
    # Named for what it is, it can be read, and names that were told lead back.
    (found,) = hdfs.ls(f"file://{outside}")
    assert hdfs.load(found) == b"precious" and hdfs.stat(found).st_size == 8
    assert hdfs.isfile(found) and hdfs.access(found, 4) and hdfs.abs_path(found) == found


class Session:
    """A session of Spark, as far as places go."""

    def __init__(self) -> None:
        self.conf = {place.CONF: "/of/the/session"}


def test_a_thread_of_its_own_has_the_same_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own notion of an active session is one of a thread."""
    import pyspark  # noqa: F401 (without it there is none)

    monkeypatch.delenv(place.VARIABLE, raising=False)
    monkeypatch.setattr("sparktrain.embedded.find_session", Session)
    found: list[Any] = []

    def look() -> None:
        found.extend((hdfs.project_path(), type(session.find_active())))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == ["/of/the/session/", Session]


def test_a_thread_finds_the_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(place.VARIABLE, raising=False)
    spark.conf.set(place.CONF, "/of/the/session")
    found: list[str] = []
    try:
        thread = threading.Thread(target=lambda: found.append(hdfs.project_path()))
        thread.start()
        thread.join()
    finally:
        spark.conf.unset(place.CONF)
    assert found == ["/of/the/session/"]
