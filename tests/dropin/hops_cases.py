"""Functions of experiments that nodes import."""

from __future__ import annotations

from typing import Any


def serve_and_train() -> dict[str, Any] | None:
    """As TensorFlow 2's own guide to parameter servers has it."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
            start=True,
        )
        server.join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def step() -> None:
        total.assign_add(1.0)

    for _ in range(20):
        coordinator.schedule(step)
    coordinator.join()
    return {"total": total.numpy(), "is_served": "job:ps" in total.device}
