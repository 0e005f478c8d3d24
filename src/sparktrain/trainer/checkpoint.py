"""The resume callback: one checkpoint at a time, complete or not there, read by all workers.

    checkpoints/fit-1/                  one folder for each call of ctx.callbacks()
      latest.json                     {"epoch": 3, "file": ...}: epochs that are done
      epoch-3-1794839.weights.h5      weights and optimizer state
      rank-1.json                     {"epoch": 2}: of a worker that does not wait for the others

Keras' own BackupAndRestore lets every worker write the same file, in place: a worker killed
while writing leaves nothing to go on from. Here only the chief writes, a new file each time,
and `latest.json` is replaced in one step. The checkpoint of a finished fit stays until the run is
complete: a node that is lost while the function evaluates or saves does not cost the training.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktrain.errors import ConfigError

if TYPE_CHECKING:
    from sparktrain.trainer.context import Context

LATEST = "latest.json"


def make_checkpoint_callback(keras: Any, context: Context, fit: int, save_freq: Any) -> Any:
    """An instance for the given Keras and the fit of that number."""
    is_steps = isinstance(save_freq, int) and not isinstance(save_freq, bool) and save_freq > 0
    if save_freq != "epoch" and not is_steps:
        raise ConfigError(
            problem=f"ctx.callbacks() got save_freq={save_freq!r}.",
            advice="Expected 'epoch' or a number of steps above zero.",
        )
    #: With parameter servers, each worker has epochs of its own.
    is_alone = context.stores is not None and not context.is_chief
    if keras.Model.__module__.startswith("tf_keras"):
        # Knows about several workers itself, if they train together.
        own = f"-rank-{context.rank}" if is_alone else ""
        folder = str(Path(context.checkpoint_dir) / f"fit-{fit}{own}")
        return keras.callbacks.BackupAndRestore(folder, save_freq=save_freq)

    class Checkpoint(keras.callbacks.Callback):  # type: ignore[misc]
        """Restores at the beginning of fit, saves at the end of epochs or every few steps."""

        def __init__(self) -> None:
            super().__init__()
            self._folder = Path(context.checkpoint_dir) / f"fit-{fit}"
            self._epoch = 0
            self._steps = 0
            self._lock = threading.Lock()
            self._saves = context.stream.saves if context.stream is not None else None
            if self._saves is not None:
                self._saves.expect_fit()

        def on_train_begin(self, logs: Any = None) -> None:
            self._restore()
            if self._saves is not None:
                # Several steps at once cannot be counted, nor interrupted.
                is_counted = self.model.steps_per_execution == 1
                self._saves.begin_fit(self._save if is_counted else None)

        def _restore(self) -> None:
            latest = read_latest(self._folder)
            if latest is None:
                if is_alone:
                    self.model._initial_epoch = self._find_own_epoch()
                return
            if not self.model.built:
                raise ConfigError(
                    problem=f"The model {self.model.name!r} has no input shape yet, so the"
                    f" checkpoint {latest['file']} cannot be loaded into it.",
                    advice="Give it a keras.Input, or call model.build(...) before fit.",
                )
            optimizer = self.model.optimizer
            if optimizer is not None and not optimizer.built:
                optimizer.build(self.model.trainable_variables)
            latest = self._load(latest)
            # As BackupAndRestore does it: fit starts with this epoch.
            self.model._initial_epoch = self._find_own_epoch() if is_alone else latest["epoch"]
            if context.is_chief:
                print(f"sparktrain: resumed behind epoch {latest['epoch']}")

        def _find_own_epoch(self) -> int:
            note = read_latest(self._folder, f"rank-{context.rank}.json")
            return int(note["epoch"]) if note is not None else 0

        def _load(self, latest: dict[str, Any]) -> dict[str, Any]:
            """Loads a checkpoint; returns which. Where workers do not wait for each other, the
            chief may have replaced it a moment ago.
            """
            while True:
                try:
                    self.model.load_weights(str(self._folder / latest["file"]))
                except OSError:
                    newer = read_latest(self._folder)
                    if newer is None or newer == latest:
                        raise
                    latest = newer
                else:
                    return latest

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._steps += 1
            if self._saves is not None:
                self._saves.steps_done(1)
                self._saves.check()
            if is_steps and self._steps % save_freq == 0:
                self._save()

        def on_test_begin(self, logs: Any = None) -> None:
            if self._saves is not None:
                self._saves.test(True)

        def on_test_end(self, logs: Any = None) -> None:
            if self._saves is not None:
                self._saves.test(False)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._epoch = epoch

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._epoch = epoch + 1
            self._save()

        def on_train_end(self, logs: Any = None) -> None:
            self.model._initial_epoch = 0  # a later fit of this model starts with its first epoch
            if self._saves is not None:
                self._saves.end_fit()
                # The next cluster in this run directory goes on with these weights: on other
                # rows, for all epochs of its own.
                self._epoch = 0
                self._save()

        def _save(self) -> None:
            if is_alone:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._replace(f"rank-{context.rank}.json", {"epoch": self._epoch})
            if not context.is_chief:
                return
            with self._lock:  # the driver may ask for one at any time
                self._write()

        def _write(self) -> None:
            self._folder.mkdir(parents=True, exist_ok=True)
            # A new name each time: the checkpoint in use is never written over.
            name = f"epoch-{self._epoch}-{time.time_ns()}.weights.h5"
            self.model.save_weights(str(self._folder / name))
            self._replace(LATEST, {"epoch": self._epoch, "file": name})
            for old in self._folder.glob("*.weights.h5"):
                if old.name != name:
                    old.unlink(missing_ok=True)

        def _replace(self, name: str, values: dict[str, Any]) -> None:
            partial = self._folder / f"{name}.partial"
            partial.write_text(json.dumps(values))
            partial.replace(self._folder / name)

    return Checkpoint()


def read_latest(folder: Path, name: str = LATEST) -> dict[str, Any] | None:
    """The last complete checkpoint, if there is one."""
    try:
        latest: dict[str, Any] = json.loads((folder / name).read_text())
    except FileNotFoundError:
        return None
    return latest
