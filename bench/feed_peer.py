"""TensorFlowOnSpark's DataFeed on the same rows, in an environment and a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

VERSION = "2.2.5"
NUM_ROWS = 40_000
_HOME = Path(tempfile.gettempdir()) / f"sparktrain-bench-tfos-{VERSION}"

_PROGRAM = """
import json, os, sys, time
from pyspark.sql import SparkSession
from tensorflowonspark import TFCluster

NUM_ROWS, OUT = int(sys.argv[1]), sys.argv[2]

def consume(args, ctx):
    import json, time
    feed = ctx.get_data_feed(True)
    rows, began = 0, None
    while not feed.should_stop():
        batch = feed.next_batch(256)
        if began is None:
            began = time.time()
        rows += len(batch)
        ended = time.time()
    with open(f"{OUT}/{ctx.executor_id}.json", "w") as stream:
        json.dump([rows, ended - began], stream)

spark = (SparkSession.builder.master("local-cluster[2,1,2048]")
         .config("spark.ui.enabled", "false").config("spark.log.level", "ERROR").getOrCreate())
sc = spark.sparkContext
rows = sc.range(0, NUM_ROWS, 1, 2).map(lambda i: [float(i + k) for k in range(100)] + [i]).cache()
rows.count()
cluster = TFCluster.run(sc, consume, {}, 2, 0, False, TFCluster.InputMode.SPARK)
cluster.train(rows, 1)
cluster.shutdown(grace_secs=5)
spark.stop()
"""


def _make_environment() -> Path:
    """An environment that sees this one's packages and has the peer as well."""
    python = _HOME / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(_HOME)], check=True)
        own = Path(sysconfig.get_path("purelib"))
        theirs = next((_HOME / "lib").glob("python*/site-packages"))
        (theirs / "bench.pth").write_text(f"{own}\n")
        subprocess.run(
            [
                str(python),
                "-m",
                "pip",
                "install",
                "-q",
                "--no-deps",
                f"tensorflowonspark=={VERSION}",
            ],
            check=True,
        )
    return python


def measure() -> float:
    """Rows per second over both executors, from the first batch on."""
    python = _make_environment()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(_PROGRAM)
        env = {**os.environ, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
        env.pop("SPARK_HOME", None)
        done = subprocess.run(
            [str(python), str(program), str(NUM_ROWS), folder],
            env=env,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
        found = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    if len(found) != 2:
        raise RuntimeError(f"TensorFlowOnSpark did not finish: {done.stderr[-2000:]}")
    return float(sum(rows / seconds for rows, seconds in found if rows))
