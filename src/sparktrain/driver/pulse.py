"""Which nodes have fallen silent, although they have a link."""

from __future__ import annotations

from collections.abc import Iterable

from sparktrain.wire.cluster_messages import SILENT_S

#: A silent node has left this many beats without an answer: a driver that was itself held up has
#: sent none.
MIN_BEATS = 3


class Pulse:
    """When nodes were last heard. All times are the caller's."""

    def __init__(self) -> None:
        #: node -> when it was heard, and beats since then.
        self._heard: dict[str, tuple[float, int]] = {}

    def hear(self, node: str, now: float) -> None:
        self._heard[node] = (now, 0)

    def beat(self, nodes: Iterable[str], now: float) -> list[str]:
        """A beat is sent to these nodes; returns those that have been silent for too long."""
        silent = []
        for node in nodes:
            heard, beats = self._heard.get(node, (now, 0))
            if now - heard > SILENT_S and beats >= MIN_BEATS:
                silent.append(node)
            self._heard[node] = (heard, beats + 1)
        return silent
