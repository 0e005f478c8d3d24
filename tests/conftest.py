"""Shared by all tests: one embedded Spark for the session, and a leak check after every test."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    # Tests beside these have temporary folders too, which are no leaks of ours.
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="st-")
    os.environ["SPARK_LOCAL_DIRS"] = tempfile.tempdir
    atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)

#: Inherited by every process the tests start, so that orphans are found too.
TAG = "SPARKTRAIN_TEST_SESSION"
os.environ[TAG] = uuid.uuid4().hex
#: What is left may take a moment to go: a killed process is reaped by its parent.
GRACE_S = 8.0


def find_trainers() -> list[psutil.Process]:
    """Trainer processes started by this test session, orphans included."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.status() != psutil.STATUS_ZOMBIE
                and "sparktrain.trainer" in process.cmdline()
                and process.environ().get(TAG) == os.environ[TAG]
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _find_listeners() -> set[int]:
    connections = psutil.Process().net_connections(kind="inet")
    return {entry.laddr.port for entry in connections if entry.status == psutil.CONN_LISTEN}


def _find_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if "sparktrain" in thread.name}


def _find_folders() -> set[str]:
    folders = Path(tempfile.gettempdir()).glob("sparktrain-*")
    # The embedded Spark's own folder stays as long as its process.
    found = {folder.name for folder in folders if not folder.name.startswith("sparktrain-spark-")}
    # Spills are below Spark's local folders, of executors or of a local session.
    executors = "spark-*/executor-*/blockmgr-*"
    for pattern in (executors, f"sparktrain-spark-*/local/{executors}", "blockmgr-*"):
        for spill in Path(tempfile.gettempdir()).glob(f"{pattern}/sparktrain-spill-*"):
            found.add(str(spill))
    return found


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a process, thread, listening port or temporary folder of ours."""
    checks: dict[str, Callable[[], Any]] = {
        "trainers": lambda: {process.pid for process in find_trainers()},
        "threads": _find_threads,
        "folders": _find_folders,
    }
    if "unit" in request.path.parts:
        del checks["trainers"]  # none are started there, and the search takes a while
    before = {name: check() for name, check in checks.items()}
    ports = _find_listeners()
    yield
    deadline = time.monotonic() + GRACE_S
    while True:
        left = {name: check() - before[name] for name, check in checks.items()}
        left["ports"] = _find_listeners() - ports - _SPARK_PORTS
        if not any(left.values()):
            return
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: { {name: what for name, what in left.items() if what} }")
        time.sleep(0.1)


#: What pyspark itself listens on in this process, found when the session was made.
_SPARK_PORTS: set[int] = set()


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The embedded Spark: two executors with one core each."""
    import sparktrain

    os.environ["SPARKTRAIN_RUNS_DIR"] = str(tmp_path_factory.mktemp("runs"))
    session = sparktrain.session()
    session.range(2).collect()  # pyspark opens its accumulators' port with the first job
    # Its other one, for foreachBatch, is opened when first needed and stays as well.
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(session.sparkContext._gateway)
    _SPARK_PORTS.update(_find_listeners())
    yield session
    session.stop()


@pytest.fixture
def spark(spark_session: Any) -> Any:
    """The embedded Spark with both executors up: an earlier test may have killed one."""
    from sparktrain.driver.spark_facts import wait_for_slots

    slots, _ = wait_for_slots(spark_session, 2, 60.0)
    if slots != 2:
        pytest.fail(f"the embedded Spark has {slots} slots, expected 2")
    return spark_session


@pytest.fixture(scope="session")
def fashion_mnist(tmp_path_factory: pytest.TempPathFactory) -> str | None:
    """The folder of Fashion-MNIST's images: Debian's package, installed or unpacked here."""
    if (installed := Path("/usr/share/datasets/fashion-mnist")).exists():
        return str(installed)
    folder = tmp_path_factory.mktemp("fashion")
    package = ["apt-get", "download", "-q", "dataset-fashion-mnist"]
    for command in (package, ["apt-get", "update", "-q"], package):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(command, cwd=folder, timeout=120, check=True, capture_output=True)
        if found := list(folder.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(found[0]), str(folder)], check=True)
            return str(folder / "usr/share/datasets/fashion-mnist")
    print("no package dataset-fashion-mnist to be had: the program trains on handwritten digits")
    return None
