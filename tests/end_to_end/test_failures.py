"""Every way a run can fail, for real: the first cause at the driver, and nothing left behind.

The `no_leaks` fixture looks for trainers, threads, ports and folders after each of these.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st

#: The promise: from the moment of failure to the error at the driver.
WITHIN_S = 10.0
#: No TensorFlow: these functions do not train.
ALONE: dict[str, Any] = {"distribution": "none", "progress": False}


def run_failing(fn: Any, spark: Any, tmp_path: Path, **more: Any) -> tuple[Any, float]:
    """Runs a function that must fail; returns the error and seconds since the failure.

    Functions note the moment of their failure in the file `moment`.
    """
    options = {"num_workers": 2, "spark": spark, "run_dir": tmp_path / "run", **ALONE, **more}
    with pytest.raises(st.SparktrainError) as caught:
        st.run(fn, args={"moment": str(tmp_path / "moment")}, **options)
    seconds = time.time() - float((tmp_path / "moment").read_text())
    print(f"{type(caught.value).__name__} after {seconds:.1f} s")
    return caught.value, seconds


def test_exception_in_the_function(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        import time

        if ctx.rank == 1:
            for number in range(150):
                print(f"line {number}")
            Path(ctx.args["moment"]).write_text(str(time.time()))
            raise KeyError("a very special key")
        time.sleep(600)

    error, seconds = run_failing(train, spark, tmp_path)
    assert isinstance(error, st.NodeFailedError)
    assert (error.node, error.host) == ("worker:0", "127.0.0.1")
    assert "a very special key" in error.what
    assert 'raise KeyError("a very special key")' in error.traceback
    assert error.tail[-1] == "line 149" and len(error.tail) == 100
    assert "Traceback on worker:0" in str(error) and "line 149" in str(error)
    assert "line 0\n" in Path(error.log_path).read_text()
    assert seconds < WITHIN_S


def test_failure_while_another_node_waits_leaves_the_executors_alone(
    spark: Any, tmp_path: Path
) -> None:
    """Spark's own barrier would not: a task that is ended while it waits there ends its JVM."""

    def train(ctx: Any) -> None:
        import time

        if ctx.rank == 1:
            time.sleep(2.5)
            Path(ctx.args["moment"]).write_text(str(time.time()))
            raise KeyError("late")

    def find_executors() -> set[int]:
        tracker = spark.sparkContext._jsc.sc().statusTracker()
        return {info.port() for info in tracker.getExecutorInfos()}

    before = find_executors()
    error, seconds = run_failing(train, spark, tmp_path)
    assert "late" in error.what and seconds < WITHIN_S
    time.sleep(3)  # Spark's barrier looks once a second
    assert find_executors() == before and len(before) > 1


@pytest.mark.parametrize("code", [3, 0])
def test_sys_exit_in_the_function(spark: Any, tmp_path: Path, code: int) -> None:
    def train(ctx: Any) -> None:
        import sys
        import time

        if ctx.rank == 0:
            Path(ctx.args["moment"]).write_text(str(time.time()))
            sys.exit(code)
        time.sleep(600)

    error, seconds = run_failing(train, spark, tmp_path)
    assert isinstance(error, st.NodeFailedError)
    assert (error.node, error.exit_code) == ("chief:0", code)
    assert f"sys.exit({code})" in error.what
    assert seconds < WITHIN_S


def test_process_that_just_ends(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        import os
        import time

        Path(ctx.args["moment"]).write_text(str(time.time()))
        os._exit(7)

    error, seconds = run_failing(train, spark, tmp_path, num_workers=1)
    assert isinstance(error, st.NodeFailedError)
    assert error.exit_code == 7 and "exit code 7" in error.what
    assert seconds < WITHIN_S


def test_sigkill_of_a_trainer_and_of_what_it_started(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        import os
        import signal
        import subprocess
        import sys
        import time

        # Same command line as a trainer, so that the leak check sees it if it stays.
        sleeper = "import time; time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", sleeper, "sparktrain.trainer"])
        if ctx.rank == 1:
            print("about to die")
            Path(ctx.args["moment"]).write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)

    error, seconds = run_failing(train, spark, tmp_path)
    assert isinstance(error, st.NodeLostError)
    assert (error.node, error.signal) == ("worker:0", signal.SIGKILL)
    assert "SIGKILL" in error.what and error.tail == ("about to die",)
    assert "max_restarts" in error.advice
    assert seconds < WITHIN_S


