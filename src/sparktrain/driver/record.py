"""The run directory: created and checked first, then written as the run goes.

run.json          what runs: id, function, nodes, settings, versions
logs/chief-0.log  all a node printed, of all attempts
metrics.jsonl     every row of metrics as it arrived
result.json       how it ended
checkpoints/  tensorboard/  model.keras         written by the chief
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import platform
import shutil
import warnings
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from sparktrain.driver import state
from sparktrain.driver.plan import Plan
from sparktrain.errors import TAIL_LINES, RunDirError
from sparktrain.spec import RUN_FILE
from sparktrain.version import __version__

METRICS_FILE, RESULT_FILE = "metrics.jsonl", "result.json"


class RunRecord:
    """Owns the files the driver writes; use as a context manager."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._logs: dict[str, TextIO] = {}
        self._tails: dict[str, deque[str]] = {}
        self._broken = False
        #: Of the unfinished run that this one goes on with.
        self.earlier_metrics: list[dict[str, float]] = []

    def __enter__(self) -> RunRecord:
        folder = self._plan.run_dir
        try:
            (folder / "logs").mkdir(parents=True, exist_ok=True)
            self._look_back(folder)
            (folder / RUN_FILE).write_text(json.dumps(self._describe(), indent=2) + "\n")
        except OSError as error:
            raise RunDirError(
                problem=f"The run directory {folder} cannot be written:"
                f" {type(error).__name__}: {error.strerror or error}.",
                advice="Give run_dir=, or set spark.sparktrain.runsDir, to a folder that you may"
                " write to.",
            ) from error
        return self

    def __exit__(self, *exc: object) -> None:
        for stream in self._logs.values():
            with contextlib.suppress(OSError):
                stream.close()

    def _look_back(self, folder: Path) -> None:
        """Takes over from an unfinished run; starts anew behind a finished one."""
        result, metrics = folder / RESULT_FILE, folder / METRICS_FILE
        with contextlib.suppress(FileNotFoundError, ValueError):
            if json.loads(result.read_text())["ok"]:
                metrics.unlink(missing_ok=True)
        result.unlink(missing_ok=True)
        rows: tuple[Mapping[str, float], ...] = ()
        with contextlib.suppress(FileNotFoundError, ValueError):
            for line in metrics.read_text().splitlines():
                rows = state.add_metrics(rows, json.loads(line))
        # Rows without an epoch belong to a run that will report them again.
        self.earlier_metrics = [dict(row) for row in rows if "epoch" in row]

    def remove_checkpoints(self) -> None:
        """What ctx.callbacks() saved is of no use once a run is complete; the user's own stays."""
        folder = self._plan.run_dir / "checkpoints"
        for fit in folder.glob("fit-*"):
            shutil.rmtree(fit, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.rmdir()

    def log_path(self, node: str) -> Path:
        return self._plan.run_dir / "logs" / f"{node.replace(':', '-')}.log"

    def add_lines(self, node: str, lines: Iterable[str], dropped: int = 0) -> list[str]:
        """Writes lines to the node's log; returns them with a note of those that are missing."""
        written = list(lines)
        if dropped:
            note = f"sparktrain: {dropped} lines are missing here; the link could not take them"
            written.insert(0, note)
        self._tails.setdefault(node, deque(maxlen=TAIL_LINES)).extend(written)
        if written:
            self._guard(self._append_log, node, written)
        return written

    def tail(self, node: str) -> tuple[str, ...]:
        """The last lines of a node that reached the driver."""
        return tuple(self._tails.get(node, ()))

    def add_metrics(self, row: Mapping[str, float]) -> None:
        self._guard(self._append_metrics, row)

    def finish(self, values: Mapping[str, Any]) -> None:
        self._guard(self._write_result, values)

    def _append_log(self, node: str, lines: list[str]) -> None:
        if node not in self._logs:
            self._logs[node] = self.log_path(node).open("a", encoding="utf-8", errors="replace")
        self._logs[node].write("\n".join(lines) + "\n")
        self._logs[node].flush()

    def _append_metrics(self, row: Mapping[str, float]) -> None:
        with (self._plan.run_dir / METRICS_FILE).open("a") as stream:
            stream.write(json.dumps(_strict(row)) + "\n")

    def _write_result(self, values: Mapping[str, Any]) -> None:
        (self._plan.run_dir / RESULT_FILE).write_text(json.dumps(_strict(values), indent=2) + "\n")

    def _guard(self, write: Any, *args: Any) -> None:
        # A disk that fills up must not end a run that is otherwise well.
        if not self._broken:
            try:
                write(*args)
            except OSError as error:
                self._broken = True
                warnings.warn(
                    f"sparktrain cannot write to {self._plan.run_dir} any more ({error}): the run"
                    " goes on without its logs.",
                    stacklevel=2,
                )

    def _describe(self) -> dict[str, Any]:
        plan = self._plan
        return {
            "run_id": plan.run_id,
            "function": plan.function_name,
            "nodes": [node.name for node in plan.nodes],
            "max_restarts": plan.max_restarts,
            "timeout_s": plan.timeout_s,
            "settings": dataclasses.asdict(plan.settings),
            "versions": {"sparktrain": __version__, "python": platform.python_version()},
        }


def _strict(value: Any) -> Any:
    """Without NaN and infinity, which strict readers of JSON refuse."""
    if isinstance(value, Mapping):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
