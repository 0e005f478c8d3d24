"""What a node was fed, kept once for each feed of it: all who take rows take from the same."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sparktrain.data.answers import AnswerError
from sparktrain.data.fed_row import FedRow
from sparktrain.data.rows import PICKLED
from sparktrain.data.views import Ragged, to_numpy
from sparktrain.trainer.requests import Conversation

#: How long to look at one of both sources of rows before the other has its turn.
_TURN_S = 0.05


class Answers:
    """Rows of this node that were taken and want an answer, in their order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: deque[tuple[Conversation, int]] = deque()
        #: Rows of the batch that is being answered, of those behind it, and who answers.
        self._open_rows = 0
        self._batches: deque[int] = deque()
        self._answerer: int | None = None

    def note(self, owners: Sequence[Conversation]) -> None:
        """A batch was taken: whose its rows are."""
        if not owners:
            return
        with self._lock:
            self._batches.append(len(owners))
            for owner in owners:
                if self._asked and self._asked[-1][0] is owner:
                    self._asked[-1] = (owner, self._asked[-1][1] + 1)
                else:
                    self._asked.append((owner, 1))

    def check(self) -> None:
        """Who answered a part of a batch and asks for the next one has forgotten the rest."""
        with self._lock:
            if self._open_rows and self._answerer == threading.get_ident():
                asked = sum(count for _, count in self._asked)
                raise AnswerError(
                    f"batch_results() got too few results: {asked} rows that were taken have none,"
                    " and more are asked for; expected one for each row"
                )

    def answer(self, results: Sequence[Any]) -> None:
        """Results for the oldest rows that have none."""
        pending = list(results)
        with self._lock:
            self._answerer = threading.get_ident()
            total = sum(count for _, count in self._asked)
            if len(pending) > total:
                raise AnswerError(
                    f"batch_results() got {len(pending)} results for {total} rows; expected one"
                    " for each row"
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


class NodeFeed:
    """One feed of this node.

    Args:
        stream: The node's end of all feeds.
        qname: The name of this one.
        answers: Where rows are noted that want an answer.
    """

    def __init__(self, stream: Any, qname: str, answers: Answers) -> None:
        self._stream = stream
        self._qname = qname
        self._answers = answers
        self._lock = threading.Lock()
        #: Rows that came with others and were not asked for yet, and whose they are.
        self._rows: deque[tuple[Conversation | None, Any]] = deque()
        #: The task whose rows are taken now.
        self._current: Conversation | None = None

    def take(self, limit: int, train_mode: bool) -> tuple[list[Any], bool]:
        """At most so many rows, and whether the feed is over.

        Fewer come at the end of the feed and, but for training, of an asked partition.
        """
        self._answers.check()
        rows: list[Any] = []
        owners: list[Conversation] = []
        is_over = False
        with self._lock:
            while len(rows) < limit and not is_over:
                if self._stream.inbox.is_closed:  # what was fed is not wanted any more
                    self._rows = deque(pair for pair in self._rows if pair[0] is not None)
                if not self._rows:
                    if rows and not train_mode and self._current is not None:
                        if self._is_at_border():
                            break
                    else:
                        is_over = not self._fetch(train_mode)
                while self._rows and len(rows) < limit:
                    owner, row = self._rows.popleft()
                    rows.append(row)
                    if owner is not None:
                        owners.append(owner)
        self._answers.note(owners)
        return rows, is_over

    def answer(self, results: Sequence[Any]) -> None:
        self._answers.answer(results)

    def take_one(self) -> tuple[list[Any], bool]:
        """The next row; none at the end of an asked partition, or when the feed is over."""
        with self._lock:
            was_asked = self._current is not None
            if was_asked and not self._rows and self._is_at_border():
                return [], False
        return self.take(1, train_mode=True)

    def _is_at_border(self) -> bool:
        """Whether the partition that is asked about has no more rows; waits until that is known."""
        if self._current is None:
            return False
        piece = self._stream.desk.take_of(self._current, None)
        if piece is None:
            self._current = None
            return True
        self._add(self._current, piece.pickled, piece.block, piece.columns)
        return False

    def _fetch(self, train_mode: bool) -> bool:
        """Brings rows in; False if there will be none."""
        if self._current is not None and not self._is_at_border():
            return True
        inbox, desk = self._stream.inbox, self._stream.desk
        while True:
            item = inbox.take(self._qname, timeout_s=_TURN_S)
            if item is not None:
                columns = inbox.wait_for_columns(self._qname) or ()
                self._add(None, item.pickled, item.block, columns)
                return True
            # A closed inbox does not wait: then the desk has to.
            piece = desk.take(None, timeout_s=_TURN_S if inbox.is_closed else 0)
            if piece is not None:
                self._current = piece.conversation
                self._add(self._current, piece.pickled, piece.block, piece.columns)
                return True
            # Who terminated its training may still answer until the cluster stops.
            is_asked = not train_mode and not desk.is_closed
            if inbox.has_ended(self._qname) and not is_asked:
                return False

    def _add(
        self, owner: Conversation | None, pickled: bytes | None, block: Any, columns: Any
    ) -> None:
        self._rows.extend((owner, row) for row in open_rows(pickled, block, columns))


def open_rows(pickled: bytes | None, block: Any, columns: Any) -> list[Any]:
    """Rows as the RDD had them, or as the RDD of the DataFrame would have."""
    if pickled is not None:
        # By a task of this cluster: the door lets nobody else in.
        return list(pickle.loads(pickled))
    kinds = {column.name: column.kind for column in columns}
    values: dict[str, list[Any]] = {}
    for name, found in to_numpy(block, columns).items():
        plain = block.column(name).to_pylist() if isinstance(found, Ragged) else found.tolist()
        convert = _CONVERT.get(str(kinds.get(name)))
        values[name] = plain if convert is None else _convert(plain, convert)
    # A class for these names: to give them to each row would cost more than the row.
    row = type("FedRow", (FedRow,), {"__fields__": tuple(values)})
    return list(map(row, zip(*values.values(), strict=True)))


#: What Spark's rows have in place of bytes.
_CONVERT: dict[str, Any] = {"string": bytes.decode, "binary": bytearray}


def _convert(value: Any, convert: Any) -> Any:
    """Every bytes value, however deep in lists."""
    if isinstance(value, list):
        return [_convert(one, convert) for one in value]
    return convert(value) if isinstance(value, bytes) else value
