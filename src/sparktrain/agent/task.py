"""What each task of the barrier stage runs: meet, start the trainer, watch it, hand back.

The rows a task yields are (node, part, payload): part 0 is a JSON summary of the node, the
parts behind it are the pickled return value of rank 0 in chunks.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktrain.agent import rendezvous
from sparktrain.agent.departure import Departure
from sparktrain.agent.failure import NodeFailureError
from sparktrain.agent.feed import Feeder
from sparktrain.agent.job import describe_data, make_job
from sparktrain.agent.lifeline import Lifeline
from sparktrain.agent.process import (
    TrainerProcess,
    find_python_path,
    make_environment,
)
from sparktrain.agent.tensorboard import make_chief_board
from sparktrain.agent.unread import leave_unread
from sparktrain.data.spill_folders import find_roots
from sparktrain.data.trays import Trays
from sparktrain.spec import RUN_FILE, Failure, NodeSpec, RunSpec, make_cluster
from sparktrain.wire.client import ControlClient
from sparktrain.wire.message import Message
from sparktrain.wire.messages import (
    Board,
    Bye,
    End,
    Failed,
    Fed,
    Hello,
    Joined,
    Progress,
    Report,
    Returned,
    Stop,
    from_dict,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import BarrierTaskContext

#: The schema of the rows a task yields.
SCHEMA = "node int, part int, payload binary"
CHUNK_BYTES = 1024 * 1024
#: An echo of another node's failure is held back this long, so that the cause is seen first:
#: the agent of the node that died knows at once, Spark knows of a dead executor within a second.
ECHO_WAIT_S = 3.0


@dataclass(frozen=True)
class AgentTask:
    """The callable given to mapInArrow."""

    spec: RunSpec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import BarrierTaskContext

        if not self.spec.tables:
            for _ in batches:  # the stage's input only counts the nodes
                pass
        context = BarrierTaskContext.get()
        index = context.partitionId()
        agent = Agent(self.spec, self.spec.nodes[index], context, batches)
        for part, payload in enumerate(agent.run()):
            yield _to_batch(index, part, payload)


def _to_batch(node: int, part: int, payload: bytes) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(
        [
            pa.array([node], pa.int32()),
            pa.array([part], pa.int32()),
            pa.array([payload], pa.binary()),
        ],
        names=["node", "part", "payload"],
    )


class Agent:
    """One node's agent: owns the link to the driver and the trainer process."""

    def __init__(
        self,
        spec: RunSpec,
        node: NodeSpec,
        context: BarrierTaskContext,
        batches: Iterator[pa.RecordBatch],
    ) -> None:
        self._spec = spec
        self._batches = batches
        self._node = node
        self._context = context
        address = context.getTaskInfos()[context.partitionId()].address
        self._host = address.rsplit(":", 1)[0].strip("[]") or "127.0.0.1"
        self._started = time.monotonic()
        self._progress: dict[str, Any] = {}
        self._reports: list[dict[str, float]] = []
        self._model_path: str | None = None
        self._fed: dict[str, int] | None = None
        self._feed: dict[str, Any] | None = None
        self._may_restart = spec.may_restart
        self._trainer: TrainerProcess | None = None
        self._trays: Trays | None = None
        self._feeder: Feeder | None = None
        self._ended: tuple[str, str] | None = None
        hello = Hello(
            node=node.name,
            run_id=spec.run_id,
            attempt=spec.attempt,
            token=spec.control.token if spec.control else "",
        )
        self._link = ControlClient(spec.control, hello, self._on_command, spec.kept_log_lines)
        # Spark does not say why; a restart may follow, or the executor may be lost.
        self._lifeline = Lifeline(lambda: self._end("cut", "Spark ended the task"))
        self._departure = Departure(node, spec.nodes, spec.run_id, self._link.log)

    def run(self) -> Iterator[bytes]:
        """Runs the node to its end; yields its summary and value, or raises NodeFailureError."""
        with self._lifeline, self._link:
            try:
                summary, value = self._run_trainer()
            except BaseException:
                leave_unread()
                raise
            self._link.send(Bye())
            summary["unsent_lines"], summary["dropped_lines"] = self._link.close()
        if self._spec.tables and self._feeder is not None and self._feeder.has_rows_left():
            leave_unread()
        yield json.dumps(summary).encode()
        for start in range(0, len(value), CHUNK_BYTES):
            yield value[start : start + CHUNK_BYTES]

    def _run_trainer(self) -> tuple[dict[str, Any], bytes]:
        spec = self._spec
        env = make_environment(os.environ, spec.env, find_python_path())
        with (
            rendezvous.reserve_port() as holder,
            self._departure,
            self._make_trays() as self._trays,
            TrainerProcess(
                self._node,
                self._host,
                env,
                self._link.log,
                self._on_frame,
                inherited=[self._trays.descriptor] if self._trays is not None else [],
            ) as trainer,
            self._make_feeder(trainer) as feeder,
            make_chief_board(spec.board, self._node.rank == 0, self._host, self._tell_board),
        ):
            self._trainer, self._feeder = trainer, feeder
            if self._ended is not None:  # before there was a trainer to end
                trainer.end(*self._ended)
            # Sent before the nodes meet: TensorFlow loads while they do.
            data = describe_data(spec, self._node)
            trays = self._trays.describe() if self._trays is not None else None
            trainer.send(make_job(spec, self._node, len(data), trays), spec.function + data)
            feeder.is_kept = self._may_restart  # until it is known how this ends
            spills = feeder.find_earlier()
            cards = self._meet(holder.getsockname()[1], list(spills))
            addresses = {card.node: (card.host, card.port) for card in cards}
            trainer.send({"kind": "cluster", "cluster": make_cluster(spec.nodes, addresses)})
            self._link.send(Joined(host=self._host, pid=trainer.pid))
            if spec.tables:
                workers = cards[: spec.num_workers]  # an evaluator is the last node
                if feeder.start(self._batches, spills, [card.spilled for card in workers]):
                    self._link.log("sparktrain: rows of an earlier attempt are used again")
            failure = trainer.wait()
            if failure is not None:
                self._fail(failure)
            feeder.stop()
            feeder.is_kept = False
            self._link.send(Returned())
            self._departure.wait()
            exit_code = trainer.exit()
            value = trainer.value or b""
        is_first = self._node.rank == 0
        summary = {
            "node": self._node.name,
            "host": self._host,
            "exit": exit_code,
            "seconds": round(time.monotonic() - self._started, 3),
            "rows": self._progress.get("rows"),
            "steps": self._progress.get("total_steps"),
            "reports": self._reports,
            "model_path": self._model_path,
            "fed": self._fed,
            "feed": self._feed,
        }
        return summary, value if is_first else b""

    def _tell_board(self, url: str, problem: str) -> None:
        self._link.send(Board(url, problem))

    def _make_trays(self) -> AbstractContextManager[Trays | None]:
        # Memory without a name is Linux' own; elsewhere all blocks are read from the spill.
        if self._spec.tables and self._node.rank is not None and hasattr(os, "memfd_create"):
            with contextlib.suppress(OSError):  # a container may forbid it
                return Trays()
        return nullcontext()

    def _make_feeder(self, trainer: TrainerProcess) -> Feeder:
        spec, partition = self._spec, self._context.partitionId()
        local_dirs = os.environ.get("SPARK_LOCAL_DIRS", "")

        def on_done(outcome: dict[str, int] | str) -> None:
            if isinstance(outcome, str):
                trainer.fail("data", outcome)
            else:
                self._fed = outcome
                self._link.send(Fed(rows=dict(outcome)))

        return Feeder(
            spec.tables,
            is_mixed=spec.is_mixed,
            partition=partition,
            attempt=spec.attempt,
            roots=find_roots(local_dirs, spec.spill_dir, spec.run_id),
            tell=trainer.send,
            on_done=on_done,
            is_cut=self._lifeline.is_gone,
            trays=self._trays,
        )

    def _is_spill_kept(self, failure: Failure) -> bool:
        """Whether a restart may follow that can use it."""
        is_own = failure.kind in ("exception", "data", "exit", "result") and not failure.is_echo
        may_follow = self._may_restart and failure.kind != "versions"
        return may_follow and (self._spec.restart_on_error or not is_own)

    def _meet(self, port: int, spilled: Sequence[Sequence[int]]) -> list[rendezvous.NodeCard]:
        sees_run_dir = (Path(self._spec.run_dir) / RUN_FILE).exists()
        desk = self._departure.open(self._host)
        card = rendezvous.make_card(self._node, self._host, port, sees_run_dir, desk, spilled)
        cards = rendezvous.meet(self._context, card)
        self._departure.join(cards[0].desk)
        known = [("driver", self._spec.driver_versions)]
        known += [(card.node, card.versions) for card in cards]
        differences = rendezvous.find_differences(known)
        if differences:
            interpreters = [(card.node, {"interpreter": card.executable}) for card in cards]
            differences |= rendezvous.find_differences(interpreters)
            self._fail(
                Failure(
                    node=self._node.name,
                    host=self._host,
                    kind="versions",
                    what="the nodes do not have the same software",
                    differences=differences,
                )
            )
        if not sees_run_dir:
            self._link.log(
                f"sparktrain: {self._host} does not see the run directory"
                f" {self._spec.run_dir}: checkpoints and models written here stay on this host."
                " Use a run_dir on storage that all hosts share."
            )
        return cards

    def _fail(self, failure: Failure) -> None:
        if self._feeder is not None:
            self._feeder.is_kept = self._is_spill_kept(failure)
        self._link.send(Failed(failure=failure.to_dict()))
        if failure.is_echo and failure.kind not in ("ended", "cut"):
            time.sleep(ECHO_WAIT_S)
        raise NodeFailureError(failure)

    def _on_frame(self, values: dict[str, Any]) -> None:
        """A frame from the trainer: remember what the result needs, pass on the rest."""
        if values.get("kind") == "export":
            self._model_path = str(values["path"])
            return
        if values.get("kind") == "ask" and self._trays is not None:
            self._trays.free(values["freed"])
            self._trays.ask()
            return
        if values.get("kind") == "feed":
            self._feed = {name: value for name, value in values.items() if name != "kind"}
            return
        message = from_dict(values)
        if isinstance(message, Progress):
            self._progress.update({k: v for k, v in values.items() if v is not None})
        elif isinstance(message, Report):
            self._reports.append(message.metrics)
        self._link.send(message)

    def _on_command(self, message: Message) -> None:
        if isinstance(message, End):
            self._may_restart = self._may_restart and message.may_restart
            self._end("ended", message.reason)
        elif isinstance(message, Stop) and self._trainer is not None:
            self._trainer.send({"kind": "stop"})

    def _end(self, kind: str, reason: str) -> None:
        if self._ended is None:  # what came first is the cause
            self._ended = (kind, reason)
        self._departure.give_up()
        if self._trainer is not None:
            self._trainer.end(*self._ended)
