"""One program for both: TensorFlowOnSpark as it is on PyPI, and the drop-in on sparktrain.

    python bench/cluster_program.py PART ROWS FOLDER

Run by bench/cluster.py in two environments; prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tensorflowonspark import TFCluster, pipeline

PART, ROWS, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def consume(args: Any, ctx: Any) -> None:
    import json
    import time

    feed = ctx.get_data_feed(True)
    rows, began, ended = 0, 0.0, 0.0
    while not feed.should_stop():
        batch = feed.next_batch(256)
        if not began:
            began = time.time()
        else:
            rows += len(batch)
        ended = time.time()
    with open(f"{args['folder']}/{ctx.executor_id}.json", "w") as stream:  # noqa: PTH123
        json.dump([rows, ended - began], stream)


def consume_dataset(args: Any, ctx: Any) -> None:
    import json
    import time

    rows, began, ended = 0, 0.0, 0.0
    for batch in ctx.get_data_feed(True).dataset(256, features="x"):
        if not began:
            began = time.time()
        else:
            rows += int(batch.shape[0])
        ended = time.time()
    with open(f"{args['folder']}/{ctx.executor_id}.json", "w") as stream:  # noqa: PTH123
        json.dump([rows, ended - began], stream)


def infer(args: Any, ctx: Any) -> None:
    feed = ctx.get_data_feed(False)
    while not feed.should_stop():
        batch = feed.next_batch(256)
        if batch:
            feed.batch_results([row[0] for row in batch])


def fail(args: Any, ctx: Any) -> None:
    import time

    ctx.get_data_feed(True).next_batch(10)
    with open(f"{args['folder']}/failed", "w") as stream:  # noqa: PTH123
        stream.write(str(time.time()))
    raise ValueError("on purpose")


def make_rows(sc: Any, count: int, partitions: int = 2) -> Any:
    rows = sc.range(0, count, 1, partitions)
    rows = rows.map(lambda i: [float(i + k) for k in range(100)] + [i]).cache()
    rows.count()
    return rows


def write(frame: Any) -> None:
    """Computes all of a DataFrame, as a job that writes it does, and writes it to nowhere."""
    frame.write.format("noop").mode("overwrite").save()


def run(spark: Any) -> dict[str, float]:
    sc = spark.sparkContext
    args = {"folder": FOLDER}
    mode = TFCluster.InputMode.SPARK
    if PART == "transform":
        columns = ", ".join(f"cast(id + {k} as float)" for k in range(100))
        frame = spark.range(0, ROWS, 1, 2).selectExpr(f"array({columns}) as x").cache()
        frame.count()
        model = pipeline.TFModel({}).setInputMapping({"x": "x"}).setOutputMapping({"y": "y"})
        model = model.setExportDir(f"{FOLDER}/model").setSignatureDefKey("serving_default")
        model = model.setTagSet("serve").setBatchSize(256)
        # Of both partitions, so that both Python workers have the model.
        write(model.transform(frame.where("cast(x[0] as long) % 1000 = 0")))
        began = time.time()
        write(model.transform(frame))
        return {"rows": ROWS, "seconds": time.time() - began}
    functions: dict[str, Any] = {"infer": infer, "fail": fail, "dataset": consume_dataset}
    function = functions.get(PART, consume)
    if PART == "dataset":
        columns = ", ".join(f"cast(id + {k} as float)" for k in range(100))
        data = spark.range(0, ROWS, 1, 2).selectExpr(f"array({columns}) as x").cache()
        data.count()
    else:
        data = make_rows(sc, ROWS, 40 if PART == "parts" else 2)
    cluster = TFCluster.run(sc, function, args, 2, 0, False, mode)
    found: dict[str, float] = {}
    if PART == "infer":
        cluster.inference(data).count()
        began = time.time()
        found = {"rows": cluster.inference(data).count(), "seconds": time.time() - began}
        cluster.shutdown(grace_secs=1)
    elif PART == "fail":
        try:
            cluster.train(data, 1, feed_timeout=60)
        except BaseException:
            failed = float(Path(FOLDER, "failed").read_text())
            return {"seconds": time.time() - failed}
    elif PART == "parts":
        began = time.time()
        cluster.train(data, 1)
        found = {"seconds": (time.time() - began) / 40}
        cluster.shutdown(grace_secs=1)
    else:
        cluster.train(data, 1)
        cluster.shutdown(grace_secs=5)
        both = [json.loads(path.read_text()) for path in Path(FOLDER).glob("*.json")]
        found = {"rows": sum(rows / s for rows, s in both if rows), "seconds": 1.0}
    return found


if __name__ == "__main__":
    session = (
        SparkSession.builder.master("local-cluster[2,1,2048]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    result = run(session)
    print("RESULT " + json.dumps(result), flush=True)
    session.stop()
