"""Runs and clusters on executors with GPUs: a program of its own, for one Java per process.

    python gpu_session.py KIND FOLDER

The GPUs are a story: of Spark's discovery script, or of an nvidia-smi of our own. Writes what
nodes saw to FOLDER/answer.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import sparktrain as st
from spark_tensorflow_distributor import MirroredStrategyRunner
from sparktrain.cli.doctor import check_spark
from sparktrain.driver.spark_facts import count_slots


def look(ctx: Any) -> None:
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    Path(ctx.run_dir, f"{ctx.role}-{ctx.index}.gpu").write_text(str(seen))


def stay(ctx: Any) -> None:
    for _ in ctx.rows():
        pass


def die_once(ctx: Any) -> None:
    """Its first trainer is killed, and computes on all devices until it was seen three times."""
    if not (gone := Path(ctx.args)).exists():
        gone.write_text("1\n2\n3\n")
        os.kill(os.getpid(), signal.SIGKILL)
    look(ctx)


def count_mirrors(ctx: Any) -> int:
    """Of a worker that trains alone: its strategy uses so many together, if they are real."""
    return int(ctx._num_mirrors)


def write_script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def write_discovery(folder: Path, name: str, addresses: str) -> Path:
    found = json.dumps({"name": "gpu", "addresses": list(addresses)})
    return write_script(folder / name, f"echo '{found}'")


def make_conf(script: Path, per_executor: int, per_task: float) -> dict[str, str]:
    return {
        "spark.executor.resource.gpu.amount": str(per_executor),
        "spark.executor.resource.gpu.discoveryScript": str(script),
        "spark.task.resource.gpu.amount": str(per_task),
    }


def see(spark: Any, folder: Path, call: Any = st.run, function: Any = look, **options: Any) -> Any:
    """What each node saw, or the error."""
    run_dir = folder / uuid.uuid4().hex
    given = {"spark": spark, "run_dir": run_dir, "progress": False, "distribution": "none"}
    try:
        with contextlib.ExitStack() as stack:
            result = call(function, **given, **options)
            if call is st.cluster:
                stack.enter_context(result)
    except st.SparktrainError as error:
        return [type(error).__name__, str(error), run_dir.exists()]
    return {path.stem: path.read_text() for path in run_dir.glob("*.gpu")}


def look_runner(folder: str) -> None:
    """The function of a MirroredStrategyRunner, which has no context."""
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    Path(folder, f"worker-{index}.gpu").write_text(os.environ["CUDA_VISIBLE_DEVICES"])


def see_runner(folder: Path) -> dict[str, str]:
    found = folder / "runner"
    found.mkdir()
    runner = MirroredStrategyRunner(num_slots=2, use_custom_strategy=True)
    runner.run(look_runner, folder=str(found))
    return {path.stem: path.read_text() for path in found.glob("*.gpu")}


def look_child() -> list[Any]:
    """What a process sees that a function in local mode starts."""
    import tensorflow as tf

    code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [seen.stdout.strip(), tf.distribute.has_strategy()]


def see_local() -> list[Any]:
    """In the driver's own process, on GPUs that Spark gave to the driver."""
    made = (MirroredStrategyRunner(num_slots=slots, local_mode=True) for slots in (2, 4))
    found: list[Any] = []
    for runner in made:
        try:
            found += runner.run(look_child)
        except ValueError as error:
            found.append(str(error))
    return [*found, os.environ.get("CUDA_VISIBLE_DEVICES")]


def ask_doctor(spark: Any) -> list[str]:
    return [one.text for one in check_spark(spark) if one.subject == "gpus" and one.ok]


