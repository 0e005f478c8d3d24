"""What the result of a run tells of a node, as its trainer and its feeder tell it."""

from __future__ import annotations

import time
from typing import Any

from sparktrain.spec import NodeSpec
from sparktrain.wire.message import Message
from sparktrain.wire.messages import Progress, Report


class Summary:
    """Remembers of what passes by what the result needs."""

    def __init__(self, node: NodeSpec, host: str) -> None:
        self._node = node
        self._host = host
        self._started = time.monotonic()
        self._progress: dict[str, Any] = {}
        self._reports: list[dict[str, float]] = []
        self._model_path: str | None = None
        self._feed: dict[str, Any] | None = None
        #: Rows by table, once all were fed.
        self.fed: dict[str, int] | None = None

    def take(self, values: dict[str, Any]) -> bool:
        """Keeps a frame that is for the result only."""
        kind = values.get("kind")
        if kind == "export":
            self._model_path = str(values["path"])
        elif kind == "feed":
            self._feed = {name: value for name, value in values.items() if name != "kind"}
        return kind in ("export", "feed")

    def note(self, message: Message, values: dict[str, Any]) -> None:
        """Looks at a message on its way to the driver."""
        if isinstance(message, Progress):
            self._progress.update({k: v for k, v in values.items() if v is not None})
        elif isinstance(message, Report):
            self._reports.append(message.metrics)

    def to_dict(self, exit_code: int | None) -> dict[str, Any]:
        return {
            "node": self._node.name,
            "host": self._host,
            "exit": exit_code,
            "seconds": round(time.monotonic() - self._started, 3),
            "rows": self._progress.get("rows"),
            "steps": self._progress.get("total_steps"),
            "reports": self._reports,
            "model_path": self._model_path,
            "fed": self.fed,
            "feed": self._feed,
        }
