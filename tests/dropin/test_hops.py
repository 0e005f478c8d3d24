"""Experiments of hops on a real cluster."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hops import experiment, hdfs, place
from hops.experiment import Direction
from hops_cases import serve_and_train
from sparktrain.errors import ConfigError, NodeFailedError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(place.VARIABLE, str(tmp_path))
    monkeypatch.delenv("NUM_TF_PS", raising=False)
    return tmp_path


def read_state(folder: str) -> Any:
    return json.loads((Path(folder) / ".experiment.json").read_text())


def test_grid_search(spark: Any, project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two at a time, failures recorded, all metrics below zero."""

    def train(x: int, kind: str) -> Any:
        import os
        import signal
        import time
        from pathlib import Path

        from hops import tensorboard

        began = time.time()
        print("trial", x, kind)
        if kind == "raises" and x == 2:
            raise ValueError("no such network")
        if kind == "raises" and x == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        Path(tensorboard.logdir(), "events.txt").write_text("events")
        Path("result.txt").write_text(str(x))  # each in a folder of its own
        time.sleep(2)
        return {"score": -x, "file": "result.txt", "began": began, "ended": time.time()}

    grid = {"kind": ["works", "raises"], "x": [1, 2]}
    with pytest.raises(ConfigError, match="also needs kind"):
        experiment.grid_search(train, {"x": [1]}, optimization_key="score")
    best_dir, params, outputs = experiment.grid_search(
        train, grid, Direction.MAX, name="grid", description="d", optimization_key="score"
    )
    assert params == {"x": 1, "kind": "works"} and outputs["score"] == -1
    folder = Path(best_dir).parent
    assert best_dir == f"{project}/Experiments/{folder.name}/kind=works&x=1"
    assert folder.name.startswith(spark.sparkContext.applicationId)
    trial = Path(best_dir)
    assert json.loads((trial / ".hparams.json").read_text()) == params
    assert json.loads((trial / ".outputs.json").read_text()) == outputs
    assert (trial / ".metric").read_text() == "-1.0"
    assert (trial / "events.txt").read_text() == "events"
    assert (project / outputs["file"]).read_text() == "1"
    assert "trial 1 works" in (project / outputs["log"]).read_text()
    rows = json.loads((folder / ".summary.json").read_text())["combinations"]
    failed = [row for row in rows if "error" in row]
    assert len(rows) == 4 and len(failed) == 2
    assert {row["parameters"]["x"]: row["error"] for row in failed}[2].endswith("no such network")
    said = (folder / "kind=raises&x=2/.error.txt").read_text()
    assert "Traceback" in said and "ValueError: no such network" in said
    assert "trial 2 raises" in (folder / "kind=raises&x=2/output.log").read_text()
    state = read_state(str(folder))
    assert state["state"] == "FINISHED" and state["best_params"] == params
    assert (state["name"], state["direction"], state["metric"]) == ("grid", "MAX", -1.0)
    times = sorted(
        (row["outputs"]["began"], row["outputs"]["ended"]) for row in rows if row["outputs"]
    )
    overlaps = [sum(a < end and begin < b for a, b in times) for begin, end in times]
    assert max(overlaps) == 2  # the session has two slots
    assert "hops: kind=raises&x=2: failed: ValueError: no such network" in capfd.readouterr().err


