"""Refusals before and while nodes come up: slots, dynamic allocation, versions, modules."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st

ALONE: dict[str, Any] = {"distribution": "none", "progress": False}


def test_too_few_slots(spark: Any, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(st.ResourceError) as caught:
        run = tmp_path / "run"
        st.run(lambda ctx: 1, num_workers=3, spark=spark, run_dir=run, slot_wait_s=1, **ALONE)
    assert time.monotonic() - started < 5.0
    assert (caught.value.needed, caught.value.slots) == (3, 2)
    assert "needs 3 task slots" in str(caught.value) and "has 2" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_evaluator_needs_a_slot(spark: Any) -> None:
    with pytest.raises(st.ResourceError, match="needs 3 task slots"):
        st.run(lambda ctx: 1, num_workers=2, evaluator=True, spark=spark, slot_wait_s=0, **ALONE)


@pytest.mark.slow
def test_slots_held_by_another_job(spark: Any, tmp_path: Path) -> None:
    """There are enough slots, but they are busy: no silent wait of minutes."""
    import threading

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        for batch in batches:
            (tmp_path / f"held-{batch.column('id')[0]}").touch()
            time.sleep(30)
            yield batch

    other = threading.Thread(
        target=lambda: spark.range(0, 2, 1, 2).mapInArrow(hold, "id long").collect()
    )
    other.start()
    try:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("held-*"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(st.LaunchError, match=r"Only 0 of 2 nodes.*other jobs"):
            st.run(
                lambda ctx: 1,
                num_workers=2,
                spark=spark,
                run_dir=tmp_path / "run",
                launch_timeout_s=3,
                **ALONE,
            )
    finally:
        other.join()


def put_strange_keras(batches: Iterator[Any]) -> Iterator[Any]:
    """Makes one executor believe that it has another Keras: its work folder is searched first."""
    from pyspark import BarrierTaskContext

    yield from batches
    if BarrierTaskContext.get().partitionId() == 0:
        folder = Path.cwd() / "keras-0.0.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: keras\nVersion: 0.0.1\n")


def remove_strange_keras(batches: Iterator[Any]) -> Iterator[Any]:
    import shutil

    yield from batches
    shutil.rmtree(Path.cwd() / "keras-0.0.1.dist-info", ignore_errors=True)


def on_all_executors(spark: Any, function: Any) -> None:
    function.__module__ = "__main__"  # travels by value
    spark.range(0, 2, 1, 2).mapInArrow(function, "id long", barrier=True).collect()


def test_different_versions_are_named(spark: Any, tmp_path: Path) -> None:
    on_all_executors(spark, put_strange_keras)
    try:
        with pytest.raises(st.VersionMismatchError) as caught:
            st.run(lambda ctx: 1, num_workers=2, spark=spark, run_dir=tmp_path, **ALONE)
    finally:
        on_all_executors(spark, remove_strange_keras)
    keras = caught.value.differences["keras"]
    assert "0.0.1" in keras and len(keras) == 2
    text = str(caught.value)
    assert "keras: " in text and "0.0.1 on " in text and "chief:0" in text and "worker:0" in text


def test_another_version_than_the_drivers_is_named(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktrain.driver.plan.__version__", "0.0.1")
    with pytest.raises(st.VersionMismatchError) as caught:
        st.run(lambda ctx: 1, num_workers=1, spark=spark, run_dir=tmp_path, **ALONE)
    assert list(caught.value.differences) == ["sparktrain"]
    holders = caught.value.differences["sparktrain"]
    found = {version: list(nodes) for version, nodes in holders.items()}
    assert found == {"0.0.1": ["driver"], st.__version__: ["chief:0"]}


def test_bad_arguments_start_nothing(spark: Any, tmp_path: Path) -> None:
    for wrong, pattern in (
        ({"num_workers": 0}, "num_workers=0"),
        ({"num_workers": 2.0}, "num_workers=2.0"),
        ({"num_workers": 1, "max_restarts": -1}, "max_restarts=-1"),
        ({"num_workers": 1, "timeout_s": 0}, "timeout_s=0"),
        ({"num_workers": 1, "env": {"A": 1}}, "env"),
        ({"num_workers": 1, "no_such_setting": 1}, "no_such_setting"),
        ({"num_workers": 1, "run_dir": "s3://bucket/run"}, "s3://bucket/run"),
    ):
        with pytest.raises(st.ConfigError, match=pattern):
            st.run(lambda ctx: 1, spark=spark, **wrong)
