"""From a failure as plain values to the error the user sees."""

from __future__ import annotations

from collections.abc import Sequence

from sparktrain.agent.failure import find_failure
from sparktrain.driver import state
from sparktrain.driver.plan import Plan
from sparktrain.driver.record import RunRecord
from sparktrain.errors import (
    DataError,
    DevicesTakenError,
    LaunchError,
    NodeFailedError,
    NodeLostError,
    ResultError,
    RunTimeoutError,
    SparktrainError,
    TrainingError,
    VersionMismatchError,
)
from sparktrain.spec import Failure

_RESTART_ADVICE = (
    "Give max_restarts=1 or more to go on from the last checkpoint when a node is lost."
)
_CLUSTER_ADVICE = "Start a cluster with the same run_dir, and feed again."


def to_error(failure: Failure, record: RunRecord, num_restarts: int | None) -> SparktrainError:
    """The error for the first cause of a failed run, or of a cluster (num_restarts=None)."""
    if failure.kind == "versions":
        return VersionMismatchError(differences=failure.differences or {})
    kinds: dict[str, type[TrainingError]] = {
        "result": ResultError,
        "data": DataError,
        "taken": DevicesTakenError,
    }
    if state.is_loss(failure):
        cls: type[TrainingError] = NodeLostError
        advice = _CLUSTER_ADVICE if num_restarts is None else _RESTART_ADVICE
        advice = f"Restarts so far: {num_restarts}." if num_restarts else advice
    else:
        cls, advice = kinds.get(failure.kind, NodeFailedError), ""
    log_path = record.log_path(failure.node)
    return cls(
        node=failure.node,
        host=failure.host,
        what=failure.what,
        exit_code=failure.exit_code,
        signal=failure.signal,
        traceback=failure.traceback,
        tail=failure.tail or record.tail(failure.node),
        log_path=str(log_path) if log_path.exists() else "",
        advice=advice,
    )


def explain_start(problems: Sequence[str], record: RunRecord) -> SparktrainError:
    """For what tasks say that did not get the nodes of a cluster started."""
    for problem in problems:
        if (failure := find_failure(problem)) is not None:
            return to_error(failure, record, None)
    return LaunchError(
        problem=f"A node could not be started: {problems[0]}",
        advice="`sparktrain doctor` looks at the Python of the executors.",
    )


def make_empty(name: str, plan: Plan) -> DataError:
    """The error for a table without rows."""
    return DataError(
        node=plan.nodes[0].name,
        host="",
        what=f"the data {name!r} has no rows",
        advice="Check its filters and joins: df.limit(5).show() shows what it has.",
    )


def make_timeout(
    snapshot: state.Snapshot, timeout_s: float | None, record: RunRecord
) -> RunTimeoutError:
    """The error at timeout_s: names the first node that was not done."""
    busy = [node for node in snapshot.nodes.values() if node.status not in ("returned", "done")]
    node = busy[0] if busy else next(iter(snapshot.nodes.values()))
    doing = {
        "waiting": "the node had not come up",
        "returned": "the run was not over, although all functions had returned,",
        "done": "the run was not over, although all functions had returned,",
        "failed": "the function had failed with its peers",
    }.get(node.status, "the function was still running")
    where = node.progress
    step = f", at epoch {where.epoch} step {where.step}" if where.epoch else ""
    others = ", ".join(f"{other.name} {other.status}" for other in busy if other is not node)
    log_path = record.log_path(node.name)
    return RunTimeoutError(
        node=node.name,
        host=node.host,
        what=f"{doing} after timeout_s={timeout_s}{step}"
        + (f"; others: {others}" if others else ""),
        tail=record.tail(node.name),
        log_path=str(log_path) if log_path.exists() else "",
        advice="Raise timeout_s, or look in its last lines for what it waits for.",
    )


def make_launch_timeout(
    snapshot: state.Snapshot, timeout_s: float, slots: int | None
) -> LaunchError:
    missing = [node.name for node in snapshot.nodes.values() if node.status == "waiting"]
    known = f" The cluster has {slots} task slots." if slots is not None else ""
    return LaunchError(
        problem=f"Only {snapshot.num_joined} of {len(snapshot.nodes)} nodes came up within"
        f" {timeout_s:g} s; missing: {', '.join(missing)}.{known}",
        advice="Most often other jobs of this Spark application hold the slots. Wait for"
        " those jobs, or raise spark.sparktrain.launchTimeoutS.",
    )


def explain_spark_error(text: str) -> LaunchError:
    """For errors of Spark itself: the known ones in our words."""
    if "No module named" in text:
        start = text.index("No module named")
        return LaunchError(
            problem=f"The Python of the executors cannot start a node: {_line(text[start:])}.",
            advice="Install sparktrain and its dependencies for that Python, or set"
            " PYSPARK_PYTHON to one that has them. `sparktrain doctor` shows which one it is.",
        )
    if "cancelled" in text.lower() or "canceled" in text.lower():
        return LaunchError(
            problem="Spark cancelled the job of this run.",
            advice="Somebody cancelled it, or the session was stopped. Run it again.",
        )
    return LaunchError(
        problem=f"Spark could not run the job of this run: {_line(text)}.",
        advice="The error of Spark above this one has the details.",
    )


def _line(text: str) -> str:
    """The line that says the most: the innermost cause, else the first that is not py4j's."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    own = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (causes[-1:] or own or ["no message"])[0][:500].rstrip(".")
