"""What Keras users do, as functions of the context. Each returns plain values to compare.

Run by test_keras.py with one worker and with two; `run_all` writes every rank's results to the
run directory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NUM_ROWS, BATCH, EPOCHS = 64, 16, 3
CASES: dict[str, Callable[[Any], dict[str, Any]]] = {}


def case(fn: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    CASES[fn.__name__] = fn
    return fn


def run_all(ctx: Any) -> dict[str, Any]:
    names = ctx.args["cases"]
    results = {}
    for name in names:
        try:
            results[name] = CASES[name](ctx)
        except Exception as error:
            import traceback

            results[name] = {"error": f"{type(error).__name__}: {error}"}
            traceback.print_exc()
            if not ctx.args.get("go_on"):
                raise
    Path(ctx.run_dir, f"rank-{ctx.rank}.json").write_text(json.dumps(results))
    return results


def make_rows(num_rows: int = NUM_ROWS) -> tuple[Any, Any]:
    """Features with the row's own number as the last one, and labels."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(num_rows, 5)).astype("float32")
    labels = (features[:, :1] > 0).astype("float32")
    numbers = np.arange(num_rows, dtype="float32")[:, None]
    return np.concatenate([features, numbers], axis=1), labels


def make_dataset(num_rows: int = NUM_ROWS) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(make_rows(num_rows)).batch(BATCH)


def make_own_dataset(ctx: Any, mine: Any) -> Any:
    """A dataset of the rows that only this worker has."""
    import tensorflow as tf

    features, labels = make_rows()
    dataset = tf.data.Dataset.from_tensor_slices((features[mine], labels[mine]))
    return ctx.local_dataset(dataset.batch(BATCH))


def make_model(ctx: Any, optimizer: Any, seen: list[int], *middle: Any, **compiled: Any) -> Any:
    """A small classifier that notes the number of every row it is trained on."""
    import keras
    import tensorflow as tf

    class Notes(keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any, training: bool = False) -> Any:
            features, numbers = inputs[:, :5], inputs[:, 5]
            if not training or isinstance(inputs, keras.KerasTensor):
                return features

            def note(values: Any) -> Any:
                seen.extend(int(value) for value in values.numpy())
                return np.float32(0)

            zero = tf.py_function(note, [numbers], tf.float32)
            return features + tf.cast(tf.reshape(zero, ()), features.dtype)

        def compute_output_shape(self, shape: Any) -> Any:
            return (shape[0], 5)

    keras.utils.set_random_seed(1)
    with ctx.strategy.scope():
        inputs = keras.Input((6,))
        hidden = Notes(dtype="float32")(inputs)
        hidden = keras.layers.Dense(8, activation="relu")(hidden)
        for layer in middle:
            hidden = layer(hidden)
        outputs = keras.layers.Dense(1, activation="sigmoid", dtype="float32")(hidden)
        model = keras.Model(inputs, outputs)
        options = {"loss": "binary_crossentropy", "metrics": ["accuracy", "auc"], **compiled}
        model.compile(optimizer=make_optimizer(optimizer), **options)
    return model


def make_optimizer(name: str) -> Any:
    import keras

    if name == "sgd":
        return keras.optimizers.SGD(0.1, momentum=0.9)
    return keras.optimizers.Adam(0.01)


def describe(model: Any, history: Any, seen: list[int]) -> dict[str, Any]:
    weights = [value for weight in model.get_weights() for value in weight.ravel().tolist()]
    return {
        "weights": weights,
        "history": {k: [float(v) for v in vs] for k, vs in history.history.items()},
        "steps": int(model.optimizer.iterations.numpy()),
        "seen": sorted(seen),
    }


def fit(ctx: Any, optimizer: str, dataset: Any, *middle: Any, **options: Any) -> dict[str, Any]:
    seen: list[int] = []
    model = make_model(ctx, optimizer, seen, *middle, **options.pop("compiled", {}))
    history = model.fit(dataset, epochs=EPOCHS, verbose=0, **{"shuffle": False, **options})
    return describe(model, history, seen)


@case
def fit_sgd(ctx: Any) -> dict[str, Any]:
    return fit(ctx, "sgd", make_dataset())


@case
def fit_adam(ctx: Any) -> dict[str, Any]:
    return fit(ctx, "adam", make_dataset())


