"""Runs trials: each a run of sparktrain with one node, as many at a time as there are slots.

None holds a slot while it waits for another: each is a single task.
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sparktrain
from hops import gpu_room, outputs, place, stores, util
from hops.hparams import Params, make_names
from hops.node import TrainNode
from hops.parallel import work_all
from hops.records import Record
from hops.session import find_settings
from sparktrain.driver import spark_facts
from sparktrain.driver.interrupt import holding_back_spark
from sparktrain.errors import DeviceError, LaunchError, TrainingError

#: A trial may wait for a slot as long as other jobs have them all.
SLOT_TIMEOUT_S = 30 * 24 * 3600.0
#: A node that is lost with its executor is started again so often.
MAX_RESTARTS = 1


@dataclass
class Trial:
    """One call of the function, and what became of it."""

    params: Params
    name: str
    folder: str
    outputs: dict[str, Any] | None = None
    score: float | None = None
    error: Exception | None = None


@dataclass
class Trials:
    """All trials of an experiment.

    Attributes:
        taken: The hyperparameters that the function takes.
        key: What a search looks at; None outside of searches.
        most: How many rows a call of run() may have; those of the first one if it is not known.
    """

    spark: Any
    record: Record
    train_fn: Callable[..., Any]
    taken: set[str]
    local_logdir: bool = False
    key: str | None = None
    most: int | None = None
    done: list[Trial] = field(default_factory=list)
    _room: gpu_room.GpuRoom | None = None

    def run(self, rows: Sequence[Params], below: str = "") -> list[Trial]:
        """Runs the function with each row, in parallel; failures are recorded, not raised.

        Args:
            below: A folder between that of the experiment and those of the trials.
        """
        folder = posixpath.join(self.record.folder, below) if below else self.record.folder
        names = make_names(rows)
        trials = [
            Trial(row, name, posixpath.join(folder, name) if name else folder)
            for row, name in zip(rows, names, strict=True)
        ]
        env = make_env(self.spark, self.record.project)
        if self._room is None:
            # Once: later, what the trials before computed on may not be seen as free yet.
            most = self.most or len(rows)
            self._room = gpu_room.find_room(self.spark, find_settings(self.spark), most)
        room, is_only = self._room, len(trials) == 1
        settings = {**room.settings, "env": env}
        if not is_only:  # the lines of many at a time would be one muddle
            settings["progress"] = "off"
        with holding_back_spark():
            work_all(
                lambda trial: self._run_one(trial, is_only, settings),
                trials,
                lambda: max(1, count_slots(self.spark) - room.idle),
            )
        self.done += trials
        self.record.write_summary()
        return trials

    def _run_one(self, trial: Trial, is_only: bool, settings: Mapping[str, Any]) -> None:
        run_dir = find_run_dir(self.spark, self.record.id, f"trial-{trial.name}".rstrip("-"))
        self.record.begin_trial(trial.folder, trial.params)
        node = TrainNode(
            train_fn=self.train_fn,
            folder=trial.folder,
            project=self.record.project,
            arguments={name: trial.params[name] for name in trial.params if name in self.taken},
            local_logdir=self.local_logdir,
            key=self.key,
        )

        def run() -> sparktrain.Result:
            return sparktrain.run(
                node,
                num_workers=1,
                spark=self.spark,
                run_dir=run_dir,
                max_restarts=MAX_RESTARTS,
                distribution="none",
                launch_timeout_s=SLOT_TIMEOUT_S,
                **settings,
            )

        try:
            result = gpu_room.run_patiently(run, lambda error: self._tell_wait(trial, error))
            trial.outputs = result.value
            if self.key is not None:
                trial.score = outputs.find_score(result.value, self.key)
        except (TrainingError, LaunchError, DeviceError) as error:
            trial.error = error
        finally:
            keep_logs(run_dir, trial.folder, {"chief-0.log": outputs.LOG})
        self._tell(trial, is_only)

    def _tell_wait(self, trial: Trial, error: Exception) -> None:
        if is_shown(self.spark):
            name = f"{trial.name}: " if trial.name else ""
            print(f"hops: {name}waits for GPUs: {describe(error)}", file=sys.stderr, flush=True)

    def _tell(self, trial: Trial, is_only: bool) -> None:
        error = trial.error
        said = None if error is None else describe(error)
        self.record.end_trial(trial.folder, trial.params, trial.outputs, said, str(error or ""))
        if not is_only and is_shown(self.spark):
            result = f"failed: {said}" if said is not None else trial.outputs
            print(f"hops: {trial.name}: {result}", file=sys.stderr, flush=True)


def describe(error: Exception) -> str:
    """An error in one line."""
    what = error.what if isinstance(error, TrainingError) else str(error)
    return (what.strip().splitlines() or [type(error).__name__])[0]


def count_slots(spark: Any) -> int:
    """How many nodes can run at the same time now; Spark itself keeps back what has no slot yet."""
    slots = spark_facts.count_slots(spark)
    return slots if slots is not None else util.count_executors(spark)


def make_env(spark: Any, project: str, num_ps: int = 0) -> dict[str, str]:
    """What nodes know of the driver."""
    return {
        place.VARIABLE: project,
        util.EXECUTORS: str(util.count_executors(spark)),
        util.SERVERS: str(num_ps),
    }


def is_shown(spark: Any) -> bool:
    return bool(find_settings(spark).progress != "off")


def find_run_dir(spark: Any, experiment: str, name: str) -> str:
    """sparktrain's own folder of a trial, which is a path, wherever the experiment is."""
    return str(Path(find_settings(spark).runs_dir) / experiment / name)


def keep_logs(run_dir: str, folder: str, names: Mapping[str, str]) -> None:
    """Copies what nodes printed to the experiment."""
    for log, name in names.items():
        source = Path(run_dir) / "logs" / log
        target = posixpath.join(folder, name)
        if source.exists():
            stores.put(str(source.absolute()), target)
        else:  # it printed nothing; its outputs name its log all the same
            stores.write(target, "")
