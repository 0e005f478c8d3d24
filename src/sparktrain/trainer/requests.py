"""Rows that want an answer: a conversation for each task that asks, answered in order.

A task's rows come in a thread of their own and wait here; the function takes pieces of them, of
one conversation after the other, and answers each. Answers go back in the order of the rows.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparktrain.data.answers import AnswerError, make_answers
from sparktrain.data.schema import Column

#: Bytes of a conversation that wait for the function; its task waits beyond that.
CAPACITY_BYTES = 16 << 20


class ClosedError(Exception):
    """Nobody answers any more."""


class IdleError(Exception):
    """Rows wait, and for too long none was taken and none answered."""


@dataclass(frozen=True)
class Piece:
    """Some rows of one conversation."""

    conversation: Conversation
    num_rows: int
    #: Columns, or rows as Python pickled them.
    block: pa.RecordBatch | None = None
    pickled: bytes | None = None

    @property
    def columns(self) -> Sequence[Column]:
        return self.conversation.columns


class Conversation:
    """One task that asks."""

    def __init__(self, columns: Sequence[Column], changed: threading.Condition) -> None:
        self.columns = columns
        self._changed = changed
        self._pieces: deque[Piece] = deque()
        self._waiting = 0
        self.answers: deque[pa.RecordBatch] = deque()
        #: Rows that the function took, and that it answered.
        self.num_taken = 0
        self.num_answered = 0
        #: Whether all rows have come; whether the task is gone.
        self.has_all = False
        self.is_gone = False

    def add(self, batch: pa.RecordBatch) -> bool:
        """Rows come in, once there is room; False if nobody wants them."""
        if self.columns:
            pieces = [(Piece(self, batch.num_rows, block=batch), batch.nbytes)]
        else:
            pieces = [
                (Piece(self, count, pickled=rows), len(rows))
                for rows, count in zip(*map(pa.Array.to_pylist, batch.columns), strict=True)
            ]
        with self._changed:
            for piece, size in pieces:
                while self._pieces and self._waiting + size > CAPACITY_BYTES and not self.is_gone:
                    self._changed.wait()
                if self.is_gone:
                    return False
                self._pieces.append(piece)
                self._waiting += size
                self._changed.notify_all()
        return True

    def finish(self) -> None:
        with self._changed:
            self.has_all = True
            self._changed.notify_all()

    @property
    def has_rows(self) -> bool:
        return bool(self._pieces)

    def take(self, limit: int | None) -> Piece:
        """The next rows, at most so many; there must be some. Pickled rows come as they are."""
        piece = self._pieces.popleft()
        if piece.block is not None and limit is not None and piece.num_rows > limit:
            rest = piece.block.slice(limit)
            self._pieces.appendleft(Piece(self, rest.num_rows, block=rest))
            piece = Piece(self, limit, block=piece.block.slice(0, limit))
        if not self._pieces:
            self._waiting = 0
        self.num_taken += piece.num_rows
        self._changed.notify_all()
        return piece

    def answer(self, batch: pa.RecordBatch, num_rows: int | None = None) -> None:
        """Answers to the rows that were taken and have none yet, the oldest first.

        Args:
            num_rows: How many rows are answered, if they are pickled together.
        """
        with self._changed:
            self.num_answered += batch.num_rows if num_rows is None else num_rows
            if self.num_answered > self.num_taken:
                raise AnswerError(
                    f"the function answered {self.num_answered} rows of {self.num_taken} that it"
                    " was asked; expected one answer for each row"
                )
            self.answers.append(batch)
            self._changed.notify_all()


class Desk:
    """All conversations of this trainer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: deque[Conversation] = deque()
        self._why_closed: str | None = None

    # What asking tasks do.

    def serve(
        self,
        columns: Sequence[Column],
        batches: Iterable[pa.RecordBatch],
        writer: Any,
        idle_timeout_s: float | None = None,
    ) -> None:
        """Takes in the rows of a task and writes the answers; in a thread of the door."""
        conversation = Conversation(columns, self._changed)
        with self._changed:
            self._check()
            self._open.append(conversation)
            self._changed.notify_all()
        reader = threading.Thread(
            target=self._read, args=(conversation, batches), name="sparktrain-rows", daemon=True
        )
        reader.start()
        try:
            has_begun = False
            for batch in self._answers(conversation, idle_timeout_s):
                if not has_begun:
                    writer.begin(batch.schema)
                    has_begun = True
                writer.write_batch(batch)
        finally:
            with self._changed:
                conversation.is_gone = True
                if conversation in self._open:
                    self._open.remove(conversation)
                self._changed.notify_all()
            # Who reads from a call that has ended reads freed memory. It ends with the next rows.
            reader.join()

    def _read(self, conversation: Conversation, batches: Iterable[pa.RecordBatch]) -> None:
        with suppress(Exception):  # the task is gone: then so is the conversation
            for batch in batches:
                if not conversation.add(batch):
                    return
            conversation.finish()
            return
        with self._changed:
            conversation.is_gone = True
            self._changed.notify_all()

    def _answers(
        self, conversation: Conversation, idle_timeout_s: float | None
    ) -> Iterator[pa.RecordBatch]:
        limit = _IdleLimit(self, conversation, idle_timeout_s)
        while True:
            with self._changed:
                while not conversation.answers:
                    is_done = conversation.num_answered == conversation.num_taken
                    if conversation.has_all and is_done and not conversation.has_rows:
                        return
                    if conversation.is_gone:
                        raise ClosedError("the task is gone")
                    self._check()
                    self._changed.wait(limit.check())
                batch = conversation.answers.popleft()
            yield batch

    @property
    def num_moves(self) -> int:
        """Changes whenever the function takes or answers rows, of any conversation."""
        return sum(one.num_taken + one.num_answered for one in self._open)

    def _check(self) -> None:
        if self._why_closed is not None:
            raise ClosedError(self._why_closed)

    # What the function does.

    def take(self, limit: int | None, timeout_s: float | None = None) -> Piece | None:
        """Rows of the oldest conversation that has some; None when closed or after a while."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while True:
                if self._why_closed is not None:
                    return None
                for conversation in self._open:
                    if conversation.has_rows and not conversation.is_gone:
                        return conversation.take(limit)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._changed.wait(left)

    def take_of(self, conversation: Conversation, limit: int | None) -> Piece | None:
        """More rows of one conversation; None at its end."""
        with self._changed:
            while not conversation.has_rows:
                if conversation.has_all or conversation.is_gone or self._why_closed is not None:
                    return None
                self._changed.wait()
            return conversation.take(limit)

    @property
    def is_closed(self) -> bool:
        return self._why_closed is not None

    def close(self, why: str) -> None:
        """Nobody answers any more: those who wait are told why."""
        with self._changed:
            self._why_closed = self._why_closed or why
            self._changed.notify_all()


class _IdleLimit:
    """How long a conversation with rows here may wait without any row being taken or answered."""

    def __init__(self, desk: Desk, conversation: Conversation, timeout_s: float | None) -> None:
        self._desk = desk
        self._conversation = conversation
        self._timeout_s = timeout_s
        self._seen: Any = None
        self._moved = time.monotonic()

    def check(self) -> float | None:
        """How long to wait at most until the next look."""
        if self._timeout_s is None:
            return None
        one, now = self._conversation, time.monotonic()
        # Where rows are still to come and none are here, the function is not who is late.
        seen = (self._desk.num_moves, one.has_all or one.has_rows)
        if seen != self._seen or not seen[1]:
            self._seen, self._moved = seen, now
        left = self._moved + self._timeout_s - now
        if left <= 0:
            raise IdleError(
                f"no row was taken and none answered for {self._timeout_s:g} s: {one.num_taken}"
                f" were taken, {one.num_answered} of them answered. The function may be busy, or"
                " answer too few of its rows"
            )
        return left


def answer_piece(piece: Piece, values: Any) -> None:
    """Checks what the function answered to some rows, and sends it back."""
    answers = make_answers(values, piece.num_rows)
    piece.conversation.answer(answers)
