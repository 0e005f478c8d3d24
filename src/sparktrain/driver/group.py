"""A cluster that is up: started by one short job, watched in a thread, and always ended."""

from __future__ import annotations

import dataclasses
import os
import secrets
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sparktrain.agent.executor import find_start
from sparktrain.agent.feeding import Target
from sparktrain.agent.keeper import KeeperSpec, start_keeper
from sparktrain.agent.start import SCHEMA, StartTask
from sparktrain.driver import failures, spark_facts
from sparktrain.driver.boards import Board
from sparktrain.driver.display import make_display
from sparktrain.driver.hub import Hub, find_cause
from sparktrain.driver.plan import Plan
from sparktrain.driver.record import RunRecord
from sparktrain.driver.tagged import TaggedJob
from sparktrain.errors import LaunchError, SparktrainError
from sparktrain.spec import EVALUATOR, Failure, NodeSpec
from sparktrain.wire.messages import End

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK_S = 0.2
#: An echo of another node's failure is held back this long, so that the cause is seen first.
ECHO_WAIT_S = 3.0
#: A node whose link broke may come back for so long.
LOST_WAIT_S = 5.0
#: How long nodes may take to be gone.
END_TIMEOUT_S = 20.0
BEAT_S = 2.0
#: How long an evaluator may take for its last checkpoint when the training is over.
EVALUATOR_GRACE_S = 30.0
#: How long a TensorBoard beside the chief may take to listen.
BOARD_TIMEOUT_S = 60.0


