"""What a successful run gives: values, nodes, logs, files, and who runs where."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st

ALONE: dict[str, Any] = {"distribution": "none", "progress": False}


def test_result_nodes_and_what_a_node_knows(spark: Any, tmp_path: Path) -> None:
    def train(ctx: Any) -> dict[str, Any]:
        import os
        import sys

        if ctx.rank in (0, None):
            ctx.report(epoch=1, **{f"{ctx.role}_score": 0.5})
        return {
            "role": ctx.role,
            "index": ctx.index,
            "rank": ctx.rank,
            "num_workers": ctx.num_workers,
            "is_chief": ctx.is_chief,
            "cluster": ctx.cluster_spec,
            "args": ctx.args,
            "stop": ctx.should_stop,
            "dirs": [ctx.run_dir, ctx.checkpoint_dir, ctx.log_dir],
            "tf_config": os.environ["TF_CONFIG"],
            "wished": os.environ["WISHED"],
            "modules": sorted(sys.modules),
            "secrets": [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))],
            "group": os.getpgid(0) == os.getpid() == os.getsid(0),
        }

    result = st.run(
        train,
        num_workers=1,
        evaluator=True,
        args={"lr": 0.5},
        env={"WISHED": "for"},
        spark=spark,
        run_dir=tmp_path / "run",
        **ALONE,
    )
    value = result.value
    assert (value["role"], value["index"], value["rank"]) == ("chief", 0, 0)
    assert (value["num_workers"], value["is_chief"], value["stop"]) == (1, True, False)
    assert value["args"] == {"lr": 0.5} and value["wished"] == "for"
    assert set(value["cluster"]) == {"chief", "evaluator"}
    assert json.loads(value["tf_config"]) == {
        "cluster": {"chief": value["cluster"]["chief"]},
        "task": {"type": "chief", "index": 0},
    }
    run_dir = str(tmp_path / "run")
    assert value["dirs"] == [run_dir, f"{run_dir}/checkpoints", f"{run_dir}/tensorboard"]
    assert value["group"], "the trainer must lead a process group of its own"
    assert not {"pyspark", "py4j", "tensorflow"} & set(value["modules"])
    assert value["secrets"] == []
    # The evaluator's report is merged into the chief's row of the same epoch.
    assert result.metrics == [{"epoch": 1, "chief_score": 0.5, "evaluator_score": 0.5}]
    assert [node.name for node in result.nodes] == ["chief:0", "evaluator:0"]
    for node in result.nodes:
        assert (node.host, node.exit) == ("127.0.0.1", 0) and node.seconds > 0
    assert (result.run_dir, result.model_path, result.num_restarts) == (run_dir, None, 0)
    files = {path.name for path in Path(run_dir).iterdir()}
    assert {"run.json", "result.json", "metrics.jsonl", "logs"} <= files
    assert json.loads((tmp_path / "run/result.json").read_text())["ok"] is True


def test_every_line_reaches_the_driver_while_the_function_runs(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def train(ctx: Any) -> None:
        import os
        import subprocess
        import sys
        import time
        from pathlib import Path

        print(f"out of {ctx.rank}")
        print(f"err of {ctx.rank}", file=sys.stderr)
        subprocess.run(["echo", f"child of {ctx.rank}"], check=True)
        os.write(1, b"\xff not text \rnext\n")
        deadline = time.monotonic() + 60
        while not Path(ctx.args["seen"]).exists():
            if time.monotonic() > deadline:
                raise TimeoutError("the driver did not see the lines")
            time.sleep(0.05)

    seen, run_dir = tmp_path / "seen", tmp_path / "run"
    names = {0: "chief:0", 1: "worker:0"}

    def look() -> None:
        logs = [run_dir / "logs" / f"{name.replace(':', '-')}.log" for name in names.values()]
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            texts = [log.read_text() if log.exists() else "" for log in logs]
            if all("child of" in text and "next" in text for text in texts):
                seen.touch()
                return
            time.sleep(0.05)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        st.run(
            train,
            num_workers=2,
            args={"seen": str(seen)},
            spark=spark,
            run_dir=run_dir,
            distribution="none",
            progress="plain",
        )
    finally:
        thread.join()
    shown = capfd.readouterr().err
    for rank, name in names.items():
        lines = (run_dir / "logs" / f"{name.replace(':', '-')}.log").read_text().splitlines()
        wanted = [f"out of {rank}", f"err of {rank}", f"child of {rank}", "� not text ", "next"]
        assert lines == wanted
        assert f"{name} out of {rank}" in shown and f"{name} child of {rank}" in shown


def test_a_terminal_shows_a_row_for_each_node_while_the_function_runs(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(ctx: Any) -> None:
        import time
        from pathlib import Path

        print(f"out of {ctx.rank}")
        deadline = time.monotonic() + 30
        while not Path(ctx.args).exists():
            if time.monotonic() > deadline:
                raise TimeoutError("the terminal did not show the nodes")
            time.sleep(0.05)

    seen = tmp_path / "seen"
    wanted = [r"chief:0 +127\.0\.0\.1 +running", r"worker:0 +127\.0\.0\.1 +running"]
    wanted += ["chief:0 out of 0", "worker:0 out of 1"]
    master, slave = pty.openpty()
    texts: list[str] = []

    def look() -> None:
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(master, 4096):
                shown += data
                text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode(errors="replace"))
                texts[:] = [text]
                if all(re.search(pattern, text) for pattern in wanted):
                    seen.touch()

    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    thread = threading.Thread(target=look)
    thread.start()
    try:
        with open(slave, "w") as terminal, monkeypatch.context() as patch:  # noqa: PTH123
            patch.setattr(sys, "stderr", terminal)
            options: dict[str, Any] = {"args": str(seen), "run_dir": tmp_path / "run"}
            st.run(train, num_workers=2, spark=spark, distribution="none", **options)
    finally:
        thread.join()
        os.close(master)
    assert re.search(r"chief:0 +127\.0\.0\.1 +done", texts[0])
    assert "[running on" not in texts[0], "that is for plain lines"


def test_progress_false_is_silent(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    st.run(lambda ctx: print("hello"), num_workers=2, spark=spark, run_dir=tmp_path, **ALONE)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    assert (tmp_path / "logs/chief-0.log").read_text() == "hello\n"


def test_large_function_and_value_travel(spark: Any, tmp_path: Path) -> None:
    blob = os.urandom(5_000_000)
    result = st.run(
        lambda ctx: ctx.args[::-1], num_workers=2, args=blob, spark=spark, run_dir=tmp_path, **ALONE
    )
    assert result.value == blob[::-1]


def test_module_beside_the_script_is_found(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_training_code.py").write_text("def train(ctx):\n    return ctx.rank + 41\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_training_code  # type: ignore[import-not-found]

    result = st.run(my_training_code.train, num_workers=1, spark=spark, run_dir=tmp_path, **ALONE)
    assert result.value == 41


def test_active_session_and_new_run_directory_by_default(spark: Any) -> None:
    runs_dir = Path(os.environ["SPARKTRAIN_RUNS_DIR"])
    first = st.run(lambda ctx: 1, num_workers=1, **ALONE)
    second = st.run(lambda ctx: 2, num_workers=1, **ALONE)
    assert first.run_dir != second.run_dir
    assert {Path(first.run_dir).parent, Path(second.run_dir).parent} == {runs_dir}


def test_two_runs_at_once_from_other_threads(spark: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    before = dict(spark.sparkContext.getConf().getAll())
    master = spark.conf.get("spark.master")
    with ThreadPoolExecutor(2) as pool:
        # No session given: it is found, and left as it is.
        runs = [
            pool.submit(st.run, lambda ctx: ctx.args, num_workers=1, args=number, **ALONE)
            for number in (1, 2)
        ]
        assert [run.result().value for run in runs] == [1, 2]
    assert spark.conf.get("spark.master") == master
    assert dict(spark.sparkContext.getConf().getAll()) == before