def run_embedded(folder: Path) -> dict[str, Any]:
    """One executor with two slots and four GPUs, of which other tasks take halves."""
    script = write_discovery(folder, "discover.sh", "4567")
    conf = {
        **make_conf(script, 4, 0.5),
        "spark.worker.resource.gpu.amount": "4",
        "spark.worker.resource.gpu.discoveryScript": str(script),
        "spark.driver.resource.gpu.amount": "3",
        "spark.driver.resource.gpu.discoveryScript": str(write_discovery(folder, "own.sh", "890")),
    }
    spark = st.session(num_executors=1, executor_cores=2, conf=conf)
    two: dict[str, Any] = {"num_workers": 2}
    wished = {"CUDA_VISIBLE_DEVICES": "9"}
    answer = {
        "auto": see(spark, folder, **two),
        "two": see(spark, folder, gpus_per_worker=2, **two),
        "none": see(spark, folder, gpus_per_worker=0, **two),
        "shared": see(spark, folder, gpu_memory_mb=100, num_workers=2),
        "evaluator": see(spark, folder, num_workers=1, evaluator=True, gpus_per_worker=2),
        "too many": see(spark, folder, gpus_per_worker=3, **two),
        "beyond": see(spark, folder, gpus_per_worker=5, **two),
        "cluster": see(
            spark, folder, st.cluster, num_ps=1, evaluator=True, gpus_per_worker=2, **two
        ),
        "wished": see(spark, folder, st.cluster, env=wished, num_ps=1, **two),
        "mirrors": st.run(
            count_mirrors, num_workers=1, gpus_per_worker=3, spark=spark, progress=False
        ).value,
        "mirrors beside a server": st.run(
            count_mirrors, num_workers=1, num_ps=1, gpus_per_worker=2, spark=spark, progress=False
        ).value,
        "runner": see_runner(folder),
        "local": see_local(),
        "doctor": ask_doctor(spark),
    }
    spark.stop()
    return answer


def run_scoring(folder: Path) -> dict[str, Any]:
    """Two tasks at a time with two of four GPUs each; a worker is used again by both kinds."""
    script = write_discovery(folder, "discover.sh", "4567")
    conf = {
        **make_conf(script, 4, 2),
        "spark.worker.resource.gpu.amount": "4",
        "spark.worker.resource.gpu.discoveryScript": str(script),
    }
    spark = st.session(num_executors=1, executor_cores=2, conf=conf)

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from sparktrain.scoring.place import find_place

        for _ in batches:
            pass
        addresses = TaskContext.get().resources()["gpu"].addresses
        rows = {"given": [",".join(addresses)], "device": [find_place().device]}
        yield pa.RecordBatch.from_pydict(rows)

    def build() -> Any:
        """Notes on which device the variables of a model would be, were it there."""
        import keras
        from pyspark import TaskContext
        from tensorflow.python.eager import context

        given = TaskContext.get().resources()["gpu"].addresses
        where = context.context().device_name.split("device:")[-1]
        (folder / f"built-{uuid.uuid4().hex}.json").write_text(json.dumps([given, where]))
        return keras.Sequential([keras.Input((1,), name="x"), keras.layers.Dense(1)])

    # Both tasks at once, so that each has devices of its own.
    told = spark.range(0, 2, 1, 2).mapInArrow(tell, "given string, device string", barrier=True)
    answer: dict[str, Any] = {"told": sorted([row.given, row.device] for row in told.collect())}
    weights = folder / "one.weights.h5"
    subprocess.run([sys.executable, "-c", WRITE_WEIGHTS, str(weights)], check=True)
    frame = spark.range(0, 64, 1, 8).selectExpr("id", "float(id) as x")
    scored = st.predict(frame, weights, build=build, outputs="y").collect()
    answer["scored"] = all(abs(row.y[0] - 2 * row.x) < 1e-5 for row in scored) and len(scored)
    answer["built"] = [json.loads(path.read_text()) for path in folder.glob("built-*.json")]
    spark.stop()
    return answer


