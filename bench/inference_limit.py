"""The limit: a model's own predict_on_batch on arrays in memory, with one core.

    python bench/inference_limit.py MODEL FOLDER ROWS

Loads the model, then for each line on standard input answers the rows once and prints seconds.
"""

from __future__ import annotations

import sys
import time

import inference_models


def main() -> None:
    name, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import keras

    model = keras.saving.load_model(f"{folder}/{name}.keras", compile=False)
    shape = model.inputs[0].shape[1:]
    part = count // inference_models.TIMES
    rows = inference_models.make_rows(name, part).reshape(part, *shape)
    size = inference_models.BATCH
    for _ in range(3):
        model.predict_on_batch(rows[:size])
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        for _ in range(inference_models.TIMES):
            for start in range(0, part, size):
                model.predict_on_batch(rows[start : start + size])
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
