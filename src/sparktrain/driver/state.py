"""The state of a run as frozen values, and how messages change it. No I/O here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparktrain.spec import Failure, NodeSpec
from sparktrain.wire.message import Message
from sparktrain.wire.messages import Board, Bye, Failed, Fed, Joined, Progress, Report, Returned


@dataclass(frozen=True)
class NodeState:
    """What is known of one node."""

    name: str
    #: "waiting", "running", "returned", "failed" or "done".
    status: str = "waiting"
    host: str = ""
    pid: int | None = None
    progress: Progress = field(default_factory=Progress)
    #: Rows that came in, by table, once all have.
    fed: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Snapshot:
    """A frozen picture of a run: what the terminal, the record and tests read."""

    run_id: str
    nodes: Mapping[str, NodeState]
    attempt: int = 0
    #: One row an epoch, or a call of ctx.report().
    metrics: tuple[Mapping[str, float], ...] = ()
    #: Failures of this attempt in the order of their arrival.
    failures: tuple[Failure, ...] = ()
    #: Nodes of this attempt whose link broke without a word, in order.
    lost: tuple[str, ...] = ()
    #: The URL of a TensorBoard beside the chief, and why there is none.
    board: tuple[str, str] = ("", "")

    @property
    def num_joined(self) -> int:
        return sum(1 for node in self.nodes.values() if node.status != "waiting")

    @property
    def cause(self) -> Failure | None:
        """The first failure that is not the echo of another one."""
        return next((failure for failure in self.failures if not failure.is_echo), None)

    @property
    def gone(self) -> tuple[str, ...]:
        """Nodes that a lost executor may have taken with it, the likeliest first.

        An agent may outlive its executor by a moment, and say that Spark has ended its task.
        """
        cut = (failure.node for failure in self.failures if failure.kind == "cut")
        return (*self.lost, *cut)


def start_run(
    run_id: str, nodes: Sequence[NodeSpec], metrics: Sequence[Mapping[str, float]] = ()
) -> Snapshot:
    """A run at its beginning; with metrics, one that goes on with an unfinished one."""
    states = {node.name: NodeState(node.name) for node in nodes}
    return Snapshot(run_id=run_id, nodes=states, metrics=tuple(metrics))


def start_attempt(snapshot: Snapshot, attempt: int) -> Snapshot:
    """All nodes wait again, and so does a board beside the chief; the metrics stay."""
    nodes = {name: NodeState(name) for name in snapshot.nodes}
    return replace(snapshot, attempt=attempt, nodes=nodes, failures=(), lost=(), board=("", ""))


def apply(snapshot: Snapshot, node: str, attempt: int, message: Message) -> Snapshot:
    """The state after a message. Late messages of an earlier attempt change nothing."""
    known = snapshot.nodes.get(node)
    if known is None or attempt != snapshot.attempt:
        return snapshot
    snapshot = open_link(snapshot, node, attempt)
    if isinstance(message, Joined):
        # Told again after an outage, it is no news of a node that has come further.
        status = "running" if known.status == "waiting" else known.status
        return _with(snapshot, node, status=status, host=message.host, pid=message.pid)
    if isinstance(message, Progress):
        return _with(snapshot, node, progress=_newer(known.progress, message))
    if isinstance(message, Report):
        return replace(snapshot, metrics=add_metrics(snapshot.metrics, message.metrics))
    if isinstance(message, Fed):
        return _with(snapshot, node, fed=message.rows)
    if isinstance(message, Board):
        return replace(snapshot, board=(message.url, message.problem))
    if isinstance(message, Returned):
        return _with(snapshot, node, status="returned")
    if isinstance(message, Bye):
        return _with(snapshot, node, status="done")
    if isinstance(message, Failed):
        failure = Failure.from_dict({**message.failure, "node": node})
        failed = _with(snapshot, node, status="failed")
        if failure in snapshot.failures:  # told again after an outage
            return failed
        return replace(failed, failures=(*snapshot.failures, failure))
    return snapshot


def open_link(snapshot: Snapshot, node: str, attempt: int) -> Snapshot:
    """The state after a link was let in: a node that was lost is back, even if it is silent."""
    if attempt != snapshot.attempt or node not in snapshot.lost:
        return snapshot
    return replace(snapshot, lost=tuple(name for name in snapshot.lost if name != node))


def close_link(snapshot: Snapshot, node: str, attempt: int) -> Snapshot:
    """The state after a link ended: a node that said nothing about it may be lost."""
    known = snapshot.nodes.get(node)
    if known is None or attempt != snapshot.attempt or known.status in ("failed", "done"):
        return snapshot
    return replace(snapshot, lost=tuple(dict.fromkeys((*snapshot.lost, node))))


def add_metrics(
    rows: tuple[Mapping[str, float], ...], row: Mapping[str, float]
) -> tuple[Mapping[str, float], ...]:
    """Adds a row; a row with an epoch is merged into an earlier one of the same fit and epoch."""
    key = (row.get("fit"), row.get("epoch"))
    if key[1] is not None:
        for position, earlier in enumerate(rows):
            if (earlier.get("fit"), earlier.get("epoch")) == key:
                return (*rows[:position], {**earlier, **row}, *rows[position + 1 :])
    return (*rows, dict(row))


def pick_cause(snapshot: Snapshot, reported: Failure | None, spark_error: str) -> Failure | None:
    """The first cause of a failed attempt, from all that is known when Spark's job has ended.

    A node's own words come first, as they arrived; then what Spark was told; then a node that
    vanished; then an echo.
    """
    if snapshot.cause is not None:
        return snapshot.cause
    if reported is not None and not reported.is_echo:
        return reported
    if is_lost_executor(spark_error):
        # One that is lost before it had a link is the only one that never said a word.
        silent = [node.name for node in snapshot.nodes.values() if node.status == "waiting"]
        told = _find_named(snapshot, spark_error)
        known_lost = [*told, *snapshot.gone, *(silent if len(silent) == 1 else [])]
        name = next(iter(known_lost), "a node")
        known = snapshot.nodes.get(name)
        return Failure(
            node=name,
            host=known.host if known else "",
            kind="lost",
            what=_reason(spark_error),
        )
    echoes = [failure for failure in snapshot.failures if failure.kind not in ("ended", "cut")]
    return echoes[0] if echoes else reported


#: How Spark says that a task is gone with its process, and what we say.
_LOSSES = {
    "ExecutorLostFailure": "its Spark executor was lost",
    "Python worker exited unexpectedly": "its Python worker in Spark was killed",
}
#: Stage and partition of the task that ended a barrier stage.
_BARRIER_TASK = re.compile(r"barrier task \w+\(\d+, (\d+)\)")


def is_lost_executor(text: str) -> bool:
    return any(mark in text for mark in _LOSSES)


def _find_named(snapshot: Snapshot, text: str) -> list[str]:
    """The node that Spark's error is about: an agent that outlives its executor may be ended by
    us before it can say that it was cut off, and then only Spark knows.
    """
    found = _BARRIER_TASK.search(text)
    names = list(snapshot.nodes)  # in the order of Spark's partitions
    return names[int(found[1]) : int(found[1]) + 1] if found is not None else []


def _reason(text: str) -> str:
    for line in text.splitlines():
        for mark, what in _LOSSES.items():
            if mark in line:
                return f"{what}: {line[line.index(mark) :][:300].strip().rstrip('.')}"
    return "it vanished"


def find_empty(fed: Sequence[Mapping[str, float] | None]) -> str | None:
    """The first table that has no rows on any worker; None while that is not known of all."""
    known = [rows for rows in fed if rows is not None]
    if len(known) < len(fed) or not known:
        return None
    return next((name for name in known[0] if sum(rows[name] for rows in known) == 0), None)


def may_restart(failure: Failure, num_left: int, on_error: bool) -> bool:
    """Whether the group starts again: lost nodes yes, the user's own errors only if asked."""
    if num_left <= 0 or failure.kind == "versions":
        return False
    return on_error or is_loss(failure)


def is_loss(failure: Failure) -> bool:
    return failure.kind in ("signal", "lost") or failure.is_echo


def _newer(known: Progress, fresh: Progress) -> Progress:
    """A fresh message without a speed or metrics keeps those already known."""
    kept: dict[str, Any] = {}
    if fresh.examples_per_s is None:
        kept["examples_per_s"] = known.examples_per_s
    if fresh.steps_per_s is None:
        kept["steps_per_s"] = known.steps_per_s
    if not fresh.metrics:
        kept["metrics"] = known.metrics
    return replace(fresh, **kept)


def _with(snapshot: Snapshot, node: str, **changes: Any) -> Snapshot:
    nodes = {**snapshot.nodes, node: replace(snapshot.nodes[node], **changes)}
    return replace(snapshot, nodes=nodes)
