"""A cluster on executors to which Spark gives GPUs: a program of its own, for one Java per process.

    python gpu_session.py FOLDER

The GPUs are a story of the discovery script. Writes what nodes saw to FOLDER/answer.json.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import sparktrain as st

DISCOVER = """#!/bin/sh
echo '{"name": "gpu", "addresses": ["4", "5", "6", "7"]}'
"""


def look(ctx: Any) -> None:
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    Path(ctx.run_dir, f"{ctx.role}-{ctx.index}.gpu").write_text(str(seen))


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    script = folder / "discover.sh"
    script.write_text(DISCOVER)
    script.chmod(0o755)
    # A worker with two executors would tell both the same story.
    builder = SparkSession.builder.master("local-cluster[1,2,1024]")
    for name, value in {
        "spark.dynamicAllocation.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.worker.resource.gpu.amount": "4",
        "spark.worker.resource.gpu.discoveryScript": str(script),
        "spark.executor.resource.gpu.amount": "4",
        "spark.executor.resource.gpu.discoveryScript": str(script),
        "spark.task.resource.gpu.amount": "2",
    }.items():
        builder.config(name, value)
    spark = builder.getOrCreate()
    answer = {}
    for name, env in {"given": {}, "wished": {"CUDA_VISIBLE_DEVICES": "9"}}.items():
        run_dir = folder / name
        with st.cluster(
            look,
            num_workers=2,
            num_ps=1,
            evaluator=True,
            spark=spark,
            run_dir=run_dir,
            env=env,
            progress=False,
            distribution="none",
        ):
            pass
        answer[name] = {path.stem: path.read_text() for path in run_dir.glob("*.gpu")}
    (folder / "answer.json").write_text(json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
