"""What a program's function uses on its node: its feed, its paths, its server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorflowonspark.datafeed import DataFeed
from tensorflowonspark.paths import make_absolute
from tensorflowonspark.versions import find_tensorflow

__all__ = [
    "TF_VERSION",
    "DataFeed",
    "batch_results",
    "export_saved_model",
    "hdfs_path",
    "next_batch",
    "release_port",
    "start_cluster_server",
    "terminate",
]

TF_VERSION = find_tensorflow()


def hdfs_path(ctx: Any, path: str) -> str:
    """The path with its scheme. Paths that have one, whichever, are left as they are."""
    return make_absolute(path, ctx.defaultFS, ctx.working_dir)


def start_cluster_server(ctx: Any, num_gpus: int = 1, rdma: bool = False) -> tuple[Any, Any]:
    """TensorFlow's cluster description and this node's server, for programs of TensorFlow 1."""
    import tensorflow as tf

    # An evaluator runs no server: sessions would wait for it for ever.
    servers = {role: hosts for role, hosts in ctx.cluster_spec.items() if role != "evaluator"}
    cluster = tf.train.ClusterSpec(servers)
    config = tf.compat.v1.ConfigProto()
    if ctx.job_name == "ps" or num_gpus == 0:
        config.device_count["GPU"] = 0
    release_port(ctx)
    server = tf.compat.v1.train.Server(
        cluster,
        job_name=ctx.job_name,
        task_index=ctx.task_index,
        protocol="grpc+verbs" if rdma else "grpc",
        config=config,
    )
    return cluster, server


def export_saved_model(sess: Any, export_dir: str, tag_set: str, signatures: Any) -> None:
    """Writes the graph of a session as a SavedModel.

    Args:
        signatures: {key: {"inputs": {name: tensor}, "outputs": {name: tensor},
            "method_name": ...}}.
    """
    import tensorflow.compat.v1 as tf

    if hasattr(sess, "_tf_sess"):  # a monitored session holds on to TensorFlow's own
        sess = sess._tf_sess()
    builder = tf.saved_model.builder.SavedModelBuilder(export_dir)
    definitions = {
        key: tf.saved_model.signature_def_utils.build_signature_def(
            inputs={n: tf.saved_model.utils.build_tensor_info(t) for n, t in s["inputs"].items()},
            outputs={n: tf.saved_model.utils.build_tensor_info(t) for n, t in s["outputs"].items()},
            method_name=s.get("method_name", key),
        )
        for key, s in signatures.items()
    }
    # Monitored sessions finalize their graph, and to save adds ops to it.
    was_finalized = sess.graph.finalized
    if was_finalized:
        sess.graph._unsafe_unfinalize()
    try:
        with sess.graph.as_default():
            builder.add_meta_graph_and_variables(
                sess, tag_set.split(","), signature_def_map=definitions, clear_devices=True
            )
        builder.save()
    finally:
        if was_finalized:
            sess.graph.finalize()


def release_port(ctx: Any) -> None:
    """Nothing has to be released: TensorFlow binds the port while it is still held."""
    if ctx.tmp_socket is not None:
        ctx.tmp_socket.close()
        ctx.tmp_socket = None


def next_batch(mgr: Any, batch_size: int, qname: str = "input") -> list[Any]:
    """Of old programs: see DataFeed.next_batch."""
    return list(DataFeed(mgr, qname_in=qname).next_batch(batch_size))


def batch_results(mgr: Any, results: Sequence[Any], qname: str = "output") -> None:
    """Of old programs: see DataFeed.batch_results."""
    DataFeed(mgr, qname_out=qname).batch_results(results)


def terminate(mgr: Any, qname: str = "input") -> None:
    """Of old programs: see DataFeed.terminate."""
    DataFeed(mgr, qname_in=qname).terminate()
