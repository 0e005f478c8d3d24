"""DataFeed: the rows of TFCluster.train() and TFCluster.inference() in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorflowonspark.node_manager import STATE, TERMINATING
from tensorflowonspark.queue_feed import QueueFeed


class DataFeed:
    """What is fed to this node.

    Args:
        mgr: The node's, as TFNodeContext has it; or a TFManager whose queues somebody fills.
        train_mode: False for inference: batches then end with their partition.
        qname_in, qname_out: The name of the feed, and of the queue of a TFManager for results.
        input_mapping: Columns to tensors: batches are dicts then, by tensor.
    """

    def __init__(
        self,
        mgr: Any,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> None:
        self.mgr = mgr
        self.train_mode = train_mode
        self.qname_in = qname_in
        self.qname_out = qname_out
        self.done_feeding = False
        self._mapping = sorted(input_mapping.items()) if input_mapping else None
        self.input_tensors = [tensor for _, tensor in self._mapping] if self._mapping else None
        self._feed: Any = (
            mgr.find_feed(qname_in)
            if hasattr(mgr, "find_feed")
            else QueueFeed(mgr, qname_in, qname_out)
        )

    def next_batch(self, batch_size: int) -> Any:
        """The next rows: so many, fewer at the end of the feed or of an asked partition.

        A list of rows; with input_mapping a dict of lists by tensor.
        """
        if self.done_feeding:
            rows: list[Any] = []
        else:
            rows, self.done_feeding = self._feed.take(batch_size, self.train_mode)
        return rows if self._mapping is None else map_rows(rows, self._mapping)

    def should_stop(self) -> bool:
        """Whether the feed is over."""
        return self.done_feeding

    def batch_results(self, results: Sequence[Any]) -> None:
        """Answers the rows that were taken, one result for each, in their order.

        Raises:
            AnswerError: There are more results than rows.
        """
        self._feed.answer(results)

    def terminate(self) -> None:
        """No more rows are wanted: feeds end at once."""
        self.done_feeding = True
        self.mgr.set(STATE, TERMINATING)
        if isinstance(self._feed, QueueFeed):
            self._feed.drain()

    def dataset(self, batch_size: int, **options: Any) -> Any:
        """The feed as a tf.data.Dataset; options as those of sparktrain's ctx.dataset()."""
        return self.mgr.context.dataset(self.qname_in, batch_size=batch_size, **options)


def map_rows(rows: Sequence[Any], mapping: Sequence[tuple[str, str]]) -> dict[str, list[Any]]:
    """Lists by tensor: by the names of columns if rows have them, else by sorted position."""
    places: Sequence[Any] = range(len(mapping))
    names = getattr(rows[0], "__fields__", ()) if rows else ()
    if all(column in names for column, _ in mapping):
        places = [names.index(column) for column, _ in mapping]
    return {
        tensor: [row[place] for row in rows]
        for place, (_, tensor) in zip(places, mapping, strict=True)
    }
