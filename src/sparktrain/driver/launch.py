"""Runs a plan: submits the job, watches it, ends it when it must end, starts it again if it may."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloudpickle

from sparktrain.agent.failure import find_failure
from sparktrain.driver import failures, spark_facts, state
from sparktrain.driver.advice import describe_input
from sparktrain.driver.boards import Board
from sparktrain.driver.display import Display, make_display
from sparktrain.driver.interrupt import holding_back_spark
from sparktrain.driver.job import Answer, BarrierJob
from sparktrain.driver.monitor import Monitor
from sparktrain.driver.plan import Plan, check_slots
from sparktrain.driver.record import RunRecord
from sparktrain.errors import LaunchError, ResourceError, ResultError
from sparktrain.spec import Failure, FeedResult, NodeResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK_S = 0.2
#: How long a cancelled job and its trainers may take to be gone.
END_TIMEOUT_S = 20.0
#: A node whose executor died is known by its broken link, which may come behind Spark's error.
LOST_LINK_WAIT_S = 3.0
#: What nodes said last may still be on its way when Spark's job is done.
LAST_WORDS_S = 5.0
#: Spark's status may miss the start of tasks until the next heartbeat of the executors (10 s).
STATUS_LAG_S = 12.0


@dataclass(frozen=True)
class Outcome:
    """What a finished run gave."""

    value: Any
    metrics: tuple[Mapping[str, float], ...]
    model_path: str | None
    nodes: tuple[NodeResult, ...]
    num_restarts: int
    #: Of a TensorBoard that stays.
    board_url: str | None = None


class _AttemptError(Exception):
    """One attempt is over and all its processes are gone."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.what)
        self.failure = failure


def launch(spark: SparkSession, plan: Plan) -> Outcome:
    """Runs the plan to its end, over restarts; raises the first cause if it fails."""
    bind, told = spark_facts.find_driver_address(spark)
    with (
        RunRecord(plan) as record,
        Monitor(plan, record, bind, told) as monitor,
        make_display(plan) as display,
        Board(plan, told) as board,
        holding_back_spark(),
    ):
        try:
            outcome = Launch(spark, plan, record, monitor, display, board).run()
        except BaseException as error:
            record.finish({"ok": False, "error": f"{type(error).__name__}: {error}"[:4000]})
            raise
        record.finish(
            {
                "ok": True,
                "model_path": outcome.model_path,
                "num_restarts": outcome.num_restarts,
                "metrics": [dict(row) for row in outcome.metrics],
                "nodes": [dataclasses.asdict(node) for node in outcome.nodes],
            }
        )
        record.remove_checkpoints()
        if plan.settings.tensorboard_keep and plan.board is not None:
            outcome = dataclasses.replace(outcome, board_url=_wait_for_board(board, monitor))
            if news := board.find_news(monitor.snapshot):
                display.note(news)
        display.finish(monitor.snapshot, outcome.num_restarts)
        if (sentence := describe_input(outcome.nodes, bool(plan.stage.tables))) is not None:
            display.note(sentence)
        return outcome


def _wait_for_board(board: Board, monitor: Monitor) -> str | None:
    """Where the one is that stays; it may still be starting."""
    if board.here is not None:
        with contextlib.suppress(LaunchError):  # a result is worth more than its picture
            board.here.wait()
    return board.find(monitor.snapshot)[0] or None