#: A model that doubles; in a process of its own, as this one is the driver.
WRITE_WEIGHTS = """
import sys, keras, numpy as np
model = keras.Sequential([keras.Input((1,), name="x"), keras.layers.Dense(1)])
model.set_weights([np.array([[2.0]]), np.zeros(1)])
model.save_weights(sys.argv[1])
"""


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers, each with two GPUs of its own."""
    from pyspark.find_spark_home import _find_spark_home

    home = _find_spark_home()
    java = [f"{home}/bin/spark-class", "org.apache.spark.deploy."]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    log = (folder / "master.log").open("w+")

    def start(name: str, *options: str, **more: str) -> subprocess.Popen[bytes]:
        command = [java[0], java[1] + name, *options, "--webui-port", "0"]
        return subprocess.Popen(command, env={**env, **more}, stdout=log, stderr=log)

    with log, contextlib.ExitStack() as stack:

        def keep(process: subprocess.Popen[bytes]) -> None:
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)

        keep(start("master.Master", "--host", "127.0.0.1", "--port", "0"))
        url = ""
        deadline = time.monotonic() + 60
        while not url and time.monotonic() < deadline:
            time.sleep(0.2)
            for line in (folder / "master.log").read_text().splitlines():
                if "Starting Spark master at" in line:
                    url = line.split()[-1]
        for number, addresses in enumerate(("01", "23")):
            script = write_discovery(folder, f"worker-{number}.sh", addresses)
            resource = "-Dspark.worker.resource.gpu"
            opts = f"{resource}.amount=2 {resource}.discoveryScript={script}"
            work = str(folder / f"work-{number}")
            options = ("--host", "127.0.0.1", "--cores", "2", "--memory", "1g", "-d", work, url)
            keep(start("worker.Worker", *options, SPARK_WORKER_OPTS=opts))
        yield url


def run_standalone(folder: Path) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with standalone(folder) as url:
        builder = SparkSession.builder.master(url)
        # The executor asks its worker, which tells it what is its own.
        conf = make_conf(Path(), 2, 0.5)
        del conf["spark.executor.resource.gpu.discoveryScript"]
        more = {"spark.executor.memory": "512m", "spark.executor.cores": "2"}
        more |= {"spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR"}
        for name, value in {**conf, **more, "spark.dynamicAllocation.enabled": "false"}.items():
            builder.config(name, value)
        spark = builder.getOrCreate()
        answer = {
            # Two slots by executor: only the GPUs make them spread.
            "run": see(spark, folder, num_workers=2, gpus_per_worker=2, slot_wait_s=60),
            "four": see(spark, folder, num_workers=4, slot_wait_s=60),
            "cluster": see(spark, folder, st.cluster, num_workers=2, gpus_per_worker=2, num_ps=1),
            "too many": see(spark, folder, num_workers=3, gpus_per_worker=2, slot_wait_s=1),
        }
        spark.stop()
    return answer


def see_beside(spark: Any, folder: Path) -> Any:
    """What a run has of a host where a cluster has a device."""
    options: dict[str, Any] = {"distribution": "none", "progress": False, "spark": spark}
    with st.cluster(stay, num_workers=1, gpus_per_worker=1, run_dir=folder / "c", **options):
        return see(spark, folder, num_workers=1)


def run_machine(folder: Path) -> dict[str, Any]:
    """Spark knows of no GPUs; this machine's nvidia-smi knows two."""
    rows = "; ".join(f"echo '{n}, GPU-{uuid.uuid4()}, 1000, 1, A100'" for n in range(2))
    write_script(folder / "nvidia-smi", f"case $1 in --query-gpu=*) {rows};; esac")
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    spark = st.session(num_executors=3)
    answer = {
        "too many": see(spark, folder, num_workers=3),
        "chosen": see(spark, folder, num_workers=3, env={"CUDA_VISIBLE_DEVICES": "0"}),
        "cluster": see(spark, folder, st.cluster, num_workers=3),
        "two": see(spark, folder, num_workers=2),
    }
    spark.stop()
    return answer


