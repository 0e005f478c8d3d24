"""What happens inside the trainers of the feed tests; each rank's answer goes to a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import keras_cases as cases

BATCH = 16
SCHEMA = "features array<float>, label float"


def answer(ctx: Any, values: dict[str, Any]) -> dict[str, Any]:
    Path(ctx.run_dir, f"rank-{ctx.rank}.json").write_text(json.dumps(values))
    return values


def make_fed(ctx: Any, **more: Any) -> Any:
    return ctx.dataset("train", batch_size=BATCH, features=["features"], label="label", **more)


def numbers(dataset: Any) -> list[int]:
    """The numbers of the rows of a dataset of (features, label), in order."""
    return [int(row[5]) for x, _ in dataset for row in x.numpy()]


def fit_and_look(ctx: Any) -> dict[str, Any]:
    """Fits with two optimizers, then looks at order, shuffling and remainders."""
    results: dict[str, Any] = {}
    for optimizer in ("sgd", "adam"):
        seen: list[int] = []
        model = cases.make_model(ctx, optimizer, seen)
        data = {"fed": lambda: make_fed(ctx), "numpy": lambda: make_global_batches(ctx)}
        history = model.fit(
            data[ctx.args["data"]](), epochs=3, verbose=0, callbacks=ctx.callbacks()
        )
        results[optimizer] = cases.describe(model, history, seen)
    if ctx.args["data"] == "fed":
        results |= look(ctx)
    return answer(ctx, results)


def make_global_batches(ctx: Any) -> Any:
    """What one process would train on: each batch has the next rows of both parts."""
    import tensorflow as tf

    features, labels = cases.make_rows()
    halves = np.split(np.arange(len(features)), 2)
    order = [row for start in range(0, len(halves[0]), BATCH // 2) for half in halves
             for row in half[start : start + BATCH // 2]]  # fmt: skip
    return tf.data.Dataset.from_tensor_slices((features[order], labels[order])).batch(BATCH)


def look(ctx: Any) -> dict[str, Any]:
    mixed = make_fed(ctx, shuffle=20, seed=3)
    again = make_fed(ctx, shuffle=20, seed=3)
    other = make_fed(ctx, shuffle=20, seed=4)
    dropped = ctx.dataset(batch_size=10, features="features", label="label", drop_remainder=True)
    seen: list[int] = []
    model = cases.make_model(ctx, "sgd", seen)
    history = model.fit(make_fed(ctx).repeat(), steps_per_epoch=3, epochs=2, verbose=0)
    table = ctx.dataset(batch_size=BATCH)
    return {
        "plain": numbers(make_fed(ctx)),
        "mixed": [numbers(mixed), numbers(mixed)],
        "again": [numbers(again), numbers(again)],
        "other": numbers(other),
        "dropped": [len(y) for _, y in dropped],
        "steps": [len(history.history["loss"]), len(seen)],
        "dict": sorted(next(iter(table))),
    }


def look_at_types(ctx: Any) -> dict[str, Any]:
    """The tensors of every table as plain values, with dtype and shape."""
    found: dict[str, Any] = {}
    for name in ctx.feed.tables:
        rows: dict[str, Any] = {}
        for batch in ctx.dataset(name, batch_size=2):
            for column, tensor in batch.items():
                kind = [tensor.dtype.name, type(tensor).__name__]
                values = tensor.to_list() if hasattr(tensor, "to_list") else tensor.numpy().tolist()
                rows.setdefault(column, [*kind, []])[2].extend(_plain(values))
        found[name] = rows
    return answer(ctx, found)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return [_plain(one) for one in value] if isinstance(value, list) else value


def fit_few_rows(ctx: Any) -> dict[str, Any]:
    """Fits and evaluates whatever rows there are; counts them inside the model."""
    seen: list[int] = []
    model = cases.make_model(ctx, "adam", seen)
    history = model.fit(
        make_fed(ctx), epochs=2, verbose=0, validation_data=make_fed(ctx), callbacks=ctx.callbacks()
    )
    values = cases.describe(model, history, seen)
    return answer(ctx, {**values, "iterations": int(model.optimizer.iterations.numpy())})
