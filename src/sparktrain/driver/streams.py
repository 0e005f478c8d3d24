"""A Structured Streaming query that feeds a cluster: each of its batches is one feed."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from typing import Any

from sparktrain.driver.feeds import Feeds
from sparktrain.driver.group import Group
from sparktrain.driver.spark_facts import is_connect
from sparktrain.errors import ConfigError


class StreamFeed:
    """A stream on its way into a cluster.

    A batch is over, and its offsets are in Spark's checkpoint, once functions have taken its
    rows. A batch that Spark repeats goes on where it was.

    Attributes:
        query: Spark's own.
    """

    def __init__(
        self,
        group: Group,
        feeds: Feeds,
        frame: Any,
        name: str,
        checkpoint: str | os.PathLike[str] | None,
        trigger: Mapping[str, Any] | None,
    ) -> None:
        if is_connect(group.spark):
            raise ConfigError(
                problem="feed() got a stream over Spark Connect, where batches are handed to a"
                " process of the server.",
                advice="Feed it from a driver with a classic session.",
            )
        self._group = group
        self._feeds = feeds
        self._name = name
        self._done: set[str] = set()
        self._lock = threading.Lock()
        self.was_stopped = False
        place = os.fspath(checkpoint) if checkpoint else str(group.plan.run_dir / "offsets" / name)
        writer = frame.writeStream.foreachBatch(self._feed_batch).option(
            "checkpointLocation", place
        )
        if trigger is not None:
            writer = writer.trigger(**trigger)
        self.query = writer.start()

    def _feed_batch(self, frame: Any, batch: int) -> None:
        feed = f"{self.query_id(frame)}-{batch}"
        with self._lock:
            if feed in self._done or self.was_stopped:
                return
        was_stopped = self._feeds.feed_batch(frame, self._name, feed)
        with self._lock:
            self._done.add(feed)
            if was_stopped:
                self.was_stopped = True
                threading.Thread(target=self.stop, daemon=True).start()

    def query_id(self, frame: Any) -> str:
        """The same over restarts of a query."""
        context = frame.sparkSession.sparkContext
        return str(context.getLocalProperty("sql.streaming.queryId") or "stream")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the stream to end; raises its error, or the cluster's if that is the cause."""
        try:
            if timeout_s is None:
                self.query.awaitTermination()
                return True
            return bool(self.query.awaitTermination(timeout_s))
        except Exception:
            if self.was_stopped:
                return True
            self._group.check()
            raise

    def stop(self) -> None:
        """Ends the query; rows that are on their way are not waited for."""
        with contextlib.suppress(Exception):
            self.query.stop()
