"""A training loop of one's own, with TensorFlow's strategy: no fit, no callbacks.

sparktrain run examples/custom_loop.py:train --num-workers 2
"""

from typing import Any

import numpy as np

GLOBAL_BATCH = 32


def train(ctx: Any) -> list[float]:
    import keras
    import tensorflow as tf

    rng = np.random.default_rng(0)
    features = rng.normal(size=(256, 4)).astype("float32")
    targets = features @ np.array([[1.0], [-2.0], [0.5], [3.0]], dtype="float32")
    dataset = tf.data.Dataset.from_tensor_slices((features, targets)).batch(GLOBAL_BATCH)
    # Every worker makes the same dataset; the strategy gives each its part of every batch.
    shared = ctx.strategy.experimental_distribute_dataset(dataset)

    keras.utils.set_random_seed(1)
    with ctx.strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)

    @tf.function
    def step(batch: Any) -> Any:
        def on_replica(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                errors = tf.square(model(x, training=True) - y)[:, 0]
                loss = tf.nn.compute_average_loss(errors, global_batch_size=GLOBAL_BATCH)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return ctx.strategy.reduce("SUM", ctx.strategy.run(on_replica, args=batch), axis=None)

    history = []
    for epoch in range(5):
        losses = [float(step(batch)) for batch in shared]
        history.append(sum(losses) / len(losses))
        ctx.report(epoch=epoch + 1, loss=history[-1])
        if ctx.should_stop:
            break
    ctx.export(model)
    return history
