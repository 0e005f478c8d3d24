"""Events that nodes write: figures of their input, and copies in a store."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.trainer import event_copies
from sparktrain.trainer.event_copies import EventCopies
from sparktrain.trainer.events import describe_epoch, make_event_callbacks


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


class Meter:
    """Ten rows more each time it is looked at."""

    def __init__(self) -> None:
        self._looks = 0

    def to_dict(self) -> dict[str, float]:
        self._looks += 1
        return {"rows": 10 * self._looks, "bytes": 1000, "train_s": self._looks, "wait_s": 0}


def fit_with_events(folder: Path, num_fits: int, kinds: tuple[str, ...] = ()) -> list[int]:
    """Fits with one list of callbacks; how many epochs each took."""
    import keras
    import numpy as np

    context: Any = SimpleNamespace(
        log_dir=str(folder), rank=0, is_chief=True, role="chief", index=0, meter=Meter()
    )
    context.rows_done, context.feed = 0, SimpleNamespace(depth=0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
    callbacks = make_event_callbacks(keras, context, 1, kinds)
    fits = [
        model.fit(x, y, epochs=2, verbose=0, callbacks=callbacks, validation_data=(x, y))
        for _ in range(num_fits)
    ]
    return [len(fit.epoch) for fit in fits]


def test_callbacks_may_be_those_of_two_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit_with_events(tmp_path, 2) == [2, 2]
    assert capsys.readouterr().out == ""
    assert len(list(tmp_path.glob("feed/chief-0/events*"))) == 2


def test_events_that_cannot_be_written_are_told_once_and_end_no_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()  # nothing can be made below it
    logs = tmp_path / "file" / "logs"
    assert fit_with_events(logs, 1, ("graph", "histograms")) == [2]
    out = capsys.readouterr().out
    assert out.count("sparktrain:") == out.count(f"cannot be written to {logs}; training goes") == 1