@case
def fit_numpy(ctx: Any) -> dict[str, Any]:
    features, labels = make_rows()
    return fit(ctx, "adam", features, y=labels, batch_size=BATCH)


@case
def fit_odd_last_batch(ctx: Any) -> dict[str, Any]:
    return fit(ctx, "adam", make_dataset(61))


@case
def fit_own_rows_sgd(ctx: Any) -> dict[str, Any]:
    return fit_own_rows(ctx, "sgd")


@case
def fit_own_rows_adam(ctx: Any) -> dict[str, Any]:
    return fit_own_rows(ctx, "adam")


def fit_own_rows(ctx: Any, optimizer: str) -> dict[str, Any]:
    """Every worker has its part of each global batch of one process."""
    part = BATCH // ctx.num_workers
    batches = np.arange(NUM_ROWS).reshape(-1, BATCH)
    mine = batches[:, ctx.rank * part : (ctx.rank + 1) * part].ravel()
    dataset = make_own_dataset(ctx, mine)
    if ctx.num_workers == 1:
        dataset = make_dataset()
    return fit(ctx, optimizer, dataset)


@case
def fit_own_rows_uneven(ctx: Any) -> dict[str, Any]:
    mine = (
        np.arange(NUM_ROWS)
        if ctx.num_workers == 1
        else np.array_split(np.arange(NUM_ROWS), [45])[ctx.rank]
    )
    return fit(ctx, "adam", make_own_dataset(ctx, mine))


@case
def fit_validation(ctx: Any) -> dict[str, Any]:
    return fit(ctx, "adam", make_dataset(), validation_data=make_dataset(37))


@case
def fit_weights_and_classes(ctx: Any) -> dict[str, Any]:
    return fit(ctx, "adam", make_dataset(), class_weight={0: 1.0, 1: 3.0})


@case
def fit_regularized(ctx: Any) -> dict[str, Any]:
    import keras

    return fit(ctx, "sgd", make_dataset(), keras.layers.Dense(4, kernel_regularizer="l2"))


@case
def fit_batch_norm(ctx: Any) -> dict[str, Any]:
    import keras

    return fit(ctx, "adam", make_dataset(), keras.layers.BatchNormalization())


@case
def fit_batch_norm_synchronized(ctx: Any) -> dict[str, Any]:
    import keras

    layer = keras.layers.BatchNormalization(synchronized=True)
    return fit(ctx, "sgd", make_dataset(), layer)


@case
def fit_dropout(ctx: Any) -> dict[str, Any]:
    import keras

    return fit(ctx, "adam", make_dataset(), keras.layers.Dropout(0.5))


@case
def fit_steps_per_epoch(ctx: Any) -> dict[str, Any]:
    return fit(ctx, "adam", make_dataset().repeat(), steps_per_epoch=3)


@case
def fit_mixed_precision(ctx: Any) -> dict[str, Any]:
    import keras

    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        return fit(ctx, "adam", make_dataset())
    finally:
        keras.mixed_precision.set_global_policy("float32")


@case
def fit_mixed_float16(ctx: Any) -> dict[str, Any]:
    import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        return fit(ctx, "adam", make_dataset())
    finally:
        keras.mixed_precision.set_global_policy("float32")


@case
def fit_early_stopping(ctx: Any) -> dict[str, Any]:
    import keras

    stop = keras.callbacks.EarlyStopping("loss", min_delta=10.0)
    return fit(ctx, "adam", make_dataset(), callbacks=[stop])


@case
def fit_dict_inputs(ctx: Any) -> dict[str, Any]:
    import keras
    import tensorflow as tf

    features, labels = make_rows()
    named = {"left": features[:, :2], "right": features[:, 2:5]}
    keras.utils.set_random_seed(1)
    with ctx.strategy.scope():
        left, right = keras.Input((2,), name="left"), keras.Input((3,), name="right")
        hidden = keras.layers.Concatenate()([left, right])
        outputs = keras.layers.Dense(1, activation="sigmoid", name="answer")(hidden)
        model = keras.Model({"left": left, "right": right}, {"answer": outputs})
        model.compile("sgd", {"answer": "binary_crossentropy"}, metrics={"answer": ["auc"]})
    dataset = tf.data.Dataset.from_tensor_slices((named, {"answer": labels})).batch(BATCH)
    history = model.fit(dataset, epochs=EPOCHS, verbose=0, shuffle=False)
    predicted = model.predict(tf.data.Dataset.from_tensor_slices(named).batch(BATCH), verbose=0)
    return {**describe(model, history, []), "predicted": predicted["answer"].ravel().tolist()}