class Group:
    """The nodes of one cluster, from their start to their end.

    Args:
        is_served: Whether parameter servers and workers serve the chief, which alone is fed.
        own_nodes: Nodes that run beside the driver.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        num_tasks: int,
        is_served: bool,
        own_nodes: tuple[NodeSpec, ...] = (),
    ) -> None:
        self.spark = spark
        self.plan = plan
        self._num_tasks = num_tasks
        self._is_served = is_served
        self._own_nodes = own_nodes
        self._stack = ExitStack()
        self._token = secrets.token_urlsafe(32)
        self._ending = threading.Event()
        self._error: SparktrainError | None = None
        self._echo_since: float | None = None
        self._beaten = 0.0
        #: Since when all functions that train are over.
        self._over_since: float | None = None
        self._is_over = False
        self._has_left = False
        self._thread = threading.Thread(target=self._watch, name="sparktrain-group", daemon=True)

    # Start and end.

    def start(self) -> None:
        """Brings all nodes up; on any failure nothing is left."""
        plan = self.plan
        bind, told = spark_facts.find_driver_address(self.spark)
        try:
            self.record = self._stack.enter_context(RunRecord(plan))
            self.hub = self._stack.enter_context(Hub(plan, self.record, bind, told))
            self.hub.explain = self._explain
            self.display = self._stack.enter_context(make_display(plan))
            self._thread.start()
            self.board = self._stack.enter_context(Board(plan, told))
            self._bring_up()
            self._wait_for_board()
        except BaseException as error:
            self.end("the cluster did not start")
            self._finish_record(error)
            raise

    def _bring_up(self) -> None:
        if self.hub.address is None:
            raise LaunchError(
                problem="The driver cannot listen for the nodes of a cluster.",
                advice="Set spark.driver.bindAddress or spark.sparktrain.controlPort.",
            )
        spec = dataclasses.replace(
            self.plan.make_spec(0),
            control=self.hub.address,
            feed_token=self._token,
            driver_timeout_s=self.plan.settings.driver_timeout_s,
        )
        away = tuple(node for node in self.plan.nodes if node not in self._own_nodes)
        for node in self._own_nodes:
            pid = os.getpid()
            start_keeper(KeeperSpec(spec, node, self.hub.address.host, pid, find_start(pid)))
        task, count = StartTask(spec, away, self._num_tasks), self._num_tasks
        job = TaggedJob(
            self.spark,
            lambda: (
                self.spark.range(0, count, 1, count)
                .mapInArrow(task, SCHEMA, barrier=True, profile=self.plan.gpus.profile)
                .collect()
            ),
            f"sparktrain-{self.plan.run_id}-start",
            f"sparktrain cluster {self.plan.run_id}: start",
            self.hub.wake,
        )
        job.start()
        deadline = time.monotonic() + self.plan.settings.launch_timeout_s
        try:
            while not self.is_up:
                self.hub.wait(TICK_S)
                self.check()
                if job.is_done() and job.error is not None:
                    raise failures.explain_spark_error(str(job.error)) from job.error
                if job.is_done() and (problems := [row[0] for row in job.value if row[0]]):
                    raise failures.explain_start(problems, self.record)
                if self.hub.is_doubled:
                    raise LaunchError(
                        problem="Spark lost an executor while the nodes were starting.",
                        advice="Start the cluster again.",
                    )
                if time.monotonic() > deadline:
                    slots = spark_facts.count_slots(self.spark)
                    raise failures.make_launch_timeout(
                        self.hub.snapshot, self.plan.settings.launch_timeout_s, slots
                    )
        except BaseException:
            job.cancel()
            job.join(END_TIMEOUT_S)
            raise
        job.join(END_TIMEOUT_S)

    def _wait_for_board(self) -> None:
        """The URL is known when the cluster is there."""
        if self.plan.board is None:
            return
        if self.board.here is not None:
            self.board.here.wait()
        deadline = time.monotonic() + BOARD_TIMEOUT_S
        while not any(self.board.find(self.hub.snapshot)) and time.monotonic() < deadline:
            self.check()
            self.hub.wait(TICK_S)
        if news := self.board.find_news(self.hub.snapshot):
            self.display.note(news)

    @property
    def is_up(self) -> bool:
        return self.hub.snapshot.num_joined == len(self.plan.nodes)

    def end(self, reason: str) -> None:
        """Ends every node that is still there; returns when they are gone."""
        hub = getattr(self, "hub", None)
        if hub is not None:
            deadline = time.monotonic() + END_TIMEOUT_S
            while time.monotonic() < deadline:
                hub.end_nodes(reason, may_restart=False)
                hub.wait(TICK_S)
                if not hub.num_links():
                    break
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)
        self._is_over = True
        self._stack.close()

    # Watching.

    @property
    def fed(self) -> tuple[NodeSpec, ...]:
        """The nodes that rows go to."""
        workers = self.plan.workers
        return workers[:1] if self._is_served else workers

    @property
    def target(self) -> Target:
        names = {node.name for node in self.fed}
        doors = tuple(door for door in self.hub.doors if door.node in names)
        return Target(self.plan.run_id, doors, self._token, self.hub.address)

    def find_sated(self) -> set[str]:
        """Nodes that are fed and whose functions want no more rows."""
        names = {node.name for node in self.fed}
        done = {name for name in names if self._status(name) in ("returned", "done")}
        return (self.hub.sated & names) | done

    def has_enough(self, needs_all: bool = False) -> bool:
        """Whether some function wants no more rows, or all do: then no feed goes on."""
        if any(self._counts(failure) for failure in self.hub.snapshot.failures):
            return False  # it is about to be an error
        sated = self.find_sated()
        return len(sated) == len(self.fed) if needs_all else bool(sated)

    def _status(self, name: str) -> str:
        return self.hub.snapshot.nodes[name].status

    def check(self) -> None:
        """Raises the error of the cluster, if there is one."""
        if self._error is not None:
            raise self._error

    def wait_for_cause(self, timeout_s: float) -> None:
        """Raises the cluster's error, for which some moments may be needed."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.check()
            self.hub.wait(TICK_S)
        self.check()

    def _explain(self) -> str:
        return "" if self._error is None else str(self._error)[:20_000]

    def _watch(self) -> None:
        while not self._ending.is_set():
            self.hub.wait(TICK_S)
            now = time.monotonic()
            if now - self._beaten > min(BEAT_S, self.plan.settings.driver_timeout_s / 4):
                self.hub.beat()
                self._beaten = now
            self.display.update(self.hub.snapshot, self.hub.take_lines())
            if self._error is None:
                self._look_for_failure(now)
            self.hub.answer_askers()
            self._lead_out()

    def _look_for_failure(self, now: float) -> None:
        snapshot = self.hub.snapshot
        if self.hub.differences:
            what = "the nodes do not have the same software"
            found: Failure | None = Failure(
                "", "", "versions", what, differences=self.hub.differences
            )
        elif self.hub.doubled:
            first = self.plan.nodes[0].name
            host = snapshot.nodes[first].host
            found = Failure(first, host, "devices", self.hub.doubled)
        else:
            found = self._find_failure()
        if found is None and any(self._counts(failure) for failure in snapshot.failures):
            self._echo_since = self._echo_since or now
            if now - self._echo_since > ECHO_WAIT_S:
                found = next(f for f in snapshot.failures if self._counts(f))
        if found is not None:
            self._error = failures.to_error(found, self.record, None)
            # The others cannot go on without it.
            self.hub.end_nodes("another node failed", may_restart=False)

    def _find_failure(self) -> Failure | None:
        snapshot = self.hub.snapshot
        kept = tuple(failure for failure in snapshot.failures if self._counts(failure))
        cause = find_cause(dataclasses.replace(snapshot, failures=kept))
        if cause is not None:
            return cause
        lost = self.hub.find_lost(LOST_WAIT_S, lambda name: not self._is_spare(name))
        if lost is None or self._has_left:
            return None
        host = snapshot.nodes[lost].host
        return Failure(
            lost, host, "lost", "it vanished without a word", tail=self.record.tail(lost)
        )

    def _counts(self, failure: Failure) -> bool:
        """Whether a failure is one of the cluster: those that serve as workers may be lost."""
        is_loss = failure.kind in ("signal", "cut", "lost", "exit")
        return not (self._is_spare(failure.node) and is_loss) and failure.kind != "ended"

    def _is_spare(self, name: str) -> bool:
        return self._is_served and name.startswith("worker:")

    def _lead_out(self) -> None:
        """When the functions of all workers are over, so is the work of the others."""
        snapshot = self.hub.snapshot
        trains = [node for node in self.plan.nodes if node.rank is not None]
        if self._is_served:
            trains = trains[:1]
        over = ("returned", "done", "failed")
        if not all(self._status(node.name) in over for node in trains):
            return
        names = {node.name for node in trains}
        now = time.monotonic()
        self._over_since = self._over_since or now
        for name, known in snapshot.nodes.items():
            if name in names or known.status != "running":
                continue
            self.hub.ask_to_stop(name)
            # A server of TensorFlow 1 is joined for ever, and an evaluator may look for new
            # checkpoints for ever; but it may also be at its last one.
            grace_s = self.plan.settings.stop_grace_s
            if name.startswith(EVALUATOR):
                grace_s = max(grace_s, EVALUATOR_GRACE_S)
            if now - self._over_since > grace_s:
                self.hub.send(End("the workers are done", may_restart=False), name)
        statuses = [
            known.status
            for name, known in snapshot.nodes.items()
            if not (self._is_spare(name) and name in snapshot.lost)
        ]
        if all(status in over for status in statuses):
            self._has_left = True
            self.hub.let_leave()

    @property
    def has_returned(self) -> bool:
        """Whether every function is over and every process gone."""
        return self._has_left and not self.hub.num_links()

    def _finish_record(self, error: BaseException | None) -> None:
        record = getattr(self, "record", None)
        if record is None:
            return
        if error is not None:
            record.finish({"ok": False, "error": f"{type(error).__name__}: {error}"[:4000]})
            return
        metrics = [dict(row) for row in self.hub.snapshot.metrics]
        record.finish({"ok": True, "model_path": self.hub.model_path, "metrics": metrics})

    def close(self, error: BaseException | None) -> None:
        """After the last word: ends what is left, and writes how it ended."""
        if self._is_over:
            return
        self.end("the cluster ended")
        self._finish_record(error if error is not None else self._error)

    @property
    def is_over(self) -> bool:
        return self._is_over
