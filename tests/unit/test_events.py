"""Events that nodes write: figures of their input, and copies in a store."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sparktrain.trainer import event_copies
from sparktrain.trainer.event_copies import EventCopies
from sparktrain.trainer.events import describe_epoch


def test_figures_of_an_epoch_are_of_that_epoch() -> None:
    before = {"rows": 100, "bytes": 1000, "train_s": 5.0, "wait_s": 1.0}
    now = {"rows": 300, "bytes": 2_001_000, "train_s": 9.0, "wait_s": 2.0}
    assert describe_epoch(before, now, 0, 3) == {
        "rows": 200.0,
        "rows_per_s": 50.0,
        "mb_per_s": 0.5,
        "wait_share": 0.25,
        "queue": 3.0,
    }
    # What was read, but not trained on, is left out.
    trained = describe_epoch(before, now, 100, 3)
    assert (trained["rows"], trained["rows_per_s"], trained["mb_per_s"]) == (100, 25, 0.25)
    assert describe_epoch(now, now, 0, 3) == {}


class Node:
    def __init__(self, folder: Path, role: str) -> None:
        self.log_dir, self.role, self.index = str(folder), role, 0
        self.is_chief = role == "chief"


def test_each_node_copies_its_own_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, store = tmp_path / "logs", tmp_path / "store"
    for name in ("train/a", "feed/chief-0/b", "feed/worker-0/c"):
        (logs / name).parent.mkdir(parents=True, exist_ok=True)
        (logs / name).write_text(name)

    def find() -> list[str]:
        files = [path for path in store.rglob("*") if path.is_file()]
        return sorted(path.relative_to(store).as_posix() for path in files)

    worker = EventCopies(Node(logs, "worker"), f"file://{store}")  # type: ignore[arg-type]
    worker.copy()
    assert find() == ["feed/worker-0/c"]
    chief = EventCopies(Node(logs, "chief"), f"file://{store}")  # type: ignore[arg-type]
    chief.copy()
    assert find() == ["feed/chief-0/b", "feed/worker-0/c", "train/a"]
    (logs / "train/a").write_text("more of it")
    chief.copy()
    assert (store / "train/a").read_text() == "more of it"
    broken = EventCopies(Node(logs, "chief"), "nothing://x")  # type: ignore[arg-type]
    broken.copy()
    broken.copy()
    assert capsys.readouterr().out.count("events are not copied to nothing://x") == 1


def test_a_store_that_hangs_holds_up_no_training_and_the_end_only_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(event_copies, "CLOSE_S", 0.2)
    is_asked, answers = threading.Event(), threading.Event()

    class Hanging(EventCopies):
        def _copy(self) -> None:
            is_asked.set()
            answers.wait(60)

    copies = Hanging(Node(tmp_path, "chief"), "s3://bucket")  # type: ignore[arg-type]
    for _ in range(3):  # epochs
        copies.ask()
    assert is_asked.wait(30)
    copies.close()
    assert "still being copied to s3://bucket after 0.2 s" in capsys.readouterr().out
    answers.set()
    copies._thread.join(30)


def test_what_came_last_is_copied_as_well(tmp_path: Path) -> None:
    logs, store = tmp_path / "logs", tmp_path / "store"
    (logs / "train").mkdir(parents=True)
    copies = EventCopies(Node(logs, "chief"), f"file://{store}")  # type: ignore[arg-type]
    copies.ask()
    (logs / "train/a").write_text("the last one")
    copies.close()
    assert (store / "train/a").read_text() == "the last one"
