"""The error a user sees of each failure: its class, the values it names, what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktrain.agent.failure import NodeFailureError
from sparktrain.driver.failures import (
    explain_spark_error,
    explain_start,
    make_launch_timeout,
    make_timeout,
    to_error,
)
from sparktrain.driver.plan import Plan
from sparktrain.driver.record import RunRecord
from sparktrain.driver.state import Snapshot, apply, start_run
from sparktrain.errors import (
    DevicesTakenError,
    LaunchError,
    NodeFailedError,
    NodeLostError,
    ResultError,
    SparktrainError,
    TrainingError,
    VersionMismatchError,
)
from sparktrain.settings import Settings
from sparktrain.spec import Failure, make_nodes
from sparktrain.trainer.__main__ import _describe
from sparktrain.wire.message import Message
from sparktrain.wire.messages import Bye, Failed, Joined, Progress, Returned, from_dict

CHIEF, WORKER, EVALUATOR = "chief:0", "worker:0", "evaluator:0"
NODES = make_nodes(2, evaluator=True)
JOINED = Joined(host="host-1", pid=1)


def make_plan(run_dir: Path, timeout_s: float | None = 2.5) -> Plan:
    return Plan("r1", run_dir, NODES, 2, "train", b"", {}, 0, timeout_s, Settings())


@pytest.fixture
def record(tmp_path: Path) -> Iterator[RunRecord]:
    with RunRecord(make_plan(tmp_path)) as record:
        yield record


def make_failure(kind: str = "exception", **changes: object) -> Failure:
    values = {"node": WORKER, "host": "host-2", "kind": kind, "what": f"a failure of kind {kind}"}
    return Failure.from_dict({**values, **changes})


def tell(*told: tuple[str, Message]) -> Snapshot:
    snapshot = start_run("r1", NODES)
    for node, message in told:
        snapshot = apply(snapshot, node, 0, message)
    return snapshot


@pytest.mark.parametrize(
    ("failure", "cls"),
    [
        (make_failure("exception"), NodeFailedError),
        (make_failure("exit", exit_code=3), NodeFailedError),
        (make_failure("result"), ResultError),
        (make_failure("devices"), NodeFailedError),
        (make_failure("taken"), DevicesTakenError),
        (make_failure("signal", signal=9), NodeLostError),
        (make_failure("lost"), NodeLostError),
        (make_failure("ended", is_echo=True), NodeLostError),
        (make_failure("exception", is_echo=True), NodeLostError),
        (make_failure("versions", differences={}), VersionMismatchError),
        (make_failure("some later kind"), NodeFailedError),
    ],
    ids=lambda value: getattr(value, "kind", getattr(value, "__name__", None)),
)
def test_every_kind_of_failure_has_its_error(
    record: RunRecord, failure: Failure, cls: type[SparktrainError]
) -> None:
    error = to_error(failure, record, 0)
    assert type(error) is cls
    if isinstance(error, TrainingError):
        assert (error.node, error.host, error.what) == (WORKER, "host-2", failure.what)
        assert (error.exit_code, error.signal) == (failure.exit_code, failure.signal)
        assert str(error).startswith(f"worker:0 on host-2: {failure.what}.")


def test_the_users_own_error_brings_its_traceback_and_no_advice(record: RunRecord) -> None:
    error = to_error(make_failure(traceback="Traceback\nValueError: no"), record, 2)
    assert isinstance(error, NodeFailedError)
    assert error.advice == ""
    assert "Traceback on worker:0:\nTraceback\nValueError: no" in str(error)


def test_a_loss_says_how_to_go_on_or_how_often_that_was_tried(record: RunRecord) -> None:
    for kind in ("signal", "lost"):
        assert "Give max_restarts=1 or more" in str(to_error(make_failure(kind), record, 0))
        text = str(to_error(make_failure(kind), record, 2))
        assert "Restarts so far: 2." in text
        assert "max_restarts" not in text
        text = str(to_error(make_failure(kind), record, None))  # of a cluster, which has none
        assert "same run_dir" in text and "max_restarts" not in text


def test_different_software_is_named_with_the_nodes_that_have_it(record: RunRecord) -> None:
    differences = {"numpy": {"2.0": [CHIEF], "2.1": [WORKER, EVALUATOR]}}
    text = str(to_error(make_failure("versions", differences=differences), record, 0))
    assert "numpy: 2.0 on chief:0, 2.1 on worker:0, evaluator:0." in text
    assert "Install the same versions" in text


def test_the_last_lines_are_the_nodes_own_or_those_that_reached_the_driver(
    record: RunRecord,
) -> None:
    record.add_lines(WORKER, ["reached the driver"])
    record.add_lines(CHIEF, ["of another node"])
    own, known = make_failure(tail=["its own"]), make_failure()
    assert "Last lines of worker:0 (1):\n  its own" in str(to_error(own, record, 0))
    assert "Last lines of worker:0 (1):\n  reached the driver" in str(to_error(known, record, 0))


def test_a_log_is_named_only_where_there_is_one(record: RunRecord, tmp_path: Path) -> None:
    assert "The whole log" not in str(to_error(make_failure(), record, 0))
    record.add_lines(WORKER, ["line"])
    path = tmp_path / "logs" / "worker-0.log"
    assert str(to_error(make_failure(), record, 0)).endswith(f"The whole log: {path}")


@pytest.mark.parametrize(
    ("code", "exit_code"), [(3, 3), (-1, -1), (None, 0), ("text", 1), (True, 1), (False, 0)]
)
def test_the_failure_of_a_function_that_exits_can_be_told_to_the_driver(
    code: object, exit_code: int
) -> None:
    told = _describe(SystemExit(code), 1)
    failure = make_failure(told["what_kind"], what=told["what"], exit_code=told["exit_code"])
    back = from_dict(json.loads(json.dumps(Failed(failure=failure.to_dict()).to_dict())))
    assert isinstance(back, Failed)
    assert f"sys.exit({code!r})" in back.failure["what"]
    assert type(back.failure["exit_code"]) is int
    assert back.failure["exit_code"] == exit_code


def test_a_timeout_names_the_first_node_that_was_not_done(
    record: RunRecord, tmp_path: Path
) -> None:
    record.add_lines(WORKER, ["waiting for data"])
    snapshot = tell(
        *((node.name, JOINED) for node in NODES),
        (CHIEF, Returned()),
        (WORKER, Progress(epoch=3, step=70)),
    )
    error = make_timeout(snapshot, 2.5, record)
    assert isinstance(error, TimeoutError)
    assert (error.node, error.host) == (WORKER, "host-1")
    assert error.what == (
        "the function was still running after timeout_s=2.5, at epoch 3 step 70;"
        " others: evaluator:0 running"
    )
    assert error.tail == ("waiting for data",)
    assert error.log_path == str(tmp_path / "logs" / "worker-0.log")
    assert "Raise timeout_s, or look in its last lines" in str(error)


def test_a_timeout_of_the_only_busy_node_names_no_other(record: RunRecord, tmp_path: Path) -> None:
    done = [(node, message) for node in (CHIEF, WORKER) for message in (JOINED, Returned(), Bye())]
    error = make_timeout(tell(*done, (EVALUATOR, JOINED)), 2.5, record)
    assert (error.node, error.tail, error.log_path) == (EVALUATOR, (), "")
    assert error.what == "the function was still running after timeout_s=2.5"


def test_a_timeout_before_the_start_says_so(record: RunRecord, tmp_path: Path) -> None:
    error = make_timeout(tell(), 60, record)
    assert (error.node, error.host) == (CHIEF, "")
    assert error.what == (
        "the node had not come up after timeout_s=60; others: worker:0 waiting, evaluator:0 waiting"
    )


def test_a_timeout_does_not_say_of_a_running_node_that_it_did_not_start(
    record: RunRecord, tmp_path: Path
) -> None:
    error = make_timeout(tell((WORKER, JOINED)), 2.5, record)
    assert error.what == (
        "the node had not come up after timeout_s=2.5;"
        " others: worker:0 running, evaluator:0 waiting"
    )


@pytest.mark.parametrize("last", [(Returned(),), (Returned(), Bye())], ids=["returned", "done"])
def test_a_timeout_does_not_say_of_a_node_that_returned_that_it_runs(
    record: RunRecord, tmp_path: Path, last: tuple[Message, ...]
) -> None:
    returned = tell(*((node.name, one) for node in NODES for one in (JOINED, *last)))
    error = make_timeout(returned, 2.5, record)
    assert error.node == CHIEF
    assert error.what == (
        "the run was not over, although all functions had returned, after timeout_s=2.5"
    )


@pytest.mark.parametrize("timeout_s", [1_209_600, 1_209_600.25, 3600.0])
def test_a_long_timeout_is_named_as_it_was_given(
    record: RunRecord, tmp_path: Path, timeout_s: float
) -> None:
    error = make_timeout(tell(), timeout_s, record)
    assert f"timeout_s={timeout_s};" in error.what


@pytest.mark.parametrize(("slots", "known"), [(None, False), (1, True), (0, True)])
def test_a_launch_that_takes_too_long_names_who_is_missing(slots: int | None, known: bool) -> None:
    error = make_launch_timeout(tell((WORKER, JOINED)), 120.0, slots)
    assert type(error) is LaunchError
    text = str(error)
    assert "Only 1 of 3 nodes came up within 120 s; missing: chief:0, evaluator:0." in text
    assert (f"The cluster has {slots} task slots." in text) is known
    assert "other jobs of this Spark application hold the slots" in text
    assert "raise spark.sparktrain.launchTimeoutS." in text


@pytest.mark.parametrize(
    ("text", "told", "advice"),
    [
        (
            "PythonException\n  File x\nModuleNotFoundError: No module named 'sparktrain'\n at y",
            "The Python of the executors cannot start a node: No module named 'sparktrain'.",
            "PYSPARK_PYTHON",
        ),
        ("Job 3 cancelled because SparkContext was shut down", "Spark cancelled the job", "again"),
        ("[OPERATION_CANCELED] Operation has been canceled.", "Spark cancelled the job", "again"),
        ("\n Out of luck.\n  at org.x\n", "could not run the job of this run: Out of luck.", "abo"),
        ("  \n", "could not run the job of this run: no message.", "above this one"),
        ("x" * 9000, f"could not run the job of this run: {'x' * 500}.", "above this one"),
    ],
    ids=["module", "cancelled", "canceled", "other", "empty", "long"],
)
def test_errors_of_spark_are_explained_with_what_to_do(text: str, told: str, advice: str) -> None:
    error = explain_spark_error(text)
    assert type(error) is LaunchError
    assert told in error.problem
    assert advice in error.advice
    assert ".." not in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("kind", "expected"), [("taken", DevicesTakenError), ("devices", NodeFailedError)]
)
def test_a_cluster_whose_nodes_do_not_get_their_gpus(
    record: RunRecord, kind: str, expected: type[Exception]
) -> None:
    failure = Failure(node="worker:0", host="a", kind=kind, what="1 are needed, 0 are there")
    told = f"RuntimeError: worker:0 could not start on a: {NodeFailureError(failure)}"
    error = explain_start(["RuntimeError: out of luck", told], record)
    assert type(error) is expected
    assert str(error).startswith("worker:0 on a: 1 are needed, 0 are there.")
    other = explain_start(["RuntimeError: out of luck"], record)
    assert type(other) is LaunchError and "out of luck `sparktrain doctor`" in str(other)