class Launch:
    """One run in progress."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        record: RunRecord,
        monitor: Monitor,
        display: Display,
        board: Board,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._record = record
        self._monitor = monitor
        self._display = display
        self._board = board
        self._deadline = time.monotonic() + plan.timeout_s if plan.timeout_s else None

    def run(self) -> Outcome:
        attempt = 0
        while True:
            try:
                answers = self._run_attempt(attempt)
                return self._make_outcome(answers, attempt)
            except _AttemptError as failed:
                failure = failed.failure
                left = self._plan.max_restarts - attempt
                if not state.may_restart(failure, left, self._plan.settings.restart_on_error):
                    raise failures.to_error(failure, self._record, attempt) from None
            attempt += 1
            self._display.note(
                f"{failure.node}: {failure.what}. Restart {attempt} of {self._plan.max_restarts}."
            )
            self._wait_for_slots(failure, attempt)

    def _wait_for_slots(self, failure: Failure, attempt: int) -> None:
        """Before a restart Spark may have to replace an executor; else the first cause stays."""
        wait_s = self._plan.settings.restart_wait_s
        if self._deadline is not None:
            wait_s = max(0.0, min(wait_s, self._deadline - time.monotonic()))
        try:
            check_slots(self._spark, len(self._plan.nodes), wait_s, self._plan.gpus.profile)
        except ResourceError as error:
            cause = failures.to_error(failure, self._record, attempt - 1)
            cause.add_note(f"No restart was possible: {error}")
            raise cause from None

    def _run_attempt(self, attempt: int) -> list[Answer]:
        monitor = self._monitor
        monitor.start_attempt(attempt)
        self._idle_since: float | None = None
        # Of this attempt the nodes' own answers count: they are complete even without a link.
        self._earlier_metrics = monitor.snapshot.metrics
        spec = dataclasses.replace(self._plan.make_spec(attempt), control=monitor.address)
        profile = self._plan.gpus.profile
        job = BarrierJob(self._spark, self._plan.stage.frame, spec, monitor.wake, profile)
        job.start()
        try:
            self._watch(job)
        except BaseException as error:
            reason = "the run timed out" if isinstance(error, TimeoutError) else "the run ended"
            try:
                if isinstance(error, KeyboardInterrupt):
                    self._stop_gently(job)
            finally:  # also at a second Ctrl-C
                self._end(job, reason, may_restart=False)
            raise
        cause = monitor.snapshot.cause
        if job.error is None and cause is None:
            self._wait_for_links(time.monotonic() + LAST_WORDS_S)
            return job.answers()
        left = self._plan.max_restarts - attempt
        on_error = self._plan.settings.restart_on_error
        text = str(job.error) if job.error is not None else ""
        likely = cause or find_failure(text)
        if likely is not None:
            may_restart = state.may_restart(likely, left, on_error)
        else:  # an error of Spark itself does not restart
            may_restart = left > 0 and (not text or state.is_lost_executor(text))
        self._end(job, "another node failed", may_restart)
        nodes = monitor.snapshot.nodes
        self._check_empty([nodes[node.name].fed for node in self._plan.workers])
        raise _AttemptError(self._find_cause(job)) from job.error

    def _watch(self, job: BarrierJob) -> None:
        """Returns when the job is over or a node said that it failed."""
        submitted = time.monotonic()
        while not job.is_done():
            self._monitor.wait(TICK_S)
            snapshot = self._monitor.snapshot
            self._display.update(snapshot, self._monitor.take_lines())
            self._tell_board(snapshot)
            if snapshot.cause is not None:
                return
            self._release_evaluator(snapshot)
            now = time.monotonic()
            if self._deadline is not None and now >= self._deadline:
                self._stop_gently(job)
                raise failures.make_timeout(snapshot, self._plan.timeout_s, self._record)
            launch_timeout_s = self._plan.settings.launch_timeout_s
            if now - submitted > launch_timeout_s and self._is_stuck(snapshot, job):
                raise failures.make_launch_timeout(
                    snapshot, launch_timeout_s, spark_facts.count_slots(self._spark)
                )

    def _tell_board(self, snapshot: state.Snapshot) -> None:
        if news := self._board.find_news(snapshot):
            self._display.note(news)

    def _is_stuck(self, snapshot: state.Snapshot, job: BarrierJob) -> bool:
        """Whether Spark has not started the nodes. That their link is missing proves nothing."""
        if snapshot.num_joined == len(snapshot.nodes) or job.is_running() is not False:
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = time.monotonic()
        return time.monotonic() - self._idle_since > STATUS_LAG_S

    def _release_evaluator(self, snapshot: state.Snapshot) -> None:
        """Tells an evaluator that training is over, by ctx.should_stop."""
        ranks = [node.name for node in self._plan.nodes if node.rank is not None]
        others = [node.name for node in self._plan.nodes if node.rank is None]
        is_over = all(snapshot.nodes[name].status in ("returned", "done") for name in ranks)
        for name in others if is_over else ():
            # Again and again: its link may be down just now.
            if snapshot.nodes[name].status == "running":
                self._monitor.ask_to_stop(name)

    def _stop_gently(self, job: BarrierJob) -> None:
        """Turns ctx.should_stop true and gives the functions a moment to see it."""
        until = time.monotonic() + self._plan.settings.stop_grace_s
        while time.monotonic() < until and not job.is_done():
            self._monitor.ask_to_stop()
            self._monitor.wait(TICK_S)

    def _check_empty(self, fed: list[Mapping[str, float] | None]) -> None:
        """A table without rows is the cause of whatever came of it."""
        if self._plan.stage.tables and (name := state.find_empty(fed)) is not None:
            raise failures.make_empty(name, self._plan)

    def _end(self, job: BarrierJob, reason: str, may_restart: bool) -> None:
        """Ends every trainer and the job; returns when they are gone."""
        deadline = time.monotonic() + END_TIMEOUT_S
        # Nodes with a link end themselves at once; the others are ended by Spark. Again and
        # again, because nodes may come up and jobs be submitted while we are at it.
        self._monitor.end_nodes(reason, may_restart)
        try:
            while not job.join(0.5) and time.monotonic() < deadline:
                job.cancel()
                self._monitor.end_nodes(reason, may_restart)
            self._wait_for_links(deadline)
        except KeyboardInterrupt:  # somebody cannot wait: Spark ends what is left
            job.cancel()
            raise
        self._display.update(self._monitor.snapshot, self._monitor.take_lines())

    def _wait_for_links(self, deadline: float) -> None:
        while self._monitor.num_links() and time.monotonic() < deadline:
            self._monitor.wait(TICK_S)

    def _find_cause(self, job: BarrierJob) -> Failure:
        text = str(job.error) if job.error is not None else ""
        if state.is_lost_executor(text):
            until = time.monotonic() + LOST_LINK_WAIT_S
            while not self._monitor.snapshot.gone and time.monotonic() < until:
                self._monitor.wait(TICK_S)
        cause = state.pick_cause(self._monitor.snapshot, find_failure(text), text)
        if cause is None:
            raise failures.explain_spark_error(text) from job.error
        return cause

    def _make_outcome(self, answers: list[Answer], attempt: int) -> Outcome:
        if not answers and self._plan.stage.tables:
            # Of a DataFrame that it knows to be empty, Spark makes a stage without tasks.
            raise failures.make_empty(self._plan.stage.tables[0].name, self._plan)
        if len(answers) != len(self._plan.nodes):
            raise LaunchError(
                problem=f"Spark handed back {len(answers)} of {len(self._plan.nodes)} nodes.",
                advice="This should not happen; please report it with the run directory.",
            )
        workers = [a for a, n in zip(answers, self._plan.nodes, strict=True) if n.rank is not None]
        self._check_empty([answer.summary["fed"] for answer in workers])
        metrics = self._earlier_metrics
        nodes = []
        for node, answer in zip(self._plan.nodes, answers, strict=True):
            summary = answer.summary
            self._monitor.add_lines(node.name, summary["unsent_lines"], summary["dropped_lines"])
            for row in summary["reports"]:
                metrics = state.add_metrics(metrics, row)
            nodes.append(
                NodeResult(
                    role=node.role,
                    index=node.index,
                    host=summary["host"],
                    seconds=summary["seconds"],
                    exit=summary["exit"],
                    rows=summary["rows"],
                    steps=summary["steps"],
                    feed=FeedResult(**summary["feed"]) if summary["feed"] else None,
                )
            )
        self._display.update(self._monitor.snapshot, self._monitor.take_lines())
        return Outcome(
            value=self._open_value(answers[0]),
            metrics=metrics,
            model_path=answers[0].summary["model_path"],
            nodes=tuple(nodes),
            num_restarts=attempt,
        )

    def _open_value(self, answer: Answer) -> Any:
        try:
            return cloudpickle.loads(answer.value)
        except Exception as error:
            raise ResultError(
                node=answer.summary["node"],
                host=answer.summary["host"],
                what="what the function returned cannot be opened on the driver:"
                f" {type(error).__name__}: {error}",
                advice="Return plain values, or import on the driver what the value needs.",
            ) from error
