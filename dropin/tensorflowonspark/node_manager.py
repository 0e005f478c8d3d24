"""ctx.mgr: the node's feeds by name, its queues as the old library had them, and a few values."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable
from typing import Any

from tensorflowonspark.marker import EndPartition
from tensorflowonspark.node_feed import Answers, NodeFeed

#: Queues that no rows go through.
_OWN = ("control", "error")
STATE = "state"
TERMINATING = "terminating"


class Text(str):
    """A text of the manager: str() of it has quotes, as that of the old library's proxies."""

    __slots__ = ()

    def __str__(self) -> str:
        return repr(self._getvalue())

    def _getvalue(self) -> str:
        return str.__str__(self)


class NodeManager:
    """The node's end of the feeds, and a few values by name.

    Args:
        context: sparktrain's own, whose stream the rows come by.
        queues: Names of queues there are.
    """

    def __init__(self, context: Any, queues: Iterable[str] = ("input", "output", "error")) -> None:
        self.context = context
        self.stream = context.stream
        self.answers = Answers()
        self._names = {*queues, *_OWN}
        self._lock = threading.Lock()
        self._feeds: dict[str, NodeFeed] = {}
        self._queues: dict[str, Any] = {}
        self._values: dict[str, Any] = {STATE: "running"}

    def find_feed(self, qname: str) -> NodeFeed:
        """One for each name: whoever takes rows takes what others have left."""
        with self._lock:
            if qname not in self._feeds:
                self._feeds[qname] = NodeFeed(self.stream, qname, self.answers)
            return self._feeds[qname]

    def get_queue(self, qname: str) -> Any:
        """A queue over the feed of that name; None if it was not named to TFCluster.run()."""
        if qname not in self._names:
            return None
        feed = None if qname in _OWN else self.find_feed(qname)
        with self._lock:
            if qname not in self._queues:
                self._queues[qname] = queue.Queue() if feed is None else StreamQueue(feed)
            return self._queues[qname]

    def get(self, key: str) -> Any:
        value = self._values.get(key)
        return Text(value) if isinstance(value, str) else value

    def set(self, key: str, value: Any) -> None:
        if isinstance(value, Text):
            value = value._getvalue()
        self._values[key] = value
        if (key, value) == (STATE, TERMINATING):
            self.stream.stop()


class StreamQueue:
    """A feed as a queue: get() gives its rows, put() answers them."""

    def __init__(self, feed: NodeFeed) -> None:
        self._feed = feed

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next row; EndPartition behind a partition that was asked, None behind the feed."""
        if not block or timeout is not None:
            raise ValueError("get() of a feed waits for its row; expected block=True, timeout=None")
        rows, is_over = self._feed.take_one()
        if rows:
            return rows[0]
        return None if is_over else EndPartition()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Answers the oldest row that has no answer yet."""
        if not isinstance(item, EndPartition):
            self._feed.answer([item])

    def task_done(self) -> None:
        """Nothing to do: rows are done when the next one is taken."""

    def join(self) -> None:
        """Nothing to wait for: whoever feeds waits for its rows itself."""
