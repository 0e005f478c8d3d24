"""The driver's end of a cluster: hears its nodes, introduces them, and knows what they took."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparktrain.agent import rendezvous
from sparktrain.agent.device_refusals import find_doubled
from sparktrain.data.schema import Column
from sparktrain.driver import state
from sparktrain.driver.monitor import Monitor
from sparktrain.driver.plan import Plan
from sparktrain.driver.pulse import Pulse
from sparktrain.driver.record import RunRecord
from sparktrain.spec import PERIODIC, Failure, make_cluster
from sparktrain.version import __version__
from sparktrain.wire.cluster_messages import (
    SILENT_S,
    Announce,
    Arrived,
    Ask,
    Beat,
    Catch,
    Cause,
    Enough,
    Exported,
    Flush,
    Flushed,
    Forget,
    Meet,
    NoMore,
    Pace,
    Save,
    Saved,
    Taken,
)
from sparktrain.wire.flight import Door
from sparktrain.wire.message import Message
from sparktrain.wire.messages import End, Leave
from sparktrain.wire.pace import find_catch_up

#: A task that asks is told at once if the cause is known, else as soon as it is.
ASK_WAIT_S = 5.0
#: Feeds that were over lately, for nodes that could not hear it.
KEPT_FEEDS = 1000


class Hub(Monitor):
    """A monitor that also leads; use as a context manager."""

    def __init__(self, plan: Plan, record: RunRecord, bind: str, told: str) -> None:
        super().__init__(plan, record, bind, told)
        self._cards: dict[str, dict[str, Any]] = {}
        #: table -> node -> where it is.
        self._paces: dict[str, dict[str, tuple[int, bool]]] = {}
        #: (node, feed) -> rows that the node's function has taken.
        self.taken: dict[tuple[str, str], int] = {}
        #: The same over all feeds and nodes, also those that are over.
        self.num_taken = 0
        #: Feeds all of whose rows were in a step: (node, feed); and those with a checkpoint.
        self.flushed: set[tuple[str, str]] = set()
        self.saved: set[str] = set()
        #: Nodes whose functions want no more rows.
        self.sated: set[str] = set()
        self.model_path: str | None = None
        #: Whether a node was started twice, because Spark tried the start again.
        self.is_doubled = False
        #: What differs between the nodes, if anything does.
        self.differences: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
        #: What is wrong with the GPUs that the nodes have, if anything is.
        self.doubled = ""
        #: When links broke.
        self._broken_at: dict[str, float] = {}
        #: Tells tasks what happened; set by who decides on it.
        self.explain: Callable[[], str] = lambda: ""
        self._askers: dict[str, float] = {}
        self._pulse = Pulse()
        #: What every node must know, also one that was not there when it was said.
        self._meet: Meet | None = None
        self._announced: dict[str, Announce] = {}
        #: By node and table.
        self._catches: dict[tuple[str, str], Catch] = {}
        #: What nodes were asked last, by node and feed, until the feed is over.
        self._asks: dict[tuple[str, str], Flush | Save] = {}
        self._forgotten: deque[tuple[float, str]] = deque(maxlen=KEPT_FEEDS)
        self._last_words: list[Message] = []

    def __enter__(self) -> Hub:
        super().__enter__()
        return self

    @property
    def doors(self) -> tuple[Door, ...]:
        """Of all nodes that have arrived, in the order of the plan."""
        cards = [self._cards[node.name] for node in self._plan.nodes if node.name in self._cards]
        return tuple(Door.from_dict(card["door"]) for card in cards)

    def describe(self) -> list[dict[str, Any]]:
        """The cards of all nodes, without how to get in."""
        cards = [self._cards[node.name] for node in self._plan.nodes if node.name in self._cards]
        return [{key: card[key] for key in card if key != "door"} for card in cards]

    def send(self, message: Message, node: str | None = None) -> None:
        """To one node or to all."""
        server = self._server
        if server is not None:
            with contextlib.suppress(RuntimeError):  # its loop was closed a moment ago
                server.send(message, self.snapshot.attempt, node)

    def beat(self) -> None:
        """Tells all nodes that the driver is there; cuts off those that never answer."""
        if self._server is None:
            return
        attempt = self.snapshot.attempt
        nodes = [name for name in self._server.open_nodes(attempt) if name in self.snapshot.nodes]
        with self._changed:
            silent = self._pulse.beat(nodes, time.monotonic())
        for name in silent:
            self._server.cut(attempt, name)
        self.send(Beat())

    def announce(self, table: str, columns: Sequence[Column]) -> None:
        """Also nodes that will not get a row of it must know what its rows are."""
        message = Announce(table, [column.to_dict() for column in columns])
        with self._changed:
            self._announced[table] = message
        self.send(message)

    def forget(self, feed: str) -> None:
        """A feed is over."""
        self.send(Forget(feed))
        with self._changed:
            self._forgotten.append((time.monotonic(), feed))
            self.taken = {key: rows for key, rows in self.taken.items() if key[1] != feed}
            self.flushed = {key for key in self.flushed if key[1] != feed}
            self.saved.discard(feed)
            self._asks = {key: word for key, word in self._asks.items() if key[1] != feed}

    def ask(self, message: Flush | Save, node: str) -> None:
        """Asked again when a link comes back: to answer twice does no harm."""
        with self._changed:
            self._asks[node, message.feed] = message
        self.send(message, node)

    def count_taken(self, feed: str) -> dict[str, int]:
        """Rows of a feed that functions have taken, by node."""
        with self._changed:
            return {node: rows for (node, one), rows in self.taken.items() if one == feed}

    def finish_feeds(self, table: str = "") -> None:
        """No more rows will come: of a table, or of any."""
        with self._changed:
            self._last_words.append(NoMore(table))
        self.send(NoMore(table))

    def end_nodes(self, reason: str, may_restart: bool) -> None:
        with self._changed:
            kept = [word for word in self._last_words if not isinstance(word, End)]
            self._last_words = [*kept, End(reason, may_restart)]
        super().end_nodes(reason, may_restart)

    def let_leave(self) -> None:
        self.send(Leave())

    def answer_askers(self) -> None:
        """Tells waiting tasks the cause, or after a while that there is none."""
        if self._server is None or not self._askers:
            return
        text = self.explain()
        now = time.monotonic()
        for name, since in list(self._askers.items()):
            if text or now - since > ASK_WAIT_S:
                del self._askers[name]
                self._server.send(Cause(text), 0, name)

    def _on_message(self, node: str, attempt: int, message: Message) -> None:
        if isinstance(message, Ask):
            self._askers[node] = time.monotonic()
            self.wake()
            return
        if node not in self.snapshot.nodes:
            return
        self._pulse.hear(node, time.monotonic())
        self._take(node, message)
        super()._on_message(node, attempt, message)

    def _take(self, node: str, message: Message) -> None:
        with self._changed:
            if isinstance(message, Arrived):
                # The same card again is that of a node which had no link for a while.
                known = self._cards.get(node)
                self.is_doubled = self.is_doubled or known not in (None, message.card)
                self._cards[node] = message.card
                if self._meet is None and len(self._cards) == len(self._plan.nodes):
                    self._introduce()
            elif isinstance(message, Taken):
                known_rows = self.taken.get((node, message.feed), 0)
                self.num_taken += max(message.rows - known_rows, 0)
                self.taken[node, message.feed] = max(message.rows, known_rows)
            elif isinstance(message, Enough):
                self.sated.add(node)
            elif isinstance(message, Exported):
                self.model_path = message.path
            elif isinstance(message, Pace):
                paces = self._paces.setdefault(message.table, {})
                paces[node] = (message.steps, message.is_waiting)
                for name, steps in find_catch_up(paces).items():
                    self._catches[name, message.table] = catch = Catch(message.table, steps)
                    self.send(catch, name)
            elif isinstance(message, Flushed):
                self.flushed.add((node, message.feed))
            elif isinstance(message, Saved):
                self.saved.add(message.feed)

    def _on_opened(self, node: str, attempt: int) -> None:
        if node in self.snapshot.nodes:
            with self._changed:
                self._pulse.hear(node, time.monotonic())
                for message in self._find_missed(node):
                    self.send(message, node)
        super()._on_opened(node, attempt)

    def _find_missed(self, node: str) -> list[Message]:
        """What a node may not have heard while it had no link; all of it may be heard twice."""
        found: list[Message] = [] if self._meet is None else [self._meet]
        found += self._announced.values()
        if node in self._broken_at:
            # A link may be dead for a while before that is noticed.
            since = self._broken_at[node] - 2 * SILENT_S
            found += [Forget(feed) for when, feed in self._forgotten if when > since]
        found += [catch for (name, _), catch in self._catches.items() if name == node]
        found += [message for (name, _), message in self._asks.items() if name == node]
        return found + self._last_words

    def _on_closed(self, node: str, attempt: int) -> None:
        self._broken_at[node] = time.monotonic()
        super()._on_closed(node, attempt)

    def _introduce(self) -> None:
        versions = [("driver", {"sparktrain": __version__})]
        versions += [(name, card["versions"]) for name, card in self._cards.items()]
        self.differences = rendezvous.find_differences(versions)
        cards = ((node.name, self._cards[node.name]) for node in self._plan.nodes)
        self.doubled = find_doubled(
            (f"{name} on {card['host']}", card["devices"]) for name, card in cards
        )
        if self.differences or self.doubled:
            return
        addresses = {name: (card["host"], card["port"]) for name, card in self._cards.items()}
        is_periodic = self._plan.settings.distribution == PERIODIC
        stores = [door.to_dict() for door in self.doors if is_periodic and door.node[:3] == "ps:"]
        self._meet = Meet(make_cluster(self._plan.nodes, addresses), stores)
        self.send(self._meet)

    def find_lost(self, limit_s: float, counts: Callable[[str], bool]) -> str | None:
        """The first node that counts, whose link broke and has not come back for so long."""
        now = time.monotonic()
        for name in self.snapshot.lost:
            if counts(name) and now - self._broken_at.get(name, now) > limit_s:
                return name
        return None


def find_cause(snapshot: state.Snapshot) -> Failure | None:
    """The first cause of a cluster's end, as far as it is known."""
    if snapshot.cause is not None:
        return snapshot.cause
    cut = [failure for failure in snapshot.failures if failure.kind == "cut"]
    if cut:
        return Failure(cut[0].node, cut[0].host, "lost", cut[0].what, tail=cut[0].tail)
    return None