def test_sigkill_of_an_executor(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        import os
        import signal
        import time

        import psutil

        print("alive")
        log = Path(ctx.run_dir, "logs", "chief-0.log")
        while not log.exists():  # until the driver has heard of it
            time.sleep(0.05)
        if ctx.rank == 0:
            java = next(p for p in psutil.Process().parents() if "java" in p.name())
            Path(ctx.args["moment"]).write_text(str(time.time()))
            os.kill(java.pid, signal.SIGKILL)
        time.sleep(600)

    error, seconds = run_failing(train, spark, tmp_path)
    assert isinstance(error, st.NodeLostError)
    assert error.node == "chief:0" and error.host == "127.0.0.1"
    assert "executor was lost" in error.what
    assert "alive" in error.tail
    assert seconds < WITHIN_S


def test_sigkill_of_an_agent(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        import os
        import signal
        import subprocess
        import sys
        import time

        print("alive")
        sleeper = "import time; time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", sleeper, "sparktrain.trainer"])
        log = Path(ctx.run_dir, "logs", "worker-0.log")
        while not log.exists():  # until the driver has heard of it
            time.sleep(0.05)
        if ctx.rank == 1:
            Path(ctx.args["moment"]).write_text(str(time.time()))
            os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)

    error, seconds = run_failing(train, spark, tmp_path)
    assert isinstance(error, st.NodeLostError)
    assert error.node == "worker:0" and "alive" in error.tail
    assert "Python worker in Spark was killed" in error.what
    assert seconds < WITHIN_S


