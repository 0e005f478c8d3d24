"""The one Spark job of an attempt: a barrier stage whose tasks are the agents."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparktrain.agent.task import SCHEMA, AgentTask
from sparktrain.driver.spark_facts import is_connect
from sparktrain.spec import RunSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Answer:
    """What one node handed back."""

    summary: dict[str, Any]
    value: bytes = field(default=b"", repr=False)


class BarrierJob:
    """Runs in a thread, so that the driver can watch, draw and be interrupted meanwhile.

    Uses the DataFrame API only: it works the same over Spark Connect.
    """

    def __init__(
        self, spark: SparkSession, frame: Any, spec: RunSpec, on_done: Callable[[], None]
    ) -> None:
        from pyspark import InheritableThread

        self._spark = spark
        self._is_connect = is_connect(spark)
        #: The rows of the stage; None for a stage that only counts its nodes.
        self._frame = frame
        self._spec = spec
        self._on_done = on_done
        self._tag = f"sparktrain-{spec.run_id}-{spec.attempt}"
        self._rows: list[Any] = []
        self._cancelled = False
        self._thread = InheritableThread(target=self._work, session=spark)
        self._thread.daemon = True
        #: What Spark raised, once the job is done.
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def join(self, timeout_s: float) -> bool:
        """Whether the job is done within the time."""
        self._thread.join(timeout_s)
        return self.is_done()

    def cancel(self) -> None:
        """Asks Spark to end the job; one that is not submitted yet never will be."""
        self._cancelled = True
        # Spark may be gone itself: then so is the job.
        with contextlib.suppress(Exception):
            if self._is_connect:
                self._spark.interruptTag(self._tag)
            else:
                self._spark.sparkContext.cancelJobGroup(self._tag)

    def is_running(self) -> bool | None:
        """Whether Spark has started the tasks; None over Connect, which does not tell."""
        if self._is_connect:
            return None
        tracker = self._spark.sparkContext.statusTracker()
        for job_id in tracker.getJobIdsForGroup(self._tag):
            job = tracker.getJobInfo(job_id)
            for stage_id in job.stageIds if job is not None else ():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None and stage.numActiveTasks > 0:
                    return True
        return False

    def answers(self) -> list[Answer]:
        """What the nodes handed back, in the order of the nodes."""
        found: list[Answer] = []
        chunks: list[list[bytes]] = []
        for row in sorted(self._rows, key=lambda row: (row.node, row.part)):
            if row.part == 0:
                found.append(Answer(json.loads(bytes(row.payload))))
                chunks.append([])
            else:
                chunks[-1].append(bytes(row.payload))
        for answer, parts in zip(found, chunks, strict=True):
            answer.value = b"".join(parts)
        return found

    def _work(self) -> None:
        num_nodes = len(self._spec.nodes)
        try:
            self._mark()
            if not self._cancelled:
                frame = self._frame
                if frame is None:
                    frame = self._spark.range(0, num_nodes, 1, num_nodes)
                stage = frame.mapInArrow(AgentTask(self._spec), SCHEMA, barrier=True)
                self._rows = stage.collect()
        except Exception as error:
            self.error = error
        finally:
            self._on_done()

    def _mark(self) -> None:
        """Gives the jobs of this thread a name to be cancelled by."""
        if self._is_connect:
            self._spark.addTag(self._tag)
        else:
            self._spark.sparkContext.setJobGroup(self._tag, f"sparktrain run {self._spec.run_id}")
