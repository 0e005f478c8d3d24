"""A feed over the queues of a TFManager, as tests of a program's function make one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorflowonspark.marker import EndPartition


class QueueFeed:
    """Rows of a queue: None is its end, EndPartition the end of a partition.

    Args:
        mgr: Of TFManager.start() or TFManager.connect().
    """

    def __init__(self, mgr: Any, qname_in: str, qname_out: str) -> None:
        self._mgr = mgr
        self._qname_in = qname_in
        self._qname_out = qname_out

    def take(self, limit: int, train_mode: bool) -> tuple[list[Any], bool]:
        queue = find_queue(self._mgr, self._qname_in)
        rows: list[Any] = []
        while len(rows) < limit:
            row = queue.get(block=True)
            queue.task_done()
            if row is None:
                return rows, True
            if isinstance(row, EndPartition):
                if rows and not train_mode:
                    break
                continue
            rows.append(row)
        return rows, False

    def answer(self, results: Sequence[Any]) -> None:
        queue = find_queue(self._mgr, self._qname_out)
        for result in results:
            queue.put(result, block=True)

    def drain(self) -> None:
        """Takes what is there, so that whoever feeds does not wait for it."""
        queue = find_queue(self._mgr, self._qname_in)
        while not queue.empty():
            queue.get(block=True)
            queue.task_done()


def find_queue(mgr: Any, name: str) -> Any:
    queue = mgr.get_queue(name)
    if queue is None:
        raise KeyError(
            f"the manager has no queue {name!r}; name it in TFCluster.run(queues=...) or in"
            " TFManager.start()"
        )
    return queue