@case
def evaluate_and_predict(ctx: Any) -> dict[str, Any]:
    """On a number of rows that neither the batch size nor the workers divide."""
    model = make_model(ctx, "adam", [])
    features, _ = make_rows(61)
    return {
        "evaluated": [float(value) for value in model.evaluate(make_dataset(61), verbose=0)],
        "predicted": model.predict(make_dataset(61), verbose=0).ravel().tolist(),
        "from_numpy": model.predict(features, batch_size=BATCH, verbose=0).ravel().tolist(),
    }


@case
def keras_callbacks(ctx: Any) -> dict[str, Any]:
    """Keras' own BackupAndRestore and ModelCheckpoint."""
    import keras

    seen: list[int] = []
    model = make_model(ctx, "sgd", seen)
    folder = Path(ctx.run_dir, f"backup-{ctx.rank}")
    best = Path(ctx.run_dir, "best.keras")
    history = model.fit(
        make_dataset(),
        epochs=EPOCHS,
        verbose=0,
        shuffle=False,
        callbacks=[
            keras.callbacks.BackupAndRestore(str(folder)),
            *ctx.callbacks(keras.callbacks.ModelCheckpoint(str(best), monitor="loss"))[2:],
        ],
    )
    found = describe(model, history, seen)
    if ctx.is_chief:
        weights = model.get_weights()[-1].tolist()
        saved = keras.saving.load_model(best, compile=False, custom_objects=_notes_stub())
        found["saved_like_trained"] = saved.get_weights()[-1].tolist() == weights
    return found


def _notes_stub() -> dict[str, Any]:
    import keras

    class Notes(keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return inputs[:, :5]

    return {"Notes": Notes}


@case
def custom_loop(ctx: Any) -> dict[str, Any]:
    """The loop of TensorFlow's own guide."""
    import keras
    import tensorflow as tf

    strategy = ctx.strategy
    dataset = strategy.experimental_distribute_dataset(make_dataset())
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.001)

    @tf.function  # type: ignore[misc]
    def step(batch: Any) -> Any:
        def replica_step(features: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                errors = tf.square(model(features, training=True) - labels)
                loss = tf.nn.compute_average_loss(errors[:, 0], global_batch_size=BATCH)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        losses = strategy.run(replica_step, args=batch)
        return strategy.reduce("SUM", losses, axis=None)

    losses = []
    for _ in range(EPOCHS):
        losses += [float(step(batch)) for batch in dataset]
    weights = [value for weight in model.get_weights() for value in weight.ravel().tolist()]
    return {"losses": losses, "weights": weights, "steps": int(optimizer.iterations.numpy())}


@case
def refused_datasets(ctx: Any) -> dict[str, Any]:
    """Datasets of which fit would use a part only."""
    import tensorflow as tf

    options = tf.data.Options()
    off = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = off
    model = make_model(ctx, "sgd", [])
    texts = []
    for dataset in (
        make_dataset().with_options(options),
        make_dataset().unbatch().shard(ctx.num_workers, ctx.rank).batch(BATCH),
    ):
        try:
            model.fit(dataset, verbose=0)
            texts.append("taken")
        except ValueError as error:
            texts.append(str(error))
    return {"texts": texts}


@case
def refused_steps_per_execution(ctx: Any) -> dict[str, Any]:
    try:
        fit(
            ctx,
            "sgd",
            make_dataset(),
            compiled={"steps_per_execution": 2},
            callbacks=ctx.callbacks(),
        )
        return {"text": "taken"}
    except ValueError as error:
        return {"text": str(error)}


@case
def export_in_between(ctx: Any) -> dict[str, Any]:
    model = make_model(ctx, "adam", [])
    model.fit(make_dataset(), epochs=1, verbose=0, shuffle=False)
    path = Path(ctx.export(model))
    Path(ctx.export(model, format="saved_model"))
    history = model.fit(make_dataset(), epochs=2, verbose=0, shuffle=False)
    model.evaluate(make_dataset(), verbose=0)
    return {"epochs": len(history.history["loss"]), "exists": path.exists() or not ctx.is_chief}
