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
from typing import TYPE_CHECKING, Any, NoReturn

from sparktrain.agent import rendezvous
from sparktrain.agent.departure import Departure
from sparktrain.agent.device_refusals import find_doubled
from sparktrain.agent.devices import split_devices
from sparktrain.agent.failure import NodeFailureError, make_device_failure
from sparktrain.agent.feed import Feeder
from sparktrain.agent.given import make_given
from sparktrain.agent.holding import Holding, is_holder
from sparktrain.agent.job import describe_data, make_job
from sparktrain.agent.lifeline import Lifeline
from sparktrain.agent.node_devices import Devices, NodeDevices, choose_variables
from sparktrain.agent.node_trainer import NodeTrainer
from sparktrain.agent.process import (
    TrainerProcess,
    find_python_path,
    make_environment,
)
from sparktrain.agent.summary import Summary
from sparktrain.agent.tensorboard import make_chief_board
from sparktrain.agent.unread import leave_unread
from sparktrain.data.spill_folders import find_roots
from sparktrain.data.trays import Trays
from sparktrain.errors import DeviceError
from sparktrain.spec import PERIODIC, RUN_FILE, Failure, NodeSpec, RunSpec, make_cluster
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
#: A task that Spark ends inside allGather takes its executor with it, and Spark ends all tasks
#: when one fails. It looks once a second whether a task has its answer: before that, nobody fails.
MEETING_WAIT_S = 1.5


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
        self._summary = Summary(node, self._host)
        self._may_restart = spec.may_restart
        self._trainer = NodeTrainer(spec.worker_restarts if node.rank is not None else 0)
        self._trays: Trays | None = None
        self._holding: Holding | None = None
        self._feeder: Feeder | None = None
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
        with (
            self._find_devices() as devices,
            rendezvous.reserve_port() as holder,
            self._departure,
            self._make_trays() as self._trays,
            self._make_holding() as self._holding,
            self._trainer,
            self._make_feeder() as feeder,
            make_chief_board(spec, self._node.rank == 0, self._host, self._tell_board),
        ):
            self._feeder = feeder
            trainer = self._start(devices)
            feeder.is_kept = self._may_restart  # until it is known how this ends
            spills = feeder.find_earlier()
            cards = self._meet(holder.getsockname()[1], list(spills), devices.ids)
            addresses = {card.node: (card.host, card.port) for card in cards}
            stores = [dict(card.door) for card in cards if card.door is not None]
            self._trainer.tell(
                {
                    "kind": "cluster",
                    "cluster": make_cluster(spec.nodes, addresses),
                    "stores": stores,
                }
            )
            self._link.send(Joined(host=self._host, pid=trainer.pid))
            if spec.tables:
                workers = cards[: spec.num_workers]  # an evaluator is the last node
                if feeder.start(self._batches, spills, [card.spilled for card in workers]):
                    self._link.log("sparktrain: rows of an earlier attempt are used again")
            if self._holding is not None:
                self._hold(trainer)
            failure = trainer.wait()
            while failure is not None and self._may_replace(failure):
                trainer = self._replace(failure)
                failure = trainer.wait()
            if failure is not None:
                self._do_without(failure, stores)
            feeder.stop()
            feeder.is_kept = False
            self._link.send(Returned())
            self._departure.wait()
            exit_code = trainer.exit() if failure is None else trainer.exit_code
            value = trainer.value or b""
        is_first = self._node.rank == 0
        return self._summary.to_dict(exit_code), value if is_first else b""

    @contextlib.contextmanager
    def _find_devices(self) -> Iterator[Devices]:
        """This node's GPUs, for as long as its trainer may be there."""
        spec, wish = self._spec, self._spec.devices
        addresses = None
        if (resource := self._context.resources().get(wish.resource)) is not None:
            shares = split_devices([self._node], resource.addresses, wish)
            addresses = shares.get(self._node.name, ())
        executors = [info.address for info in self._context.getTaskInfos()]
        index = self._context.partitionId()
        here = make_given(addresses, spec.nodes, wish, executors, index, spec.attempt > 0)
        given = NodeDevices(wish, self._node, here, spec.env, spec.run_id)
        try:
            devices = given.__enter__()
        except DeviceError as error:
            self._refuse(make_device_failure(self._node.name, self._host, error))
        try:
            yield devices
        finally:
            given.__exit__()

    def _make_environment(self, devices: Devices) -> dict[str, str]:
        wished = choose_variables(self._node, devices, self._spec.env)
        return make_environment(os.environ, wished, find_python_path())

    def _tell_board(self, url: str, problem: str) -> None:
        self._link.send(Board(url, problem))

    def _make_trays(self) -> AbstractContextManager[Trays | None]:
        # Memory without a name is Linux' own; elsewhere all blocks are read from the spill.
        if self._spec.tables and self._node.rank is not None and hasattr(os, "memfd_create"):
            with contextlib.suppress(OSError):  # a container may forbid it
                return Trays()
        return nullcontext()

    def _make_holding(self) -> AbstractContextManager[Holding | None]:
        if not is_holder(self._spec, self._node):
            return nullcontext()
        return Holding(self._spec, self._node, self._host)

    def _start(self, devices: Devices) -> TrainerProcess:
        """Starts the trainer and tells it its job: TensorFlow loads while the nodes meet."""
        spec, trays = self._spec, self._trays
        data = describe_data(spec, self._node)
        job = make_job(
            spec,
            self._node,
            len(data),
            devices,
            trays.describe() if trays is not None else None,
            self._holding.secret if self._holding is not None else None,
        )

        def make() -> TrainerProcess:
            return TrainerProcess(
                self._node,
                self._host,
                self._make_environment(devices),
                self._link.log,
                self._on_frame,
                inherited=[trays.descriptor] if trays is not None else [],
            )

        return self._trainer.start(make, job, spec.function + data)

    def _hold(self, trainer: TrainerProcess) -> None:
        """Keeps a parameter server until all others are done."""
        self._departure.wait(lambda: trainer.exit_code is not None)
        if self._departure.is_released:
            trainer.send({"kind": "stop"})
        # Else the driver says so, or Spark ends the task.

    def _is_loss(self, failure: Failure) -> bool:
        """Whether a worker that trains alone is lost without a fault of its function."""
        is_alone = self._spec.distribution == PERIODIC and self._node.rank is not None
        is_gone = failure.kind == "signal" or (failure.kind == "exit" and not failure.traceback)
        return is_alone and is_gone and self._trainer.ended is None

    def _may_replace(self, failure: Failure) -> bool:
        return self._trainer.restarts_left > 0 and self._is_loss(failure)

    def _replace(self, failure: Failure) -> TrainerProcess:
        """Starts a lost worker again, beside the others, which go on."""
        self._link.log(f"sparktrain: {failure.what}; {self._node.name} is started again")
        trainer = self._trainer.replace()
        self._link.send(Joined(host=self._host, pid=trainer.pid))
        return trainer

    def _do_without(self, failure: Failure, stores: list[dict[str, Any]]) -> None:
        """The end of this node's work; and of the run, unless the others can go on without it."""
        if not self._is_loss(failure) or self._node.rank == 0:
            self._fail(failure)
        from sparktrain.wire.parameters import Stores, leave_all

        self._link.log(f"sparktrain: {failure.what}; the others go on without {self._node.name}")
        leave_all(Stores.from_dicts(stores, self._spec.feed_token), int(self._node.rank or 0))

    def _make_feeder(self) -> Feeder:
        spec, partition = self._spec, self._context.partitionId()
        local_dirs = os.environ.get("SPARK_LOCAL_DIRS", "")

        def on_done(outcome: dict[str, int] | str) -> None:
            if isinstance(outcome, str):
                self._trainer.fail("data", outcome)
            else:
                self._summary.fed = outcome
                self._link.send(Fed(rows=dict(outcome)))

        return Feeder(
            spec.tables,
            is_mixed=spec.is_mixed,
            partition=partition,
            attempt=spec.attempt,
            roots=find_roots(local_dirs, spec.spill_dir, spec.run_id),
            tell=self._trainer.tell,
            on_done=on_done,
            is_cut=self._lifeline.is_gone,
            trays=self._trays,
        )

    def _is_spill_kept(self, failure: Failure) -> bool:
        """Whether a restart may follow that can use it."""
        is_own = failure.kind in ("exception", "data", "exit", "result") and not failure.is_echo
        may_follow = self._may_restart and failure.kind != "versions"
        return may_follow and (self._spec.restart_on_error or not is_own)

    def _meet(
        self, port: int, spilled: Sequence[Sequence[int]], gpus: Sequence[str]
    ) -> list[rendezvous.NodeCard]:
        sees_run_dir = (Path(self._spec.run_dir) / RUN_FILE).exists()
        desk = self._departure.open(self._host)
        door = None
        if self._holding is not None and (trainer := self._trainer.process) is not None:
            door = self._holding.wait(trainer)
            if door is None and (failure := trainer.wait()) is not None:
                self._refuse(failure)
        card = rendezvous.make_card(
            self._node, self._host, port, sees_run_dir, desk, spilled, door, gpus
        )
        cards = rendezvous.meet(self._context, card)
        if (echo := rendezvous.find_echo(self._node, self._host, cards)) is not None:
            self._fail(echo)
        self._departure.join(cards[0].desk)
        unlike = rendezvous.find_unlike(self._node, self._host, cards, self._spec.driver_versions)
        if unlike is not None:
            time.sleep(MEETING_WAIT_S)
            self._fail(unlike)
        if doubled := find_doubled((f"{card.node} on {card.host}", card.devices) for card in cards):
            time.sleep(MEETING_WAIT_S)
            self._fail(Failure(self._node.name, self._host, "devices", doubled))
        if not sees_run_dir:
            self._link.log(
                f"sparktrain: {self._host} does not see the run directory"
                f" {self._spec.run_dir}: checkpoints and models written here stay on this host."
                " Use a run_dir on storage that all hosts share."
            )
        return cards

    def _refuse(self, failure: Failure) -> NoReturn:
        """Fails before the nodes have met, but not before they have: the others are there."""
        card = rendezvous.make_card(
            self._node, self._host, 0, sees_run_dir=False, problem=failure.what
        )
        rendezvous.meet(self._context, card)
        time.sleep(MEETING_WAIT_S)
        self._fail(failure)

    def _fail(self, failure: Failure) -> NoReturn:
        if self._feeder is not None:
            self._feeder.is_kept = self._is_spill_kept(failure)
        self._link.send(Failed(failure=failure.to_dict()))
        if failure.is_echo and failure.kind not in ("ended", "cut"):
            time.sleep(ECHO_WAIT_S)
        raise NodeFailureError(failure)

    def _on_frame(self, values: dict[str, Any]) -> None:
        """A frame from the trainer: remember what the result needs, pass on the rest."""
        if self._summary.take(values):
            return
        if values.get("kind") == "door" and self._holding is not None:
            self._holding.note_port(int(values["port"]))
            return
        if values.get("kind") == "ask" and self._trays is not None:
            self._trays.free(values["freed"])
            self._trays.ask()
            return
        message = from_dict(values)
        self._summary.note(message, values)
        self._link.send(message)

    def _on_command(self, message: Message) -> None:
        if isinstance(message, End):
            self._may_restart = self._may_restart and message.may_restart
            self._end("ended", message.reason)
        elif isinstance(message, Stop):
            self._trainer.stop()

    def _end(self, kind: str, reason: str) -> None:
        self._trainer.end(kind, reason)
        self._departure.give_up()
