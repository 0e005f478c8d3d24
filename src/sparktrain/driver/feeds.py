"""Feeding a cluster: one Spark job for each epoch of a feed, watched until its rows are taken."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparktrain.agent.failure import find_failure
from sparktrain.agent.feeding import SCHEMA, FeedTask
from sparktrain.data.schema import Column
from sparktrain.data.tables import Table
from sparktrain.driver import failures
from sparktrain.driver.arrow_jobs import map_in_arrow
from sparktrain.driver.feed_terms import Terms, Watch
from sparktrain.driver.group import Group
from sparktrain.driver.tables import name_tables, plan_frame
from sparktrain.driver.tagged import TaggedJob
from sparktrain.errors import ConfigError, SchemaError
from sparktrain.wire.cluster_messages import Flush, Save

TICK_S = 0.1
#: A job that is cancelled may take so long to be gone.
CANCEL_WAIT_S = 20.0
#: How long to wait for the cause, when a task lost its trainer.
CAUSE_WAIT_S = 8.0
#: Of one partition: the node its rows went to, how many, and whether more were wanted.
Came = tuple[str, int, bool]
#: Runs the job of a feed of that name.
Run = Callable[[str], list[Came]]


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
        #: Batches of streams all of whose rows were taken: query -> number of the last.
        self._batches_done: dict[str, int] = {}

    def feed(self, data: Any, epochs: int, name: str, terms: Terms) -> FeedResult:
        """Feeds a DataFrame or an RDD; returns when all its rows are taken."""
        feed = secrets.token_hex(8)
        started = time.monotonic()
        watch = Watch(self._group, terms)
        kept = None
        if _is_rdd(data):
            run = self._plan_rows(data, name)
            if epochs > 1 and not data.is_cached:
                kept = data.persist(_spilling())
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
        passes = [f"{feed}.{epoch}" for epoch in range(epochs)]
        by_node: dict[str, int] = {}
        try:
            was_stopped = self._feed_passes(run, passes, watch)
        finally:
            for one in passes:
                for node, rows in self._group.hub.count_taken(one).items():
                    by_node[node] = by_node.get(node, 0) + rows
                self._group.hub.forget(one)
            if kept is not None:
                kept.unpersist()
        seconds = time.monotonic() - started
        return FeedResult(sum(by_node.values()), by_node, seconds, was_stopped)

    def _feed_passes(self, run: Run, passes: Sequence[str], watch: Watch) -> bool:
        """All epochs; whether a function wanted no more.

        The next epoch begins when the rows of one are brought, not when they are taken: workers
        that train together may be waiting for one that needs rows of the next.
        """
        brought = {}
        for one in passes:
            came = self._bring(run, one, watch)
            if came is None:
                return True
            brought[one] = came
        watch.is_brought = True
        return any(self._wait_until_taken(one, came, watch) for one, came in brought.items())

    def feed_batch(self, wished: Table, name: str, query: str, batch: int, terms: Terms) -> bool:
        """One batch of a stream, up to a checkpoint that has its rows; whether it was stopped.

        What came of a batch that is not over stays known to the trainers: when Spark repeats
        it, also from another query of the same checkpoint, it goes on behind that.
        """
        if batch <= self._batches_done.get(query, -1):
            return False
        known = self._columns.get(name)
        if known is None and wished.frame.isEmpty():
            return False  # nothing tells the lengths of its arrays, and nothing is to be fed
        selected, columns = plan_frame(name, wished, known)
        self._check_columns(name, columns)
        run = self._plan_frame(selected, columns, name)
        feed = f"{query}-{batch}"
        watch = Watch(self._group, terms)
        came = self._bring(run, feed, watch)
        watch.is_brought = True
        if came is None or self._wait_until_taken(feed, came, watch):
            return True
        if self._save(feed, name, watch):
            return True
        self._batches_done[query] = batch
        self._group.hub.forget(feed)
        return False

    def _plan_frame(self, frame: Any, columns: tuple[Column, ...], name: str) -> Run:
        def run(feed: str) -> list[Came]:
            task = FeedTask(self._group.target, feed, name, columns)
            rows = map_in_arrow(frame, task, SCHEMA).collect()
            return [(row.node, row.rows, row.is_wanted) for row in rows]

        return run

    def _plan_rows(self, rdd: Any, name: str) -> Run:
        self._check_columns(name, ())

        def run(feed: str) -> list[Came]:
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

    def _bring(self, run: Run, feed: str, watch: Watch) -> list[Came] | None:
        """One pass over the rows: where they went; None if a function wanted no more."""
        group = self._group
        if watch.is_over():
            return None
        tag = f"sparktrain-{group.plan.run_id}-{feed}"
        title = f"sparktrain cluster {group.plan.run_id}: feed"
        job = TaggedJob(group.spark, lambda: run(feed), tag, title, group.hub.wake)
        job.start()
        try:
            while not job.is_done():
                group.hub.wait(TICK_S)
                if watch.is_over():
                    return None
            if job.error is not None:
                if watch.is_over():
                    return None
                raise self._explain(job.error)
            came: list[Came] = job.value
            if not all(is_wanted for _, _, is_wanted in came) and self._has_enough(watch):
                return None
            return came
        finally:
            job.cancel_and_join(CANCEL_WAIT_S)

    def _explain(self, error: Exception) -> BaseException:
        """What made the job of a feed fail."""
        group = self._group
        failure = find_failure(str(error))
        if failure is None:
            group.check()
            return error
        if failure.kind != "data":  # a trainer that is gone, as a task saw it
            group.wait_for_cause(CAUSE_WAIT_S)
        return failures.to_error(failure, group.record, None)

    def _has_enough(self, watch: Watch) -> bool:
        """A task heard that rows are not wanted; the driver hears why a moment later."""
        deadline = time.monotonic() + CAUSE_WAIT_S
        while time.monotonic() < deadline:
            if watch.is_over():
                return True
            if watch.needs_all and self._group.find_sated():
                return False  # those that still want rows get theirs
            self._group.hub.wait(TICK_S)
        return True

    def _wait_until_taken(self, feed: str, came: list[tuple[str, int, bool]], watch: Watch) -> bool:
        missing: dict[str, int] = {}
        for node, rows, is_wanted in came:
            if is_wanted:
                missing[node] = missing.get(node, 0) + rows
        while True:
            taken = self._group.hub.count_taken(feed)
            late = {node for node, rows in missing.items() if taken.get(node, 0) < rows}
            if not late:
                return False
            if watch.is_over():
                return True
            if late <= self._group.find_sated():  # what is left of theirs is dropped
                return not watch.needs_all
            self._group.hub.wait(TICK_S)

    def _save(self, feed: str, table: str, watch: Watch) -> bool:
        """Has the rows of a feed in a checkpoint; whether a function wanted no more instead."""
        group = self._group
        names = [node.name for node in group.fed]
        for name in names:
            group.hub.ask(Flush(feed, table), name)
        while not all((name, feed) in group.hub.flushed for name in names):
            if watch.is_over():
                return True
            group.hub.wait(TICK_S)
        group.hub.ask(Save(feed), names[0])
        while feed not in group.hub.saved:
            if watch.is_over():
                return True
            group.hub.wait(TICK_S)
        return watch.is_over()


def _is_rdd(data: Any) -> bool:
    return hasattr(data, "mapPartitions") and not hasattr(data, "schema")


def _spilling() -> Any:
    from pyspark import StorageLevel

    return StorageLevel.MEMORY_AND_DISK


def _is_kept(frame: Any) -> bool:
    level = frame.storageLevel
    return bool(level.useMemory or level.useDisk)


def _describe(columns: tuple[Column, ...]) -> str:
    if not columns:
        return "rows of an RDD"
    return ", ".join(f"{column.name} {column.kind}{list(column.shape) or ''}" for column in columns)
