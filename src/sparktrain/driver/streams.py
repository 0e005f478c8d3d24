"""A Structured Streaming query that feeds a cluster: each of its batches is one feed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import threading
from collections.abc import Mapping
from typing import Any

from sparktrain.data.tables import Table
from sparktrain.driver.feed_terms import FeedStoppedError, Terms
from sparktrain.driver.feeds import Feeds
from sparktrain.driver.group import Group
from sparktrain.driver.spark_facts import is_connect
from sparktrain.errors import ConfigError


class StreamFeed:
    """A stream on its way into a cluster.

    A batch is over, and its offsets are in Spark's checkpoint, once functions have taken its
    rows and, if they write checkpoints, have written one. A batch that Spark repeats goes on
    where it was; one that is not over when the stream stops comes again to the next query.

    Attributes:
        query: Spark's own.
        was_stopped: Whether a function wanted no more rows.
    """

    def __init__(
        self,
        group: Group,
        feeds: Feeds,
        table: Table,
        name: str,
        checkpoint: str | os.PathLike[str] | None,
        trigger: Mapping[str, Any] | None,
        terms: Terms,
    ) -> None:
        if is_connect(group.spark):
            raise ConfigError(
                problem="feed() got a stream over Spark Connect, where batches are handed to a"
                " process of the server.",
                advice="Feed it from a driver with a classic session.",
            )
        self._group = group
        self._feeds = feeds
        self._table = table
        self._name = name
        self._terms = terms
        self._is_stopping = threading.Event()
        #: Stands for the query where Spark does not tell which one calls.
        self._own_id = secrets.token_hex(8)
        self.was_stopped = False
        place = os.fspath(checkpoint) if checkpoint else str(group.plan.run_dir / "offsets" / name)
        writer = table.frame.writeStream.foreachBatch(self._feed_batch).option(
            "checkpointLocation", place
        )
        if trigger is not None:
            writer = writer.trigger(**trigger)
        self.query = writer.start()

    def _feed_batch(self, frame: Any, batch: int) -> None:
        table = dataclasses.replace(self._table, frame=frame)
        terms = dataclasses.replace(self._terms, is_stopped=self._is_stopping.is_set)
        query = self._find_query(frame)
        if self._feeds.feed_batch(table, self._name, query, batch, terms):
            self.was_stopped = True
            self._is_stopping.set()
            # Raised, because Spark takes a batch for done otherwise, and the rest of its rows
            # would never come to anybody.
            raise FeedStoppedError

    def _find_query(self, frame: Any) -> str:
        """The same over restarts of a query."""
        context = frame.sparkSession.sparkContext
        return str(context.getLocalProperty("sql.streaming.queryId") or self._own_id)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the stream to end; raises its error, or the cluster's if that is the cause."""
        try:
            if timeout_s is None:
                self.query.awaitTermination()
                return True
            return bool(self.query.awaitTermination(timeout_s))
        except Exception:
            if self._is_stopping.is_set():
                return True
            self._group.check()
            raise

    def stop(self) -> None:
        """Ends the query; the rest of a batch that is on its way comes again to the next one."""
        self._is_stopping.set()
        self._group.hub.wake()
        with contextlib.suppress(Exception):
            self.query.stop()
