"""How messages change the state of a run, and which failure is the cause."""

from __future__ import annotations

from sparktrain.driver.state import (
    Snapshot,
    add_metrics,
    apply,
    close_link,
    find_empty,
    may_restart,
    pick_cause,
    start_attempt,
    start_run,
)
from sparktrain.spec import Failure, make_nodes
from sparktrain.wire.message import Message
from sparktrain.wire.messages import Bye, Failed, Joined, Progress, Report, Returned, Stop

CHIEF, WORKER = "chief:0", "worker:0"
LOST = (
    "Job aborted.\n"
    "  Lost task 1.0 (127.0.0.1 executor 1): ExecutorLostFailure (executor 1 exited): killed.\n"
)


def start() -> Snapshot:
    return start_run("r1", make_nodes(2))


def tell(snapshot: Snapshot, node: str, *messages: Message, attempt: int = 0) -> Snapshot:
    for message in messages:
        snapshot = apply(snapshot, node, attempt, message)
    return snapshot


def make_failure(node: str = WORKER, kind: str = "exception", is_echo: bool = False) -> Failure:
    return Failure(node, "h", kind, f"{kind} on {node}", is_echo=is_echo)


def fail(snapshot: Snapshot, failure: Failure) -> Snapshot:
    return tell(snapshot, failure.node, Failed(failure=failure.to_dict()))


def test_a_node_goes_from_waiting_to_done() -> None:
    snapshot = start()
    seen = [snapshot.nodes[CHIEF].status]
    for message in (Joined(host="h", pid=5), Returned(), Bye()):
        snapshot = tell(snapshot, CHIEF, message)
        seen.append(snapshot.nodes[CHIEF].status)
    assert seen == ["waiting", "running", "returned", "done"]
    assert snapshot.nodes[CHIEF].host == "h"
    assert snapshot.nodes[CHIEF].pid == 5
    assert snapshot.nodes[WORKER].status == "waiting"
    assert snapshot.num_joined == 1


def test_a_snapshot_is_never_changed_in_place() -> None:
    before = start()
    tell(before, CHIEF, Joined(host="h", pid=5), Report(metrics={"loss": 1.0}))
    assert before == start()


def test_unknown_nodes_and_messages_without_a_meaning_here_change_nothing() -> None:
    snapshot = start()
    assert apply(snapshot, "worker:7", 0, Joined(host="h", pid=1)) is snapshot
    assert apply(snapshot, CHIEF, 0, Stop()) is snapshot
    assert close_link(snapshot, "worker:7", 0) is snapshot


def test_late_messages_of_an_earlier_attempt_are_ignored() -> None:
    snapshot = start_attempt(start(), 1)
    failure = make_failure()
    for message in (Joined(host="h", pid=1), Report(metrics={"loss": 1.0}), Bye()):
        assert apply(snapshot, WORKER, 0, message) is snapshot
    assert apply(snapshot, WORKER, 0, Failed(failure=failure.to_dict())) is snapshot
    assert close_link(snapshot, WORKER, 0) is snapshot
    assert apply(snapshot, WORKER, 1, Joined(host="h", pid=1)).num_joined == 1


def test_progress_without_speed_or_metrics_keeps_those_known() -> None:
    known = Progress(epoch=1, step=9, metrics={"loss": 1.0}, examples_per_s=5.0, steps_per_s=2.0)
    snapshot = tell(start(), CHIEF, known, Progress(epoch=2, step=0))
    progress = snapshot.nodes[CHIEF].progress
    assert (progress.epoch, progress.step) == (2, 0)
    assert progress.metrics == {"loss": 1.0}
    assert (progress.examples_per_s, progress.steps_per_s) == (5.0, 2.0)


def test_progress_with_speed_and_metrics_replaces_them() -> None:
    first = Progress(metrics={"loss": 1.0, "old": 1.0}, examples_per_s=5.0, steps_per_s=2.0)
    second = Progress(metrics={"loss": 0.5}, examples_per_s=6.0, steps_per_s=3.0)
    assert tell(start(), CHIEF, first, second).nodes[CHIEF].progress == second


