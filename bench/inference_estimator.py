"""KerasEstimator.fit against run() with the same model, rows and epochs; part of inference.py."""

from __future__ import annotations

import statistics
import time
from typing import Any

ROWS, EPOCHS, BATCH = 200_000, 5, 256


def build() -> Any:
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((100,)), layers.Dense(256, "relu"), layers.Dense(10, "softmax")]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def train(ctx: Any) -> None:
    import keras

    keras.utils.set_random_seed(1)
    with ctx.strategy.scope():
        model = build()
    rows = ctx.dataset(batch_size=BATCH, features="x", label="y", shuffle=True)
    model.fit(rows, epochs=EPOCHS, verbose=0, callbacks=ctx.callbacks())
    ctx.export(model)


def main(rounds: int) -> None:
    import sparktrain as st

    spark = st.session(num_executors=2)
    columns = ", ".join(f"cast(rand({k}) as float)" for k in range(100))
    frame = spark.range(0, ROWS, 1, 2).selectExpr(
        f"array({columns}) as x", "cast(id % 10 as int) as y"
    )
    frame = frame.cache()
    frame.count()
    times: dict[str, list[float]] = {"run": [], "fit": []}
    estimator = st.KerasEstimator(
        model=build,
        featureCols=["x"],
        labelCol="y",
        epochs=EPOCHS,
        batchSize=BATCH,
        numWorkers=2,
        seed=1,
        progress=False,
    )
    for _ in range(rounds):
        began = time.perf_counter()
        st.run(train, num_workers=2, data=frame, spark=spark, progress=False)
        times["run"].append(time.perf_counter() - began)
        began = time.perf_counter()
        estimator.fit(frame)
        times["fit"].append(time.perf_counter() - began)
    spark.stop()
    run, fit = (statistics.median(times[who]) for who in ("run", "fit"))
    print("\n| 200,000 rows, 5 epochs, two workers | seconds | ratio (goal 0.98) |\n|---|---|---|")
    print(f"| `run` | {run:.1f} | |")
    print(f"| `KerasEstimator.fit` | {fit:.1f} | {run / fit:.2f} |")


if __name__ == "__main__":
    main(3)
