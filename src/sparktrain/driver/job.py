"""The one Spark job of an attempt: a barrier stage whose tasks are the agents."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparktrain.agent.task import SCHEMA, AgentTask
from sparktrain.driver.tagged import TaggedJob
from sparktrain.spec import RunSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Answer:
    """What one node handed back."""

    summary: dict[str, Any]
    value: bytes = field(default=b"", repr=False)


class BarrierJob(TaggedJob):
    """Uses the DataFrame API only: it works the same over Spark Connect.

    Args:
        frame: The rows of the stage; None for a stage that only counts its nodes.
        profile: What its tasks are given; None for what the session says.
    """

    def __init__(
        self,
        spark: SparkSession,
        frame: Any,
        spec: RunSpec,
        on_done: Callable[[], None],
        profile: Any = None,
    ) -> None:
        tag = f"sparktrain-{spec.run_id}-{spec.attempt}"
        title = f"sparktrain run {spec.run_id}"
        super().__init__(spark, self._collect, tag, title, on_done)
        self._frame = frame
        self._spec = spec
        self._profile = profile

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
        for row in sorted(self.value or [], key=lambda row: (row.node, row.part)):
            if row.part == 0:
                found.append(Answer(json.loads(bytes(row.payload))))
                chunks.append([])
            else:
                chunks[-1].append(bytes(row.payload))
        for answer, parts in zip(found, chunks, strict=True):
            answer.value = b"".join(parts)
        return found

    def _collect(self) -> list[Any]:
        frame = self._frame
        if frame is None:
            num_nodes = len(self._spec.nodes)
            frame = self._spark.range(0, num_nodes, 1, num_nodes)
        task = AgentTask(self._spec)
        rows: list[Any] = frame.mapInArrow(
            task, SCHEMA, barrier=True, profile=self._profile
        ).collect()
        return rows
