"""TensorFlow's parameter servers: the servers, and the strategy of the chief."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from sparktrain.spec import NodeSpec
from sparktrain.trainer.gpus import make_server_config
from sparktrain.trainer.link import AgentLink


def serve(
    node: NodeSpec,
    cluster: Mapping[str, list[str]],
    link: AgentLink,
    num_gpus: int = 0,
    limit_mb: int = 0,
) -> None:
    """Holds variables, or computes for the chief, until the run is over."""
    config = make_server_config(num_gpus, limit_mb)
    if node.role == "ps":
        config.device_count["GPU"] = 0
    _server = tf.distribute.Server(
        tf.train.ClusterSpec(_without_evaluator(cluster)),
        job_name=node.role,
        task_index=node.index,
        protocol="grpc",
        config=config,
        start=True,
    )
    link.stop.wait()


def make_strategy(cluster: Mapping[str, list[str]]) -> Any:
    """The chief's ParameterServerStrategy."""
    # The resolver reads who it is from TF_CONFIG; the chief runs no server of its own.
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver)


def _without_evaluator(cluster: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {role: hosts for role, hosts in cluster.items() if role != "evaluator"}
