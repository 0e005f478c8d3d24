"""What the driver must know of a node: told again after an outage of the link.

What is written to a link that breaks may never arrive, and nobody hears of that. These messages
tell how things are rather than what has changed, so that hearing one twice does no harm.
"""

from __future__ import annotations

from sparktrain.wire.cluster_messages import (
    Arrived,
    Enough,
    Exported,
    Flushed,
    Pace,
    Saved,
    Taken,
)
from sparktrain.wire.message import Message
from sparktrain.wire.messages import Board, Bye, Failed, Joined, Returned

_KEPT = (
    Arrived,
    Joined,
    Board,
    Exported,
    Taken,
    Flushed,
    Saved,
    Pace,
    Enough,
    Returned,
    Failed,
    Bye,
)
_OF_FEEDS = (Taken, Flushed, Saved)


class Reminder:
    """The last message of each kind, and of each feed and table."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], Message] = {}

    def note(self, message: Message) -> None:
        if isinstance(message, _KEPT):
            name = message.table if isinstance(message, Pace) else ""
            if isinstance(message, _OF_FEEDS):
                name = message.feed
            self._last[message.kind, name] = message

    def forget(self, feed: str) -> None:
        """A feed is over."""
        for kind in _OF_FEEDS:
            self._last.pop((kind.kind, feed), None)

    @property
    def messages(self) -> list[Message]:
        return list(self._last.values())
