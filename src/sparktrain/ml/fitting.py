"""Trains candidates through run(): the run's directory, its slots, and who failed in it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktrain.driver import spark_facts
from sparktrain.driver.run_folder import make_run_id, resolve_run_dir
from sparktrain.errors import SparktrainError, TrainingError
from sparktrain.fit_spec import DONE_FOLDER, Candidate, FitSpec, Fitted
from sparktrain.ml.gate import GATE
from sparktrain.ml.prepare import Prepared
from sparktrain.ml.same_fit import take_up
from sparktrain.settings import env_key, resolve, spark_key
from sparktrain.trainer.fit import fit_candidates, read_fitted
from sparktrain.training import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A model comes back as a value of its run; this is a limit for mistakes, not for models.
MAX_MODEL_BYTES = 8 << 30
#: In a search, jobs of evaluators may hold slots for a while before a run can start.
SEARCH_LAUNCH_S = 3600.0


@dataclass(frozen=True)
class RunWishes:
    """The Params that are for run() itself."""

    num_workers: int
    max_restarts: int
    run_dir: str | None
    env: Mapping[str, str] | None
    settings: Mapping[str, Any] | None
    progress: Any
    tensorboard: bool | str = False


@dataclass(frozen=True)
class Trained:
    """A candidate that is done, with the rows of metrics of its epochs."""

    fitted: Fitted
    history: tuple[Mapping[str, float], ...]
    run_dir: str
    #: What shows its events; empty if that is not known.
    board_command: str = ""


def train(
    spark: SparkSession,
    prepared: Prepared,
    candidates: Sequence[Candidate],
    wishes: RunWishes,
    *,
    is_grid: bool,
    is_beside_others: bool = False,
) -> list[Trained | SparktrainError]:
    """For each candidate what became of it; one that fails does not take others with it.

    Args:
        is_grid: Whether it is a part of a grid search: its run directory is a new one.
        is_beside_others: Whether another run of the search goes on at the same time.
    """
    found: list[Trained | SparktrainError] = []
    is_alone = False
    while len(found) < len(candidates):
        left = candidates[len(found) :][: 1 if is_alone else None]
        with contextlib.ExitStack() as stack:
            folder = _find_folder(spark, wishes, is_grid, stack)
            if not is_grid and folder is not None:
                prepared = take_up(folder, prepared, left)
            settings = _find_settings(spark, wishes, is_grid, is_beside_others)
            if folder is not None and len(left) > 1:
                # A copy of each model: also of a run that fails, once it has been read.
                stack.callback(shutil.rmtree, folder / DONE_FOLDER, ignore_errors=True)
            stack.enter_context(GATE.passing(wishes.num_workers, spark_facts.count_slots(spark)))
            try:
                result = run(
                    fit_candidates,
                    num_workers=wishes.num_workers,
                    args=FitSpec(prepared.spec, tuple(left)),
                    data=dict(prepared.tables),
                    spark=spark,
                    run_dir=folder,
                    max_restarts=wishes.max_restarts,
                    env=wishes.env,
                    tensorboard=wishes.tensorboard,
                    **settings,
                )
            except TrainingError as error:
                if folder is not None and len(left) > 1:
                    if not (folder / DONE_FOLDER).is_dir():
                        # On a disk that is not ours, or it never came so far: each by itself.
                        is_alone = True
                        continue
                    # They train in order: the first that is not done is the one that failed.
                    found += _read_done(folder)[: len(left) - 1]
                found.append(error)
                continue
            found += [
                Trained(
                    fitted,
                    pick_history(result.metrics, number),
                    result.run_dir,
                    result.tensorboard_command,
                )
                for number, fitted in enumerate(result.value, 1)
            ]
    return found


def pick_history(
    metrics: Sequence[Mapping[str, float]], fit: int
) -> tuple[Mapping[str, float], ...]:
    """The rows of one fit of a run; those of the first do not say so."""
    rows = [row for row in metrics if "epoch" in row and row.get("fit", 1) == fit]
    return tuple({name: value for name, value in row.items() if name != "fit"} for row in rows)


def _read_done(folder: Path) -> list[Trained | SparktrainError]:
    """The candidates that a run that failed had done before."""
    rows: list[dict[str, float]] = []
    with contextlib.suppress(FileNotFoundError):
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found: list[Trained | SparktrainError] = []
    while (fitted := read_fitted(folder / DONE_FOLDER / str(len(found)))) is not None:
        found.append(Trained(fitted, pick_history(rows, len(found) + 1), str(folder)))
    return found


def _find_folder(
    spark: SparkSession, wishes: RunWishes, is_grid: bool, stack: contextlib.ExitStack
) -> Path | None:
    """The run directory: the user's for a single fit, a new one below it for others.

    None leaves it to run(); who is to look for what a failed run has done must know it.
    """
    given = dict(wishes.settings or {})
    runs_dir = resolve(given, lambda key: spark_facts.get_conf(spark, key), os.environ).runs_dir
    run_id = make_run_id()
    if wishes.run_dir is None:
        return resolve_run_dir(None, runs_dir, run_id, "fit") if is_grid else None
    folder = resolve_run_dir(wishes.run_dir, runs_dir, run_id, "fit")
    if is_grid or not stack.enter_context(GATE.owning(str(folder))):
        return folder / run_id
    return folder


def _find_settings(
    spark: SparkSession, wishes: RunWishes, is_grid: bool, is_beside_others: bool
) -> dict[str, Any]:
    settings = dict(wishes.settings or {})
    if wishes.progress is not None:
        settings["progress"] = wishes.progress

    def suggest(name: str, value: Any) -> None:
        is_set = spark_facts.get_conf(spark, spark_key(name)) or os.environ.get(env_key(name))
        if not is_set:
            settings.setdefault(name, value)

    suggest("max_result_bytes", MAX_MODEL_BYTES)
    # A search over a Pipeline does not say that it is one: it calls fit from threads of its own.
    is_in_thread = threading.current_thread() is not threading.main_thread()
    if is_grid or is_in_thread or GATE.is_in_use:
        suggest("launch_timeout_s", SEARCH_LAUNCH_S)
    if is_beside_others:
        suggest("progress", "plain")  # two live displays would write over each other
    return settings
