"""TFModel.transform of TensorFlowOnSpark, run in its own environment by bench/inference.py.

python inference_peer.py SAVED_MODEL ROWS WIDTH ROUNDS
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def make_rows(count: int, width: int) -> Any:
    def rows(batches: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            for start in batch.column(0).to_pylist():
                values = np.random.default_rng(start).random((count, width), np.float32)
                offsets = pa.array(np.arange(0, values.size + 1, width, dtype=np.int32))
                lists = pa.ListArray.from_arrays(offsets, pa.array(values.ravel()))
                yield pa.RecordBatch.from_arrays([lists], names=["x"])

    return rows


def main() -> None:
    from pyspark.sql import SparkSession

    from tensorflowonspark import pipeline

    folder, count, width, rounds = sys.argv[1], *map(int, sys.argv[2:5])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local-cluster[2,1,2048]")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.range(0, 4, 1, 4).mapInArrow(make_rows(count // 4, width), "x array<float>")
    frame = frame.cache()
    frame.count()
    model = pipeline.TFModel({}).setExportDir(folder).setBatchSize(512)
    model.setInputMapping({"x": "x"}).setOutputMapping({"output_0": "p"})
    model.setSignatureDefKey("serving_default").setTagSet("serve")
    seconds = []
    for number in range(rounds + 1):
        scored = model.transform(frame)
        began = time.perf_counter()
        scored.write.format("noop").mode("overwrite").save()
        if number:  # the first one loads
            seconds.append(time.perf_counter() - began)
    print("RESULT " + json.dumps(seconds))


if __name__ == "__main__":
    main()