def test_a_failure_is_kept_under_the_name_of_the_link() -> None:
    claimed = {**make_failure("chief:0").to_dict(), "tail": ["last"]}
    snapshot = tell(start(), WORKER, Failed(failure=claimed))
    assert snapshot.nodes[WORKER].status == "failed"
    assert snapshot.failures[0].node == WORKER
    assert snapshot.failures[0].tail == ("last",)


def test_cause_is_the_first_failure_that_is_no_echo() -> None:
    echo, first, second = make_failure(CHIEF, is_echo=True), make_failure(), make_failure(CHIEF)
    snapshot = fail(start(), echo)
    assert snapshot.cause is None
    snapshot = fail(fail(snapshot, first), second)
    assert snapshot.cause == first
    assert pick_cause(snapshot, second, LOST) == first


def test_a_link_that_breaks_without_a_word_is_a_lost_node() -> None:
    running = tell(start(), WORKER, Joined(host="h", pid=1))
    assert close_link(running, WORKER, 0).lost == (WORKER,)


def test_a_lost_node_that_speaks_again_is_no_longer_lost() -> None:
    lost = close_link(close_link(start(), WORKER, 0), CHIEF, 0)
    assert lost.lost == (WORKER, CHIEF)
    assert tell(lost, WORKER, Progress(epoch=1)).lost == (CHIEF,)
    assert tell(lost, CHIEF, Returned()).lost == (WORKER,)
    assert tell(lost, WORKER, Joined(host="h", pid=1), attempt=1).lost == (WORKER, CHIEF)
    back = close_link(tell(lost, WORKER, Progress(epoch=1)), WORKER, 0)
    assert back.lost == (CHIEF, WORKER)  # and may be lost again


def test_a_link_that_closes_after_failure_or_bye_is_no_loss() -> None:
    assert close_link(fail(start(), make_failure()), WORKER, 0).lost == ()
    assert close_link(tell(start(), WORKER, Bye()), WORKER, 0).lost == ()


def test_what_spark_was_told_comes_before_a_lost_executor() -> None:
    reported = make_failure()
    assert pick_cause(close_link(start(), CHIEF, 0), reported, LOST) == reported


def test_a_lost_executor_comes_before_an_echo_spark_was_told_of() -> None:
    echo = make_failure(CHIEF, is_echo=True)
    cause = pick_cause(close_link(start(), WORKER, 0), echo, LOST)
    assert cause is not None
    assert (cause.node, cause.kind) == (WORKER, "lost")


def test_a_lost_executor_names_the_first_node_whose_link_broke() -> None:
    snapshot = tell(start(), WORKER, Joined(host="host-2", pid=1))
    snapshot = close_link(close_link(snapshot, WORKER, 0), CHIEF, 0)
    cause = pick_cause(fail(snapshot, make_failure(CHIEF, is_echo=True)), None, LOST)
    assert cause is not None
    assert (cause.node, cause.host, cause.kind) == (WORKER, "host-2", "lost")
    assert cause.what == (
        "its Spark executor was lost: ExecutorLostFailure (executor 1 exited): killed"
    )


def test_spark_names_the_node_that_was_lost_with_its_executor() -> None:
    """Both agents were ended by the driver before one of them could say that it was cut off."""
    snapshot = start()
    for node in (CHIEF, WORKER):
        snapshot = tell(snapshot, node, Joined(host="host-2", pid=1))
        snapshot = fail(snapshot, make_failure(node, kind="ended", is_echo=True))
    named = f"Stage failed because barrier task ResultTask(36, 1) finished unsuccessfully.\n{LOST}"
    cause = pick_cause(snapshot, None, named)
    assert cause is not None and (cause.node, cause.host) == (WORKER, "host-2")
    beyond = named.replace("(36, 1)", "(36, 7)")
    cause = pick_cause(snapshot, None, beyond)
    assert cause is not None and cause.node == "a node"


