"""DataFeed: the rows of TFCluster.train() and TFCluster.inference() in batches."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sparktrain.data.answers import AnswerError
from sparktrain.data.rows import PICKLED, to_rows
from sparktrain.trainer.requests import Conversation

#: How long to look at one of both sources of rows before the other has its turn.
_TURN_S = 0.05


class DataFeed:
    """What is fed to this node.

    Args:
        mgr: The node's, as TFNodeContext has it.
        train_mode: False for inference: batches then end with their partition.
        qname_in, qname_out: The table of the feed; what is answered needs none.
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
        self.input_tensors = (
            [tensor for _, tensor in sorted(input_mapping.items())] if input_mapping else None
        )
        self._stream = mgr.stream
        #: Rows that came with others and were not asked for yet, and whose they are.
        self._rows: deque[tuple[Conversation | None, Any]] = deque()
        #: The task that is asked for now, and what was taken of which, not answered yet.
        self._current: Conversation | None = None
        self._asked: deque[tuple[Conversation, int]] = deque()
        #: Rows of the batch that is being answered, and who takes and answers.
        self._open_rows = 0
        self._batches: deque[int] = deque()
        self._num_noted = 0
        self._answerer: int | None = None

    def next_batch(self, batch_size: int) -> Any:
        """The next rows: so many, fewer at the end of the feed or of an asked partition.

        A list of rows; with input_mapping a dict of lists by tensor.
        """
        self._check_answers()
        rows: list[Any] = []
        while len(rows) < batch_size:
            if not self._rows and not self._fetch(has_some=bool(rows)):
                break
            while self._rows and len(rows) < batch_size:
                owner, row = self._rows.popleft()
                rows.append(row)
                if owner is not None:
                    self._note(owner)
        if self._num_noted:
            self._batches.append(self._num_noted)
            self._num_noted = 0
        if self.input_tensors is None:
            return rows
        return {
            tensor: [row[position] for row in rows]
            for position, tensor in enumerate(self.input_tensors)
        }

    def should_stop(self) -> bool:
        """Whether the feed is over."""
        return self.done_feeding

    def batch_results(self, results: Sequence[Any]) -> None:
        """Answers the rows that were taken, one result for each, in their order.

        Raises:
            AnswerError: There are more results than rows.
        """
        self._answerer = threading.get_ident()
        pending = list(results)
        total = sum(count for _, count in self._asked)
        if len(pending) > total:
            raise AnswerError(
                f"batch_results() got {len(pending)} results for {total} rows; expected one for"
                " each row"
            )
        self._open_rows -= len(pending)
        while pending:
            conversation, count = self._asked.popleft()
            some, pending = pending[:count], pending[count:]
            if len(some) < count:
                self._asked.appendleft((conversation, count - len(some)))
            data = pickle.dumps(some, pickle.HIGHEST_PROTOCOL)
            columns = [pa.array([data], pa.large_binary()), pa.array([len(some)])]
            conversation.answer(pa.RecordBatch.from_arrays(columns, schema=PICKLED), len(some))
        while self._open_rows < 0 and self._batches:
            self._open_rows += self._batches.popleft()

    def terminate(self) -> None:
        """No more rows are wanted: feeds end at once."""
        self.done_feeding = True
        self._rows.clear()
        self._stream.stop()

    def dataset(self, batch_size: int, **options: Any) -> Any:
        """The feed as a tf.data.Dataset; options as those of sparktrain's ctx.dataset()."""
        return self.mgr.context.dataset(self.qname_in, batch_size=batch_size, **options)

    def _note(self, owner: Conversation) -> None:
        """A row that wants an answer was taken."""
        self._num_noted += 1
        if self._asked and self._asked[-1][0] is owner:
            self._asked[-1] = (owner, self._asked[-1][1] + 1)
        else:
            self._asked.append((owner, 1))

    def _check_answers(self) -> None:
        """Who answered a part of a batch and asks for the next one has forgotten the rest."""
        if self._open_rows and self._answerer == threading.get_ident():
            asked = sum(count for _, count in self._asked)
            raise AnswerError(
                f"batch_results() got too few results: {asked} rows that were taken have none, and"
                " more are asked for; expected one for each row"
            )

    def _fetch(self, has_some: bool) -> bool:
        """Brings rows in; False if the batch ends here."""
        if self._current is not None:
            piece = self._stream.desk.take_of(self._current, None)
            if piece is None:  # the end of its partition
                self._current = None
                if has_some and not self.train_mode:
                    return False
            else:
                self._add(self._current, piece.pickled, piece.block, piece.columns)
                return True
        while not self.done_feeding:
            item = self._stream.inbox.take(self.qname_in, timeout_s=_TURN_S)
            if item is not None:
                columns = self._stream.inbox.wait_for_columns(self.qname_in) or ()
                self._add(None, item.pickled, item.block, columns)
                return True
            piece = self._stream.desk.take(None, timeout_s=0)
            if piece is not None:
                if has_some and not self.train_mode:
                    raise RuntimeError("a batch goes over the border of a partition")
                self._current = piece.conversation
                self._add(self._current, piece.pickled, piece.block, piece.columns)
                return True
            if self._stream.inbox.has_ended(self.qname_in):
                self.done_feeding = True
        return False

    def _add(
        self, owner: Conversation | None, pickled: bytes | None, block: Any, columns: Any
    ) -> None:
        self._rows.extend((owner, row) for row in _open(pickled, block, columns))


def _open(pickled: bytes | None, block: Any, columns: Any) -> list[Any]:
    if pickled is not None:
        # By a task of this cluster: the door lets nobody else in.
        return list(pickle.loads(pickled))
    return [tuple(row.values()) for row in to_rows(block, columns)]
