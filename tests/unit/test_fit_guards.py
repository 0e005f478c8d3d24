"""Early stopping that goes on behind a restart: the best value, the patience, the best weights."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparktrain.trainer.checkpoint import make_checkpoint_callback
from sparktrain.trainer.fit_guards import make_early_stopping

keras = pytest.importorskip("keras")
#: The value that is looked at, by epoch: the second one is the best, three later it is over.
VALUES = [5.0, 3.0, 4.0, 4.5, 4.2, 1.0, 1.0, 1.0]
BEST, LAST = 1, 4


class Script(keras.callbacks.Callback):  # type: ignore[misc]
    """Says what the value of an epoch is, keeps its weights, and is killed where it is told."""

    def __init__(self, killed_at: int | None) -> None:
        super().__init__()
        self.killed_at = killed_at
        self.seen: dict[int, Any] = {}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == self.killed_at:
            raise ConnectionError("killed")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["value"] = VALUES[epoch]
        self.seen[epoch] = find_weights(self.model)


def find_weights(model: Any) -> Any:
    return np.concatenate([one.ravel() for one in model.get_weights()])


def fit(folder: Path, killed_at: int | None = None, **wishes: Any) -> tuple[Any, Script, str]:
    """A node's attempt: a new model each time, as behind a restart."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    context: Any = SimpleNamespace(
        checkpoint_dir=str(folder), is_chief=True, stores=None, stream=None
    )
    stopped: dict[str, str] = {}
    script = Script(killed_at)
    wishes = {"monitor": "value", "mode": "min", "patience": 3, **wishes}
    callbacks = [
        script,
        make_checkpoint_callback(keras, context, 1, "epoch"),
        make_early_stopping(context, wishes, 1, stopped),
    ]
    rows = np.random.default_rng(0).normal(size=(32, 2)).astype("float32")
    with contextlib.suppress(ConnectionError):
        model.fit(
            rows,
            rows.sum(axis=1),
            batch_size=8,
            epochs=len(VALUES),
            shuffle=False,
            verbose=0,
            callbacks=callbacks,
        )
    return model, script, stopped.get("why", "")


@pytest.mark.parametrize("killed_at", [1, 2, 3, 4])
def test_it_stops_behind_a_restart_where_it_would_have_stopped(
    tmp_path: Path, killed_at: int
) -> None:
    whole, script, why = fit(tmp_path / "whole")
    assert sorted(script.seen) == list(range(LAST + 1)) and "no better value for 3" in why
    np.testing.assert_array_equal(find_weights(whole), script.seen[BEST])
    _, before, why = fit(tmp_path / "two", killed_at)
    assert sorted(before.seen) == list(range(killed_at)) and not why
    model, after, why = fit(tmp_path / "two")
    assert sorted(after.seen) == list(range(killed_at, LAST + 1)) and "no better value" in why
    np.testing.assert_array_equal(find_weights(model), find_weights(whole))


def test_what_was_over_stays_over(tmp_path: Path) -> None:
    """A node that is lost behind the last epoch: nothing is trained again, the reason is kept."""
    first, _, why = fit(tmp_path)
    model, script, again = fit(tmp_path)
    assert not script.seen and again == why != ""
    np.testing.assert_array_equal(find_weights(model), find_weights(first))


def test_the_last_weights_are_kept_if_asked(tmp_path: Path) -> None:
    model, script, _ = fit(tmp_path, restore_best_weights=False)
    np.testing.assert_array_equal(find_weights(model), script.seen[LAST])
    again, script, _ = fit(tmp_path, restore_best_weights=False)
    assert not script.seen
    np.testing.assert_array_equal(find_weights(again), find_weights(model))