def run_nvidia(folder: Path) -> dict[str, Any]:
    """Spark knows of no GPUs; nvidia-smi knows three, of which one is busy."""
    ids = [f"GPU-{uuid.uuid4()}" for _ in range(3)]
    rows = "\n".join(
        f"echo '{n}, {one}, 1000, 1, NVIDIA A100 80GB PCIe'" for n, one in enumerate(ids)
    )
    (folder / "bin").mkdir()
    # Whoever finds the folder, and that is one only, has an nvidia-smi that fails.
    broken = folder / "broken"
    fail = f"rmdir {broken} 2>/dev/null && exit 15"
    gone = folder / "gone"
    dying = f"[ -s {gone} ] && sed -i 1d {gone} && printf '{ids[1]}\\n{ids[2]}\\n'"
    text = f"case $1 in --query-gpu=*)\n{fail}\n{rows};;\n--query-comp*) echo {ids[0]}\n{dying}\n"
    text += "exit 0;;\nesac"
    write_script(folder / "bin" / "nvidia-smi", text)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    spark = st.session(conf={"spark.executorEnv.PATH": path})
    answer = {
        "ids": ids,
        "auto": see(spark, folder, num_workers=2),
        "one": see(spark, folder, num_workers=2, gpus_per_worker=1),
        "cluster": see(spark, folder, st.cluster, num_workers=2, num_ps=1),
        "beside a cluster": see_beside(spark, folder),
        "again": see(
            spark, folder, function=die_once, args=str(gone), num_workers=1, max_restarts=1
        ),
        "too many": see(spark, folder, num_workers=2, gpus_per_worker=2),
        "too large": see(spark, folder, num_workers=4, gpu_memory_fraction=0.7),
        "beside": see(spark, folder, num_workers=2, evaluator=True, gpus_per_evaluator=1),
        "doctor": ask_doctor(spark),
    }
    table = spark.range(100).repartition(2).cache()
    table.count()
    broken.mkdir()
    answer["broken"] = see(spark, folder, num_workers=2)
    time.sleep(3.0)  # for an executor that was taken along to be missed
    (cached,) = spark.sparkContext._jsc.sc().getRDDStorageInfo()
    answer["cached"] = [cached.numCachedPartitions(), count_slots(spark)]
    spark.stop()
    return answer


#: In the Python of executors: each is a container that does not see the names of others.
APART = """
from contextlib import nullcontext
from sparktrain.agent.names import Names
Names._bind = lambda self, name: nullcontext()
"""


def run_apart(folder: Path) -> dict[str, Any]:
    """Executors that are containers of one host, which has two GPUs."""
    ids = [f"GPU-{uuid.uuid4()}" for _ in range(2)]
    rows = "; ".join(f"echo '{n}, {one}, 1000, 1, A100'" for n, one in enumerate(ids))
    (folder / "bin").mkdir()
    write_script(folder / "bin" / "nvidia-smi", f"case $1 in --query-gpu=*) {rows};; esac")
    (folder / "bin" / "sitecustomize.py").write_text(APART)
    paths = [str(folder / "bin"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    conf = {
        "spark.executorEnv.PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(paths),
    }
    spark = st.session(conf=conf)
    (folder / "claims").mkdir()
    claims: dict[str, Any] = {"gpu_claims_dir": str(folder / "claims"), "num_workers": 2}
    answer = {
        "ids": ids,
        "run": see(spark, folder, num_workers=2, gpus_per_worker=1),
        "cluster": see(spark, folder, st.cluster, num_workers=2),
        "doctor": [one.text for one in check_spark(spark) if not one.ok],
        "run with claims": see(spark, folder, gpus_per_worker=1, **claims),
        "cluster with claims": see(spark, folder, st.cluster, **claims),
    }
    options: dict[str, Any] = {"distribution": "none", "progress": False, "spark": spark}
    with st.cluster(stay, run_dir=folder / "c", **options, **claims):
        answer["beside"] = see(spark, folder, st.cluster, **claims)
    spark.stop()
    return answer


def main(kind: str, folder: Path) -> None:
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    kinds = {
        "embedded": run_embedded,
        "scoring": run_scoring,
        "standalone": run_standalone,
        "machine": run_machine,
        "nvidia": run_nvidia,
        "apart": run_apart,
    }
    (folder / "answer.json").write_text(json.dumps(kinds[kind](folder)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
