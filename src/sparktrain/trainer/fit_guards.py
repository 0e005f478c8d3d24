"""Callbacks of a fit: a loss that is not a number, the time limit, the best weights."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparktrain.data.views import Ragged, to_numpy
from sparktrain.fit_spec import TRAIN, DataSpec

if TYPE_CHECKING:
    from sparktrain.trainer.context import Context

#: Workers that train together agree on the time every so many steps, and at an epoch's end.
AGREE_EVERY = 32


def make_nan_guard(context: Context, data: DataSpec) -> Any:
    """Ends a fit whose loss is not a number, and says what the columns had."""
    import keras

    class NanGuard(keras.callbacks.Callback):  # type: ignore[misc]
        """Before all others: nothing of such a step is saved."""

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._epoch = epoch + 1

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            loss = (logs or {}).get("loss", 0.0)
            if math.isfinite(loss):
                return
            raise FloatingPointError(
                f"the loss is {loss} in epoch {self._epoch}, step {batch + 1}. What was fed to"
                f" {context.role}:{context.index} so far: {describe_columns(context, data)}. Leave"
                " out rows with NaN, bring columns to a common size (standardize=True), or lower"
                " the learning rate"
            )

    return NanGuard()


def describe_columns(context: Context, data: DataSpec) -> str:
    """The range of every fed column, as far as its rows have come to this worker."""
    found: dict[str, tuple[float, float, int]] = {}
    table: Any = context.feed.find(TRAIN, context.rank)
    for block in table.blocks_here():
        for name, values in to_numpy(block, table.columns).items():
            numbers = values.values if isinstance(values, Ragged) else values
            if name in data.names and numbers.dtype.kind in "fiub" and numbers.size:
                found[name] = _widen(found.get(name), numbers)
    parts = [
        f"{name} from {low:g} to {high:g}" + (f" and {nans} NaN" if nans else "")
        for name, (low, high, nans) in found.items()
    ]
    return ", ".join(parts) or "no numbers"


def _widen(before: tuple[float, float, int] | None, values: Any) -> tuple[float, float, int]:
    is_nan = np.isnan(values) if values.dtype.kind == "f" else np.zeros(1, bool)
    nans = int(is_nan.sum())
    low, high = math.nan, math.nan
    if nans < values.size:
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if before is None:
        return low, high, nans
    return float(np.fmin(before[0], low)), float(np.fmax(before[1], high)), before[2] + nans


def make_time_guard(context: Context, limit_s: float, stopped: dict[str, str]) -> Any:
    """Ends a fit after so many seconds of training: the model is what it has become by then.

    Args:
        stopped: Gets "why" if it did.
    """
    import keras

    class TimeGuard(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            self._until = time.monotonic() + limit_s
            self._steps = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._steps += 1
            if context.num_workers == 1 or self._steps % AGREE_EVERY == 0:
                self._look()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._look()

        def _look(self) -> None:
            is_over = time.monotonic() >= self._until
            if context.num_workers > 1:
                is_over = _agree(context.strategy, is_over)
            if is_over and not stopped:
                stopped["why"] = f"timeLimit of {limit_s:g} s"
                self.model.stop_training = True

    return TimeGuard()


def _agree(strategy: Any, is_over: bool) -> bool:
    """Whether any worker says so: all must take their last step together."""
    import tensorflow as tf

    votes = strategy.run(lambda: tf.constant(float(is_over)))
    return bool(strategy.reduce(tf.distribute.ReduceOp.SUM, votes, axis=None) > 0)


def make_early_stopping(
    context: Context, wishes: Mapping[str, Any], fit: int, stopped: dict[str, str]
) -> Any:
    """Early stopping that goes on where it was when a run is resumed."""
    import keras

    folder = Path(context.checkpoint_dir) / f"fit-{fit}"
    state, weights = folder / "best.json", folder / "best.npz"

    class Best(keras.callbacks.EarlyStopping):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            super().on_train_begin(logs)
            if not (self.model._initial_epoch and state.exists()):
                return
            kept = json.loads(state.read_text())
            if self.restore_best_weights and weights.exists():
                with np.load(weights) as arrays:
                    self.best_weights = [arrays[f"arr_{number}"] for number in range(len(arrays))]
            self.best, self.wait, self.best_epoch = kept["best"], kept["wait"], kept["epoch"]
            if kept["stopped"]:  # nothing is left to train
                self.stopped_epoch = kept["stopped"]
                self._say()
                self.model._initial_epoch = max(self.params["epochs"], 1)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            super().on_epoch_end(epoch, logs)
            if self.stopped_epoch:
                self._say()
            if context.is_chief:
                self._keep(epoch)

        def _say(self) -> None:
            stopped["why"] = f"earlyStopping: no better {self.monitor} for {self.patience}"

        def _keep(self, epoch: int) -> None:
            folder.mkdir(parents=True, exist_ok=True)
            is_new = self.best_epoch == epoch or not weights.exists()
            if is_new and self.best_weights is not None:
                partial = folder / "best.partial.npz"
                np.savez(partial, *self.best_weights)
                partial.replace(weights)
            best = None if self.best is None else float(self.best)
            kept = {"best": best, "wait": self.wait, "epoch": self.best_epoch}
            partial = folder / "best.json.partial"
            partial.write_text(json.dumps({**kept, "stopped": self.stopped_epoch}))
            partial.replace(state)

    return Best(**{"restore_best_weights": True, **wishes})
