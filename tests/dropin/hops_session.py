"""Experiments on sessions of their own: a program, for one Java per process.

    python hops_session.py KIND FOLDER

Writes what happened to FOLDER/answer.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sparktrain as st
from hops import experiment, gpu_room, trials, util
from sparktrain.agent.claims import Claims


def train(x: int) -> dict[str, Any]:
    import os
    import time

    began = time.time()
    time.sleep(2)
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(",", " ")
    return {"metric": x, "gpus": gpus, "began": began, "ended": time.time()}


def search(num_trials: int) -> list[Any]:
    """What became of each trial: [gpus, began, ended], or its error."""
    best_dir, _, _ = experiment.grid_search(train, {"x": list(range(num_trials))})
    summary = json.loads((Path(best_dir).parent / ".summary.json").read_text())
    return [
        row.get("error") or [row["outputs"][name] for name in ("gpus", "began", "ended")]
        for row in summary["combinations"]
    ]


@contextlib.contextmanager
def taken(ids: list[str], num_waiting: int) -> Iterator[list[float]]:
    """All devices are another one's, until so many trials have been seen waiting.

    Yields:
        A list; when they are given back, it has the time.
    """
    waiting, given_back = threading.Semaphore(0), []
    tell = trials.Trials._tell_wait

    def count(self: trials.Trials, trial: trials.Trial, error: Exception) -> None:
        tell(self, trial, error)
        waiting.release()

    def give_back() -> None:
        for _ in range(num_waiting):
            waiting.acquire(timeout=120)
        time.sleep(2 * gpu_room.PAUSE_S)
        given_back.append(time.time())
        claims.__exit__(None, None, None)

    with Claims() as claims:
        with claims.looking():
            assert len(claims.claim([(one, 1) for one in ids], len(ids))) == len(ids)
        trials.Trials._tell_wait = count
        thread = threading.Thread(target=give_back)
        thread.start()
        yield given_back
        thread.join()
        trials.Trials._tell_wait = tell


def run_gpus(folder: Path) -> dict[str, Any]:
    """Two slots on a host, whose nvidia-smi knows the GPUs that a file names."""
    ids = [f"GPU-{uuid.uuid4()}" for _ in range(4)]
    rows, calls = folder / "rows", folder / "calls"

    def plug_in(count: int) -> None:
        lines = (f"{n}, {one}, 1000, 1, NVIDIA A100" for n, one in enumerate(ids[:count]))
        rows.write_text("\n".join(lines) + "\n")

    (folder / "bin").mkdir()
    smi = folder / "bin" / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\necho >> {calls}\ncase $1 in --query-gpu=*) cat {rows};; esac\n")
    smi.chmod(0o755)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    spark = st.session(conf={"spark.executorEnv.PATH": path})
    gpu_room.PAUSE_S = 1.0

    def set_number(count: str) -> None:
        spark.conf.set("spark.sparktrain.gpusPerWorker", count)

    answer: dict[str, Any] = {"ids": ids}
    plug_in(2)
    answer["two"] = search(4)
    with taken(ids[:2], num_waiting=2) as answer["given back"]:
        answer["waits"] = search(2)
    plug_in(4)
    answer["four"] = search(3)
    plug_in(1)
    answer["one"] = search(3)
    set_number("1")
    with taken(ids[:1], num_waiting=1):
        answer["by number"] = search(3)
    set_number("2")
    try:
        search(2)
    except st.DeviceError as error:
        answer["too many"] = str(error)
    set_number("0")
    calls.unlink()
    answer["none"] = search(2)
    answer["calls"] = calls.exists()
    spark.stop()
    return answer


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """A master without workers: its address, and what starts a worker with one core."""
    from pyspark.find_spark_home import _find_spark_home

    command = f"{_find_spark_home()}/bin/spark-class"
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    log = folder / "spark.log"

    with log.open("w") as stream, contextlib.ExitStack() as stack:

        def start(name: str, *options: str) -> None:
            process = subprocess.Popen(
                [command, f"org.apache.spark.deploy.{name}", *options, "--webui-port", "0"],
                env=env,
                stdout=stream,
                stderr=stream,
            )
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)

        start("master.Master", "--host", "127.0.0.1", "--port", "0")
        deadline = time.monotonic() + 60
        mark = "Starting Spark master at "
        while mark not in log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.2)
        url = log.read_text().split(mark)[1].split()[0]

        def start_worker() -> None:
            place = str(folder / f"work-{uuid.uuid4().hex}")
            limits = ("--host", "127.0.0.1", "--cores", "1", "--memory", "600m")
            start("worker.Worker", *limits, "-d", place, url)

        yield url, start_worker


def start_session(url: str) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(url).config("spark.executor.memory", "512m")
    builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.enabled", "false")
    builder.config("spark.sparktrain.slotWaitS", "60").config("spark.log.level", "ERROR")
    return builder.getOrCreate()


def look_around() -> dict[str, Any]:
    import json
    import os

    from hops import util

    cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
    return {"nodes": sum(map(len, cluster.values())), "executors": util.num_executors()}


def meet(x: int, folder: str) -> int:
    """Whether the other trial begins before this one ends."""
    import time
    from pathlib import Path

    Path(folder, f"trial-{x}").touch()
    deadline = time.monotonic() + 100
    while len(list(Path(folder).glob("trial-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    return int(time.monotonic() < deadline)


def run_late(folder: Path) -> dict[str, Any]:
    """A master that does not say how many executors there will be."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with standalone(folder) as (url, start_worker):
        start_worker()
        spark = start_session(url)

        def follow() -> None:
            while not list(folder.glob("trial-*")):
                time.sleep(0.1)
            start_worker()

        late = threading.Thread(target=follow)
        late.start()
        grid = {"x": [0, 1], "folder": [str(folder)]}
        _, _, outputs = experiment.grid_search(meet, grid, experiment.Direction.MIN)
        late.join()
        spark.stop()
        spark = start_session(url)
        util.QUIET_S = 15.0  # this machine may be a slow one
        _, together = experiment.mirrored(look_around)
        spark.stop()
    return {"late": outputs, "first moment": together}


def main(kind: str, folder: Path) -> None:
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ["HOPS_PROJECT_PATH"] = str(folder)
    answer = {"gpus": run_gpus, "late": run_late}[kind](folder)
    (folder / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
