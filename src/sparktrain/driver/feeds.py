"""Feeding a cluster: one Spark job for each epoch of a feed, watched until its rows are taken."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparktrain.agent.failure import find_failure
from sparktrain.agent.feeding import SCHEMA, FeedTask
from sparktrain.data.schema import Column
from sparktrain.data.tables import Table
from sparktrain.driver import failures
from sparktrain.driver.group import Group
from sparktrain.driver.tables import name_tables, plan_frame
from sparktrain.driver.tagged import TaggedJob
from sparktrain.errors import ConfigError, SchemaError

TICK_S = 0.1
#: A job that is cancelled may take so long to be gone.
CANCEL_WAIT_S = 20.0
#: How long to wait for the cause, when a task lost its trainer.
CAUSE_WAIT_S = 8.0


@dataclass(frozen=True)
class FeedResult:
    """What became of a feed.

    Attributes:
        rows: Rows that functions have taken, over all epochs.
        by_node: The same, by node.
        seconds: From the call to the end.
        was_stopped: Whether a function wanted no more rows.
    """

    rows: int
    by_node: Mapping[str, int]
    seconds: float
    was_stopped: bool


class Feeds:
    """All feeds of one cluster."""

    def __init__(self, group: Group) -> None:
        self._group = group
        #: The columns of each table, once it was fed.
        self._columns: dict[str, tuple[Column, ...]] = {}

    def feed(
        self,
        data: Any,
        epochs: int,
        name: str,
        timeout_s: float | None,
        idle_timeout_s: float | None = None,
    ) -> FeedResult:
        """Feeds a DataFrame or an RDD; returns when all its rows are taken."""
        feed = secrets.token_hex(8)
        started = time.monotonic()
        limit = _Limit(self._group, timeout_s, idle_timeout_s)
        if _is_rdd(data):
            run = self._plan_rows(data, name)
            kept = None
        else:
            table = name_tables({name: data})[name]
            if not isinstance(table, Table):
                raise ConfigError(
                    problem=f"feed() got {type(data).__name__}.",
                    advice="Expected a DataFrame, sparktrain.table(df, ...) or an RDD. Files are"
                    " read by the nodes themselves: st.cluster(data=...).",
                )
            frame, columns = plan_frame(name, table)
            self._check_columns(name, columns)
            # Later epochs must not compute the rows again.
            kept = frame.persist() if epochs > 1 and not _is_kept(frame) else None
            run = self._plan_frame(frame, columns, name)
        by_node: dict[str, int] = {}
        was_stopped = False
        try:
            for epoch in range(epochs):
                was_stopped = self._feed_once(run, f"{feed}.{epoch}", by_node, limit)
                if was_stopped:
                    break
        finally:
            if kept is not None:
                kept.unpersist()
        seconds = time.monotonic() - started
        return FeedResult(sum(by_node.values()), by_node, seconds, was_stopped)

    def feed_batch(self, frame: Any, name: str, feed: str) -> bool:
        """One batch of a stream; whether it was stopped."""
        table = name_tables({name: frame})[name]
        if not isinstance(table, Table):
            raise TypeError(type(table).__name__)
        selected, columns = plan_frame(name, table, self._columns.get(name))
        self._check_columns(name, columns)
        run = self._plan_frame(selected, columns, name)
        return self._feed_once(run, feed, {}, _Limit(self._group))

    def _plan_frame(
        self, frame: Any, columns: tuple[Column, ...], name: str
    ) -> Callable[[str], list[tuple[str, int, bool]]]:
        def run(feed: str) -> list[tuple[str, int, bool]]:
            task = FeedTask(self._group.target, feed, name, columns)
            rows = frame.mapInArrow(task, SCHEMA).collect()
            return [(row.node, row.rows, row.is_wanted) for row in rows]

        return run

    def _plan_rows(self, rdd: Any, name: str) -> Callable[[str], list[tuple[str, int, bool]]]:
        self._check_columns(name, ())

        def run(feed: str) -> list[tuple[str, int, bool]]:
            task = FeedTask(self._group.target, feed, name)
            return list(rdd.mapPartitions(task.feed_rows).collect())

        return run

    def _check_columns(self, name: str, columns: tuple[Column, ...]) -> None:
        """Every feed of a table has the columns of the first."""
        if name not in self._columns:
            self._columns[name] = columns
            self._group.hub.announce(name, columns)
        known = self._columns[name]
        if known != columns:
            raise SchemaError(
                table=name,
                column="",
                problem=f"The cluster is fed {_describe(known)} under this name, and this feed"
                f" has {_describe(columns)}.",
                advice="Select the same columns, or feed it under another name=.",
            )

    def _feed_once(
        self,
        run: Callable[[str], list[tuple[str, int, bool]]],
        feed: str,
        by_node: dict[str, int],
        limit: _Limit,
    ) -> bool:
        """One pass over the rows; whether a function wanted no more."""
        group = self._group
        group.check()
        if group.has_enough():
            return True
        tag = f"sparktrain-{group.plan.run_id}-{feed}"
        title = f"sparktrain cluster {group.plan.run_id}: feed"
        job = TaggedJob(group.spark, lambda: run(feed), tag, title, group.hub.wake)
        job.start()
        try:
            was_stopped = self._watch(job, limit)
            if not was_stopped:
                was_stopped = self._wait_until_taken(feed, job.value, limit)
        finally:
            if not job.is_done():
                job.cancel()
                job.join(CANCEL_WAIT_S)
            taken = {node: rows for (node, one), rows in group.hub.taken.items() if one == feed}
            for node, rows in taken.items():
                by_node[node] = by_node.get(node, 0) + rows
            group.hub.forget(feed)
        return was_stopped

    def _watch(self, job: TaggedJob, limit: _Limit) -> bool:
        """Returns when the job is over; whether because a function wanted no more."""
        group = self._group
        while not job.is_done():
            group.hub.wait(TICK_S)
            group.check()
            if group.has_enough():
                return True
            limit.check()
        if job.error is not None:
            if group.has_enough():
                return True
            failure = find_failure(str(job.error))
            if failure is not None and failure.kind == "data":
                raise failures.to_error(failure, group.record, None) from None
            if failure is not None:  # a trainer that is gone, as a task saw it
                group.wait_for_cause(CAUSE_WAIT_S)
                raise failures.to_error(failure, group.record, None) from job.error
            group.check()
            raise job.error
        return not all(is_wanted for _, _, is_wanted in job.value)

    def _wait_until_taken(
        self, feed: str, came: list[tuple[str, int, bool]], limit: _Limit
    ) -> bool:
        group = self._group
        missing: dict[str, int] = {}
        for node, rows, _ in came:
            missing[node] = missing.get(node, 0) + rows
        while True:
            taken = group.hub.taken
            if all(taken.get((node, feed), 0) >= rows for node, rows in missing.items()):
                return False
            group.check()
            if group.has_enough():
                return True
            limit.check()
            group.hub.wait(TICK_S)


class _Limit:
    """How long a feed may take: in all, and without any row being taken."""

    def __init__(
        self, group: Group, timeout_s: float | None = None, idle_timeout_s: float | None = None
    ) -> None:
        self._group = group
        self._timeout_s = timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._started = self._moved = time.monotonic()
        self._taken = 0

    def check(self) -> None:
        now = time.monotonic()
        taken = self._group.hub.num_taken
        if taken != self._taken:
            self._taken, self._moved = taken, now
        if self._timeout_s is not None and now - self._started > self._timeout_s:
            raise self._make_error(f"The rows were not taken within timeout_s={self._timeout_s:g}")
        if self._idle_timeout_s is not None and now - self._moved > self._idle_timeout_s:
            raise self._make_error(f"No row was taken for {self._idle_timeout_s:g} s")

    def _make_error(self, what: str) -> TimeoutError:
        return TimeoutError(
            f"{what}. The functions of the cluster may be busy, or not ask for rows: their last"
            f" lines are in {self._group.plan.run_dir / 'logs'}."
        )


def _is_rdd(data: Any) -> bool:
    return hasattr(data, "mapPartitions") and not hasattr(data, "schema")


def _is_kept(frame: Any) -> bool:
    level = frame.storageLevel
    return bool(level.useMemory or level.useDisk)


def _describe(columns: tuple[Column, ...]) -> str:
    if not columns:
        return "rows of an RDD"
    return ", ".join(f"{column.name} {column.kind}{list(column.shape) or ''}" for column in columns)
