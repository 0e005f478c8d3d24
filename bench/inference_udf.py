"""pyspark's own predict_batch_udf, in a cluster of its own.

    python bench/inference_udf.py MODEL FOLDER CORES

Apart from the cluster that runs st.predict: Spark would give both the same Python workers, and what
one of them has loaded and set would be there for the other. For each line on standard input it
scores the rows once and prints seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from inference import make_frame, run_out
from inference_models import BATCH


def make_udf(path: Path, shape: list[int], is_bytes: bool) -> Any:
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql.types import ArrayType, FloatType

    def make() -> Any:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        import keras

        model = keras.saving.load_model(path, compile=False)
        if not is_bytes:
            return model.predict_on_batch

        def predict(pictures: Any) -> Any:
            import numpy as np

            pixels = np.frombuffer(b"".join(pictures), np.uint8)
            return model.predict_on_batch(pixels.reshape(-1, *shape))

        return predict

    return predict_batch_udf(
        make,
        return_type=ArrayType(FloatType()),
        batch_size=BATCH,
        input_tensor_shapes=None if is_bytes else [shape],
    )


def main() -> None:
    import sparktrain as st

    name, folder, cores = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    spark = st.session(num_executors=cores)
    shape = {"mlp": [100], "cnn": [28, 28, 1], "lstm": [28, 28]}[name]
    score = make_udf(folder / f"{name}.keras", shape, name == "cnn")
    scored = make_frame(spark, name, cores).select("id", score("x").alias("p"))
    run_out(scored)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(run_out(scored), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
