"""A node of a cluster: opens its door, calls the function, or serves as TensorFlow's server."""

from __future__ import annotations

import json
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from sparktrain.data.rows import to_rows
from sparktrain.data.schema import Column
from sparktrain.data.views import to_numpy
from sparktrain.errors import ConfigError
from sparktrain.spec import EVALUATOR, NodeSpec, make_tf_config
from sparktrain.trainer.context import Context
from sparktrain.trainer.feed import Feed
from sparktrain.trainer.inbox import Inbox
from sparktrain.trainer.link import AgentLink
from sparktrain.trainer.pace import Pace
from sparktrain.trainer.requests import Desk, Piece, answer_piece
from sparktrain.trainer.saves import Saves
from sparktrain.trainer.stream import StreamTable


class FeedEndedError(Exception):
    """The cluster stopped before there was a row; the function has nothing more to do."""


class Stream:
    """What comes to this node, and what it answers.

    Args:
        tell: Sends a frame to the driver.
        is_together: Whether workers take their steps together.
    """

    def __init__(self, tell: Callable[[dict[str, Any]], None], is_together: bool) -> None:
        self._tell = tell
        self.is_together = is_together
        self.inbox = Inbox(self._on_taken)
        self.desk = Desk()
        self.saves = Saves(tell, self.inbox)
        self._tables: dict[str, StreamTable] = {}
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def handle(self, frame: Mapping[str, Any]) -> None:
        """A command of the driver."""
        kind = frame.get("kind")
        if kind == "no_more":
            self.inbox.finish(str(frame["table"]))
            if not frame["table"]:
                self.desk.close("the cluster is stopping")
        elif kind == "flush":
            self.saves.flush(str(frame["feed"]), str(frame["table"]))
        elif kind == "save":
            self.saves.save(str(frame["feed"]))
        elif kind == "announce":
            columns = [Column.from_dict(column) for column in frame["columns"]]
            self.inbox.announce(str(frame["table"]), columns)
        elif kind == "forget":
            self.inbox.forget(str(frame["feed"]))
        elif kind == "catch":
            table = self._tables.get(str(frame["table"]))
            if table is not None and table.pace is not None:
                table.pace.catch(int(frame["steps"]))
                self.inbox.wake()

    def _on_taken(self, feed: str, rows: int) -> None:
        self._tell({"kind": "taken", "feed": feed, "rows": rows})

    def find(self, name: str, rank: int | None, parts: int) -> StreamTable:
        """A table, once a feed of it has begun."""
        if rank is None:
            raise ConfigError(
                problem=f"ctx.dataset({name!r}) was called on a node that is not fed.",
                advice="Rows go to the chief and the workers; let the evaluator read files.",
            )
        columns = self.inbox.wait_for_columns(name)
        if columns is None:
            raise FeedEndedError
        if not columns:
            raise ConfigError(
                problem=f"ctx.dataset({name!r}): what is fed is an RDD of Python rows.",
                advice="Feed a DataFrame, or take the rows with ctx.rows().",
            )
        if name not in self._tables:  # one for all who ask: it holds rows for the next of them
            pace = Pace(self._tell, name) if self.is_together else None
            if pace is not None:
                pace.start()
            self._tables[name] = StreamTable(self.inbox, name, columns, pace, parts)
            self.saves.add(name, self._tables[name])
        return self._tables[name]

    def rows(self, name: str) -> Iterator[Any]:
        with self.saves.reading_rows(name):
            yield from self._rows(name)

    def _rows(self, name: str) -> Iterator[Any]:
        while True:
            self.saves.act(name)
            item = self.inbox.take(name, until=lambda: self.saves.is_due(name))
            if item is None:
                if self.saves.is_due(name) and not self.inbox.has_ended(name):
                    continue
                return
            if item.pickled is not None:
                # By a task of this cluster: the door lets nobody else in.
                yield from pickle.loads(item.pickled)
            elif item.block is not None:
                columns = self.inbox.wait_for_columns(name) or ()
                yield from to_rows(item.block, columns)

    def stop(self) -> None:
        if not self.inbox.is_closed:
            self.inbox.close()
            self._tell({"kind": "enough"})

    def requests(self, batch_size: int) -> Iterator[Piece]:
        while (piece := self.desk.take(batch_size)) is not None:
            yield piece

    def serve(self, function: Callable[[Any], Any], batch_size: int, background: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
            raise ConfigError(
                problem=f"ctx.serve() got batch_size={batch_size!r}.",
                advice="Expected a whole number of at least 1.",
            )
        if not background:
            self._serve(function, batch_size)
            return

        def work() -> None:
            try:
                self._serve(function, batch_size)
            except BaseException as error:
                self._errors.append(error)
                self.close(f"{type(error).__name__}: {error}")

        thread = threading.Thread(target=work, name="sparktrain-serve", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, function: Callable[[Any], Any], batch_size: int) -> None:
        for piece in self.requests(batch_size):
            if piece.block is None:
                raise ConfigError(
                    problem="ctx.serve() was asked rows of an RDD.",
                    advice="Give cluster.predict() a DataFrame.",
                )
            arrays = to_numpy(piece.block, piece.columns)
            if not all(column.is_dense for column in piece.columns):
                from sparktrain.trainer.dataset import to_tensors  # needs TensorFlow

                arrays = to_tensors(arrays, piece.columns)
            answer_piece(piece, function(arrays))

    def close(self, why: str) -> None:
        """The function is over: whoever feeds or asks is told so."""
        self.inbox.close()
        self.desk.close(why)

    def join(self) -> None:
        """Waits for what answers in the background; raises its error."""
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]


