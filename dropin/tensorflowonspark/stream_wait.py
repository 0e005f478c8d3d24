"""What shutdown() does first when a stream feeds the cluster: it waits for its end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

#: Seconds between two looks.
_TICK_S = 0.5


class StreamWait:
    """Waits until streams end, a function has enough, somebody asks to stop, or time is up.

    Args:
        owner: The TFCluster.
        timeout_s: For this and for what comes behind it; None for no limit.
    """

    def __init__(self, owner: Any, timeout_s: float | None) -> None:
        self._owner = owner
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def left_s(self) -> float | None:
        """What is left of the time: a little, even when it is up."""
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0.1)

    def for_context(self, ssc: Any) -> BaseException | None:
        """Waits for a StreamingContext and stops it; what it failed with."""
        try:
            while not ssc.awaitTerminationOrTimeout(_TICK_S):
                if self._is_enough():
                    ssc.stop(stopSparkContext=False, stopGraceFully=not self._is_late())
                    break
                self._check_nodes()
        except Exception as error:
            with contextlib.suppress(Exception):
                ssc.stop(stopSparkContext=False, stopGraceFully=False)
            return error
        return None

    def for_queries(self, streams: Sequence[Any]) -> BaseException | None:
        """Waits for streaming DataFrames; what the first of them failed with."""
        try:
            for stream in streams:
                while not stream.wait(_TICK_S):
                    if self._is_enough():
                        return None  # the cluster stops them
                    self._check_nodes()
        except Exception as error:
            return error
        return None

    def _is_enough(self) -> bool:
        return bool(self._owner.server.done or self._owner.cluster.has_enough or self._is_late())

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _check_nodes(self) -> None:
        """Raises the error of a node, which may fail while nothing is fed."""
        with contextlib.suppress(TimeoutError):
            self._owner.cluster.wait(0.001)