def test_function_that_never_returns(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        import time

        print("waiting for ever")
        while not ctx.should_stop:
            time.sleep(0.05)
        print("asked to stop")
        time.sleep(600)

    started = time.monotonic()
    with pytest.raises(st.RunTimeoutError) as caught:
        st.run(train, num_workers=2, spark=spark, run_dir=tmp_path, timeout_s=15.0, **ALONE)
    assert time.monotonic() - started < 15.0 + WITHIN_S
    assert isinstance(caught.value, TimeoutError)
    assert "timeout_s=15.0" in str(caught.value) and "worker:0" in str(caught.value)
    assert "waiting for ever" in caught.value.tail
    assert "asked to stop" in (tmp_path / "logs" / "chief-0.log").read_text()


def test_function_that_holds_the_interpreter(spark: Any, tmp_path: Path) -> None:
    """No thread of the trainer can run: only the agent and the kernel can end it."""

    def train(ctx: Any) -> None:
        import re

        re.match(r"(a+)+$", "a" * 64 + "b")  # holds the GIL for longer than the sun burns

    with pytest.raises(st.RunTimeoutError):
        st.run(train, num_workers=2, spark=spark, run_dir=tmp_path, timeout_s=10.0, **ALONE)


def test_agent_that_dies_while_the_function_holds_the_interpreter(
    spark: Any, tmp_path: Path
) -> None:
    """Not even the agent is left to end the trainer: its watchdog does."""

    def train(ctx: Any) -> None:
        import os
        import re
        import signal
        import time

        if ctx.rank == 1:
            os.kill(os.getppid(), signal.SIGKILL)
            re.match(r"(a+)+$", "a" * 64 + "b")
        time.sleep(600)

    with pytest.raises(st.NodeLostError) as caught:
        st.run(train, num_workers=2, spark=spark, run_dir=tmp_path, timeout_s=60.0, **ALONE)
    assert caught.value.node == "worker:0"


def test_ctrl_c_in_the_driver(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        import time
        from pathlib import Path

        Path(ctx.args["up"], f"up-{ctx.rank}").touch()
        while not ctx.should_stop:
            time.sleep(0.05)
        time.sleep(1)  # long after Spark's own handler would have cancelled the job
        print("asked to stop")
        time.sleep(600)

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("up-*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            st.run(
                train,
                num_workers=2,
                spark=spark,
                run_dir=tmp_path,
                args={"up": str(tmp_path)},
                stop_grace_s=6,
                **ALONE,
            )
    finally:
        thread.join()
    assert signal.getsignal(signal.SIGINT) is handler
    assert "asked to stop" in (tmp_path / "logs/chief-0.log").read_text()
    # The session is still of use.
    assert st.run(lambda ctx: ctx.rank, num_workers=2, spark=spark, **ALONE).value == 0


def test_a_second_ctrl_c_does_not_wait(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        import time
        from pathlib import Path

        Path(ctx.run_dir, f"up-{ctx.rank}").touch()
        while not ctx.should_stop:
            time.sleep(0.05)
        Path(ctx.run_dir, f"stop-{ctx.rank}").touch()
        time.sleep(600)

    def interrupt_twice() -> None:
        deadline = time.monotonic() + 100
        for sign in ("up", "stop"):
            while len(list(tmp_path.glob(f"{sign}-*"))) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_twice)
    thread.start()
    started = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            st.run(train, num_workers=2, spark=spark, run_dir=tmp_path, stop_grace_s=300, **ALONE)
    finally:
        thread.join()
    assert time.monotonic() - started < 150


def test_run_that_ends_before_its_job_is_submitted(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(st.RunTimeoutError):
        st.run(
            lambda ctx: __import__("time").sleep(600),
            num_workers=2,
            spark=spark,
            run_dir=tmp_path,
            timeout_s=0.01,
            stop_grace_s=0,
            **ALONE,
        )
    deadline = time.monotonic() + 10  # Spark tells its tracker a moment later
    while spark.sparkContext.statusTracker().getActiveJobsIds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["bad text", "long text"])
def test_exception_with_an_awkward_text(spark: Any, tmp_path: Path, kind: str) -> None:
    def train(ctx: Any) -> None:
        class AwkwardError(Exception):
            def __str__(self) -> str:
                return "x" * 10_000_000 if kind == "long text" else 1 / 0  # type: ignore

        raise AwkwardError

    with pytest.raises(st.NodeFailedError, match="AwkwardError") as caught:
        st.run(train, num_workers=1, spark=spark, run_dir=tmp_path, **ALONE)
    assert "raise AwkwardError" in caught.value.traceback
    assert len(str(caught.value)) < 200_000


def test_function_that_cannot_be_pickled(spark: Any, tmp_path: Path) -> None:
    lock = threading.Lock()

    def train(ctx: Any) -> None:
        with lock:
            pass

    started = time.monotonic()
    with pytest.raises(st.FunctionError, match=r"train.*cannot be sent.*lock"):
        st.run(train, num_workers=2, spark=spark, run_dir=tmp_path / "run", **ALONE)
    assert time.monotonic() - started < 5 and not (tmp_path / "run").exists()


def test_function_that_holds_the_spark_session(spark: Any) -> None:
    def train(ctx: Any) -> None:
        spark.range(3).collect()

    with pytest.raises(st.FunctionError, match="SparkSession"):
        st.run(train, num_workers=2, spark=spark, **ALONE)


def test_result_that_cannot_be_pickled(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> Any:
        import threading

        return {"lock": threading.Lock()}

    with pytest.raises(st.ResultError, match=r"dict.*cannot be pickled") as caught:
        st.run(train, num_workers=2, spark=spark, run_dir=tmp_path, **ALONE)
    assert caught.value.node in ("chief:0", "worker:0")


def test_result_that_is_too_large(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(st.ResultError, match="max_result_bytes=1000"):
        st.run(
            lambda ctx: b"x" * 2000,
            num_workers=1,
            spark=spark,
            run_dir=tmp_path,
            max_result_bytes=1000,
            **ALONE,
        )


def test_run_dir_that_cannot_be_written(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(st.RunDirError, match=r"file/run.*run_dir="):
        st.run(lambda ctx: 1, num_workers=2, spark=spark, run_dir=tmp_path / "file/run", **ALONE)