def test_an_agent_that_outlives_its_executor_is_the_node_that_was_lost() -> None:
    """It says that Spark has ended its task, before anybody knows why; later the others do too."""
    snapshot = tell(start(), WORKER, Joined(host="host-2", pid=1))
    snapshot = fail(snapshot, make_failure(WORKER, kind="cut", is_echo=True))
    snapshot = close_link(fail(snapshot, make_failure(CHIEF, kind="cut", is_echo=True)), WORKER, 0)
    assert snapshot.lost == () and snapshot.gone == (WORKER, CHIEF)
    cause = pick_cause(snapshot, None, LOST)
    assert cause is not None
    assert (cause.node, cause.host, cause.kind) == (WORKER, "host-2", "lost")


def test_a_lost_executor_without_a_broken_link_is_still_a_loss() -> None:
    cause = pick_cause(start(), None, "Python worker exited unexpectedly (crashed)")
    assert cause is not None
    assert (cause.node, cause.kind) == ("a node", "lost")
    assert cause.what == (
        "its Python worker in Spark was killed: Python worker exited unexpectedly (crashed)"
    )


def test_an_echo_is_the_cause_when_there_is_nothing_better() -> None:
    ended = make_failure(CHIEF, kind="ended", is_echo=True)
    cut = make_failure(CHIEF, kind="cut", is_echo=True)
    echo = make_failure(WORKER, is_echo=True)
    assert pick_cause(fail(fail(start(), ended), echo), None, "") == echo
    assert pick_cause(fail(fail(start(), cut), echo), None, "") == echo
    assert pick_cause(fail(start(), ended), echo, "") == echo
    assert pick_cause(start(), None, "something else") is None


def test_metrics_with_an_epoch_are_merged_into_the_row_of_that_epoch() -> None:
    rows = add_metrics((), {"epoch": 1, "loss": 3.0})
    rows = add_metrics(rows, {"epoch": 2, "loss": 2.0})
    rows = add_metrics(rows, {"epoch": 1, "loss": 1.0, "f1": 0.5})
    assert rows == ({"epoch": 1, "loss": 1.0, "f1": 0.5}, {"epoch": 2, "loss": 2.0})


def test_metrics_without_an_epoch_are_rows_of_their_own() -> None:
    assert add_metrics(({"x": 1.0},), {"x": 1.0}) == ({"x": 1.0}, {"x": 1.0})


def test_restart_keeps_metrics_and_merges_the_epoch_that_ran_twice() -> None:
    one, two = Report(metrics={"epoch": 1, "loss": 3.0}), Report(metrics={"epoch": 2, "loss": 2.0})
    snapshot = fail(tell(start(), CHIEF, Joined(host="h", pid=1), one, two), make_failure())
    snapshot = start_attempt(close_link(snapshot, CHIEF, 0), 1)
    assert (snapshot.failures, snapshot.lost, snapshot.num_joined) == ((), (), 0)
    again = Report(metrics={"epoch": 2, "loss": 1.5})
    snapshot = tell(snapshot, CHIEF, again, attempt=1)
    assert snapshot.metrics == ({"epoch": 1, "loss": 3.0}, {"epoch": 2, "loss": 1.5})


def test_losses_restart_and_errors_of_the_function_only_if_asked() -> None:
    for lost in (
        make_failure(kind="signal"),
        make_failure(kind="lost"),
        make_failure("n", "x", True),
    ):
        assert may_restart(lost, 1, on_error=False)
        assert not may_restart(lost, 0, on_error=True)
    for own in ("exception", "exit", "result"):
        assert not may_restart(make_failure(kind=own), 1, on_error=False)
        assert may_restart(make_failure(kind=own), 1, on_error=True)


def test_different_software_is_never_restarted() -> None:
    assert not may_restart(make_failure(kind="versions"), 5, on_error=True)


def test_a_table_is_empty_only_when_all_workers_have_told() -> None:
    assert find_empty([]) is None
    assert find_empty([{"a": 0}, None]) is None
    assert find_empty([None, None]) is None
    assert find_empty([{"a": 0, "b": 1}, {"a": 0, "b": 0}]) == "a"
    assert find_empty([{"a": 0, "b": 0}, {"a": 2, "b": 0}]) == "b"
    assert find_empty([{"a": 0}, {"a": 1}]) is None
    assert find_empty([{}, {}]) is None