def call_detached(
    link: AgentLink,
    job: Mapping[str, Any],
    data: Mapping[str, Any],
    function: bytes,
    tell: Callable[[BaseException], None] = lambda error: None,
) -> Any:
    """Makes a node of a cluster ready, then calls the user's function with its context."""
    import cloudpickle

    from sparktrain.trainer.door import OpenDoor

    node = NodeSpec(job["role"], job["index"], job["first_rank"])
    is_together = job["needs_strategy"] and not job["num_ps"] and node.rank is not None
    stream = Stream(link.send, is_together)
    with ExitStack() as stack:
        door = stack.enter_context(OpenDoor(job["door"], stream.inbox, stream.desk))
        stack.callback(stream.close, "the function has ended")
        # Before the door is shut, which may take seconds.
        stack.push(lambda kind, error, trace: tell(error) if error is not None else None)
        link.send({"kind": "door", "port": door.port})
        if job["needs_strategy"]:
            import tensorflow  # noqa: F401 (loads while the nodes still meet)
        cluster = link.receive_cluster()
        link.watch(stream.handle)
        link.send({"kind": "ready"})
        os.environ["TF_CONFIG"] = json.dumps(make_tf_config(node, cluster))
        is_served = job["num_ps"] and job["needs_strategy"]
        if is_served and node.name != "chief:0" and node.role != EVALUATOR:
            from sparktrain.trainer.parameter_server import serve

            serve(node, cluster, link, job["num_gpus"], job["gpu_limit_mb"])
            return None
        context = Context(
            node=node,
            num_workers=job["num_workers"],
            cluster_spec=cluster,
            run_id=job["run_id"],
            run_dir=job["run_dir"],
            link=link,
            distributed=is_together,
            feed=Feed((), data["files"]),
            stream=stream,
            stores=link.find_stores(job["store_token"]),
            num_mirrors=job["num_mirrors"],
            events=job.get("events"),
        )
        context.prepare()
        if is_served and node.rank is not None:
            from sparktrain.trainer.parameter_server import make_strategy

            context.use_strategy(make_strategy(cluster))
        train_fn, context.args = cloudpickle.loads(function)
        try:
            value = train_fn(context)
            stream.saves.check()
            # Rows may still come for what answers in the background.
            stream.inbox.close()
            link.send({"kind": "enough"})
            stream.join()
        except FeedEndedError:
            return None
        except BaseException:
            # Before the doors close: tasks must not take it for an early stop.
            stream.inbox.fail()
            raise
        context.close()
        # Whoever still comes is told that nothing is wanted, as long as this process is there.
        stream.close("the function has ended")
        link.call_at_exit(stack.pop_all().close)
        return value
