"""The folder of an experiment: {project}/Experiments/{application}_{number}.

.experiment.json                what it is, its state, and how it ended
.summary.json                   all trials, with their outputs or errors
{a=1&b=2}/                      a trial, or generation.N/{a=1&b=2}/, or the folder itself:
  .hparams.json .outputs.json .metric output.log    and events, and files that were returned
  .error.txt                    why there are no outputs
"""

from __future__ import annotations

import datetime
import posixpath
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from hops import place, resources, stores
from hops.plain import to_json

FOLDER, HPARAMS, ERROR = "Experiments", ".hparams.json", ".error.txt"
SUMMARY, STATE = ".summary.json", ".experiment.json"

#: One at a time in a process: which folder tensorboard.logdir() means must be clear.
_running = threading.Lock()
_numbers: dict[str, int] = {}


class Record(AbstractContextManager["Record"]):
    """An experiment's folder, from RUNNING to FINISHED, FAILED or KILLED.

    Args:
        kind: What it is: launch, grid_search, and so on.
        about: What else is known of it.
    """

    def __init__(
        self, spark: Any, kind: str, name: str, description: str | None, **about: Any
    ) -> None:
        self.project = place.find_project(spark)
        self.app_id = find_app_id(spark)
        self._resources = resources.find_wished(self.project)
        self._about = {"kind": kind, "name": name, "description": description, **about}
        self._lock = threading.Lock()
        self._trials: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Record:
        if not _running.acquire(blocking=False):
            raise RuntimeError(
                "An experiment is currently running. Wait for it, or call experiment.end() if it"
                " was begun with experiment.begin()."
            )
        try:
            self.id, self.folder = self._find_folder()
            stores.make_folder(self.folder)
            self._about.update(id=self.id, start=_now())
            if kept := resources.keep(self._resources, self.folder):
                self._about["versioned_resources"] = kept
            self._write_state("RUNNING")
        except BaseException:
            _running.release()
            raise
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if self._trials:
                self.write_summary()
            if error is None:
                self._write_state("FINISHED", end=_now())
            else:
                state = "FAILED" if isinstance(error, Exception) else "KILLED"
                said = f"{type(error).__name__}: {error}"[:4000]
                self._write_state(state, end=_now(), error=said)
        finally:
            _running.release()

    def _find_folder(self) -> tuple[str, str]:
        """The next number of this application; another driver may have had some of them."""
        while True:
            number = _numbers[self.app_id] = _numbers.get(self.app_id, 0) + 1
            found = f"{self.app_id}_{number}"
            folder = f"{self.project}{FOLDER}/{found}"
            if not stores.exists(folder):
                return found, folder

    def note(self, **about: Any) -> None:
        """Something more to be known of the experiment when it is over."""
        self._about.update(about)

    def begin_trial(self, folder: str, params: Mapping[str, Any]) -> None:
        stores.make_folder(folder)
        stores.write(posixpath.join(folder, HPARAMS), to_json(dict(params)))

    def end_trial(
        self,
        folder: str,
        params: Mapping[str, Any],
        outputs: Mapping[str, Any] | None,
        error: str | None = None,
        text: str = "",
    ) -> None:
        """What became of a trial: its outputs, or why it has none.

        Args:
            error: In one line.
            text: All that is known of the error.
        """
        if error is not None:
            stores.write(posixpath.join(folder, ERROR), text)
        row = {"parameters": dict(params), "outputs": outputs}
        with self._lock:
            self._trials[folder] = row if error is None else {**row, "error": error}

    def write_summary(self) -> None:
        """All trials so far, in their order by name."""
        with self._lock:
            rows = [self._trials[folder] for folder in sorted(self._trials)]
        stores.write(posixpath.join(self.folder, SUMMARY), to_json({"combinations": rows}))

    def _write_state(self, state: str, **about: Any) -> None:
        values = to_json({**self._about, "state": state, **about}, indent=2)
        stores.write(posixpath.join(self.folder, STATE), f"{values}\n")


def find_app_id(spark: Any) -> str:
    from sparktrain.driver.spark_facts import get_conf, is_connect

    if not is_connect(spark):
        return str(spark.sparkContext.applicationId)
    return get_conf(spark, "spark.app.id") or f"connect-{str(spark.session_id)[:8]}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