def test_launch(spark: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store that TensorFlow cannot write to: events come at the end."""
    monkeypatch.setenv(place.VARIABLE, f"local://{project}")

    def train() -> dict[str, Any]:
        from pathlib import Path

        from hops import hdfs, tensorboard, util

        folder = Path(tensorboard.logdir())
        (folder / "deep").mkdir()
        (folder / "deep" / "events.txt").write_text("events")
        hdfs.dump("from a node", "Resources/note.txt")
        return {"executors": util.num_executors(), "servers": util.num_param_servers(), "m": -2.5}

    logdir, outputs = experiment.launch(train, name="one", metric_key="m")
    assert logdir.startswith(f"local://{project}/Experiments/") and outputs is not None
    folder = Path(logdir.removeprefix("local://"))
    assert (outputs["executors"], outputs["servers"], outputs["m"]) == (2, 0, -2.5)
    assert (folder / "deep" / "events.txt").read_text() == "events"
    assert hdfs.load("Resources/note.txt") == b"from a node"
    assert read_state(str(folder))["metric"] == -2.5
    with pytest.raises(NodeFailedError, match="ZeroDivisionError"):
        experiment.launch(lambda: 1 / 0)
    assert read_state(str(find_last(project)))["state"] == "FAILED"


def find_last(project: Path) -> Path:
    return max(
        (project / "Experiments").iterdir(), key=lambda path: int(path.name.rpartition("_")[2])
    )


@pytest.mark.slow
def test_launch_with_arguments(spark: Any, project: Path) -> None:
    def train(a: int, b: int) -> int:
        return a * b

    logdir, outputs = experiment.launch(train, {"a": [1, 2, 2], "b": [5, 3, 3]})
    assert outputs is None
    found = {
        path.parent.name: json.loads(path.read_text())["metric"]
        for path in Path(logdir).glob("*/.outputs.json")
    }
    assert found == {"a=1&b=5": 5, "a=2&b=3": 6, "a=2&b=3-2": 6}
    _, outputs = experiment.launch(map_fun=train, args_dict={"a": [4], "b": [5]})
    assert outputs is not None and outputs["metric"] == 20


@pytest.mark.slow
def test_random_search_waits_for_slots(spark: Any, project: Path) -> None:
    """Other jobs have all slots for a while; nothing fails, and nothing is stuck."""

    def hold(rows: Any) -> Any:
        time.sleep(8)
        return rows

    job = threading.Thread(
        target=lambda: spark.sparkContext.parallelize(range(2), 2).mapPartitions(hold).count()
    )
    job.start()
    time.sleep(1)
    _, params, outputs = experiment.random_search(
        lambda x, n: x, {"x": [-3.0, -1.0], "n": [1, 9]}, "min", samples=3
    )
    job.join()
    rows = json.loads((find_last(project) / ".summary.json").read_text())["combinations"]
    assert len(rows) == 3
    assert outputs["metric"] == params["x"] == min(row["parameters"]["x"] for row in rows)


@pytest.mark.slow
def test_differential_evolution(spark: Any, project: Path) -> None:
    best_dir, params, outputs = experiment.differential_evolution(
        lambda n, kind: -n - (kind == "b"),
        {"n": [1, 3], "kind": ["a", "b"]},
        generations=3,
        population=4,
    )
    folder = find_last(project)
    tried = [
        json.dumps(row["parameters"])
        for row in json.loads((folder / ".summary.json").read_text())["combinations"]
    ]
    assert len(set(tried)) == len(tried) <= 6  # nothing twice
    assert "/generation." in best_dir
    assert outputs["metric"] == -params["n"] - (params["kind"] == "b") < 0
    assert (folder / "generation.0").is_dir()


@pytest.mark.slow
def test_all_trials_fail(spark: Any, project: Path) -> None:
    with pytest.raises(NodeFailedError, match="not a number") as caught:
        experiment.grid_search(lambda x: "much", {"x": [1, 2]})
    assert "All 2 trials failed" in caught.value.__notes__[0]
    assert read_state(str(find_last(project)))["state"] == "FAILED"


@pytest.mark.slow
def test_ctrl_c_ends_all_trials(spark: Any, project: Path) -> None:
    import _thread

    def train(x: int) -> None:
        import time

        time.sleep(300)

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while len(list(project.glob("Experiments/*/*/.hparams.json"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(5)
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        experiment.grid_search(train, {"x": [1, 2, 3]})
    thread.join()
    assert time.monotonic() - started < 60
    assert read_state(str(find_last(project)))["state"] == "KILLED"


def test_mirrored(spark: Any, project: Path) -> None:
    """Keras 3 on both executors: the same weights on each."""

    def train() -> dict[str, Any]:
        import json
        import os

        import keras
        import numpy as np
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        x = np.arange(64, dtype="float32").reshape(32, 2) / 64
        with strategy.scope():
            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.1), "mse")
        history = model.fit(x, x.sum(axis=1), batch_size=8, epochs=3, verbose=0)
        config = json.loads(os.environ["TF_CONFIG"])
        print("I am", config["task"])
        losses = history.history["loss"]
        return {
            "falls": losses[-1] < losses[0],
            "replicas": strategy.num_replicas_in_sync,
            "roles": sorted(config["cluster"]),
        }

    logdir, outputs = experiment.mirrored(train)
    assert outputs is not None
    log = outputs.pop("log")
    assert outputs == {"falls": True, "replicas": 2, "roles": ["chief", "worker"]}
    assert "I am {'type': 'chief', 'index': 0}" in (project / log).read_text()
    assert "'worker'" in (Path(logdir) / "worker_0_output.log").read_text()


@pytest.mark.slow
def test_parameter_server(spark: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="0 parameter servers among 2 executors"):
        experiment.parameter_server(serve_and_train)
    monkeypatch.setenv("NUM_TF_PS", "1")
    with pytest.raises(ConfigError, match="1 parameter servers are asked for"):
        experiment.launch(serve_and_train)
    monkeypatch.setattr("hops.util.count_executors", lambda spark: 3)  # nodes share slots
    logdir, outputs = experiment.parameter_server(serve_and_train)
    assert outputs is not None and (outputs["total"], outputs["is_served"]) == (20.0, True)
    names = {path.name for path in Path(logdir).glob("*.log")}
    assert "chief_0_output.log" in names


def test_begin_and_end(spark: Any, project: Path) -> None:
    from hops import tensorboard

    logdir = experiment.begin(name="by hand")
    try:
        assert tensorboard.logdir() == logdir
        with pytest.raises(RuntimeError, match="An experiment is currently running"):
            experiment.launch(lambda: 1)
    finally:
        experiment.end(metric=-0.25)
    assert (Path(logdir) / ".metric").read_text() == "-0.25"
    assert read_state(logdir)["state"] == "FINISHED"
