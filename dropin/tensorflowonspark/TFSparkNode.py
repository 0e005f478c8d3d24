"""What a program's function is given on its node."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tensorflowonspark import TFNode, node_env, strategies
from tensorflowonspark.node_manager import NodeManager
from tensorflowonspark.versions import find_tensorflow

TF_VERSION = find_tensorflow()


class TFNodeContext:
    """Who a node is, and what it can do.

    Attributes:
        executor_id, worker_num: The number of the node among all.
        job_name, task_index: Its role, and its number within the role.
        cluster_spec: Addresses of all nodes by role.
        num_workers: How many nodes train.
        defaultFS, working_dir: What paths without a scheme are relative to.
    """

    def __init__(
        self,
        executor_id: int = 0,
        job_name: str = "",
        task_index: int = 0,
        cluster_spec: Mapping[str, Sequence[str]] = {},
        defaultFS: str = "file://",
        working_dir: str = ".",
        mgr: Any = None,
        tmp_socket: Any = None,
    ) -> None:
        self.worker_num = executor_id
        self.executor_id = executor_id
        self.job_name = job_name
        self.task_index = task_index
        self.cluster_spec = dict(cluster_spec)
        self.num_workers = sum(
            len(hosts)
            for role, hosts in self.cluster_spec.items()
            if role in ("chief", "master", "worker")
        )
        self.defaultFS = defaultFS
        self.working_dir = working_dir
        self.mgr = mgr
        self.tmp_socket = tmp_socket

    def absolute_path(self, path: str) -> str:
        return TFNode.hdfs_path(self, path)

    def start_cluster_server(self, num_gpus: int = 1, rdma: bool = False) -> tuple[Any, Any]:
        return TFNode.start_cluster_server(self, num_gpus, rdma)

    def export_saved_model(self, sess: Any, export_dir: str, tag_set: str, signatures: Any) -> None:
        TFNode.export_saved_model(sess, export_dir, tag_set, signatures)

    def get_data_feed(
        self,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> TFNode.DataFeed:
        return TFNode.DataFeed(self.mgr, train_mode, qname_in, qname_out, input_mapping)

    def release_port(self) -> None:
        TFNode.release_port(self)


class TFSparkNode:
    """Kept for programs that look at it."""

    mgr: Any = None
    cluster_id: Any = None


def run_node(ctx: Any) -> None:
    """The function of the sparktrain cluster: calls the program's own with its context."""
    map_fun, tf_args, meta = ctx.args
    node_env.expand_classpath()
    node_env.choose_gpus(tf_args, ctx.role, ctx.index, ctx.cluster_spec)
    node_env.complete_tf_config(ctx.cluster_spec)
    # DataFeed.dataset() then gives steps without rows to a worker that has none.
    strategies.install(lambda strategy: ctx.use_strategy(strategy, is_together=True))
    if isinstance(tf_args, list):
        sys.argv = tf_args
    node = TFNodeContext(
        executor_id=meta["executor_ids"][f"{ctx.role}:{ctx.index}"],
        job_name=ctx.role,
        task_index=ctx.index,
        cluster_spec=ctx.cluster_spec,
        defaultFS=meta["default_fs"],
        working_dir=meta["working_dir"],
        mgr=NodeManager(ctx, meta["queues"]),
    )
    TFSparkNode.mgr, TFSparkNode.cluster_id = node.mgr, meta["id"]
    call(map_fun, tf_args, node)


def call(map_fun: Any, tf_args: Any, node: TFNodeContext) -> None:
    """Calls a program; what it returns is nobody's, and may be anything."""
    try:
        map_fun(tf_args, node)
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            raise


def _has_spark_resource_api() -> bool:
    """Whether Spark tells tasks about their GPUs: since 3.0."""
    from pyspark import TaskContext

    return hasattr(TaskContext, "resources")


def _get_manager(cluster_info: Sequence[Mapping[str, Any]], host: str, executor_id: int) -> Any:
    """The manager of this process, if it is a node's."""
    if TFSparkNode.mgr is None:
        raise Exception(
            f"No TFManager found on this node: {host}, executor {executor_id}. Nodes run in"
            " processes of their own here, and only their function has one, as ctx.mgr; to feed"
            " them, call train() or inference() of the cluster."
        )
    return TFSparkNode.mgr


def run(
    fn: Any,
    tf_args: Any,
    cluster_meta: Mapping[str, Any],
    tensorboard: bool,
    log_dir: str | None,
    queues: Sequence[str],
    background: bool,
) -> Any:
    """Of the old library's inside; nodes are started by TFCluster.run() only."""
    raise _make_error("run", "TFCluster.run()")


def train(
    cluster_info: Sequence[Mapping[str, Any]],
    cluster_meta: Mapping[str, Any],
    feed_timeout: float = 600,
    qname: str = "input",
) -> Any:
    """Of the old library's inside; nodes are fed by TFCluster.train() only."""
    raise _make_error("train", "train() of the TFCluster")


def inference(
    cluster_info: Sequence[Mapping[str, Any]], feed_timeout: float = 600, qname: str = "input"
) -> Any:
    """Of the old library's inside; nodes are asked by TFCluster.inference() only."""
    raise _make_error("inference", "inference() of the TFCluster")


def shutdown(
    cluster_info: Sequence[Mapping[str, Any]],
    grace_secs: float = 0,
    queues: Sequence[str] = ["input"],
) -> Any:
    """Of the old library's inside; nodes are ended by TFCluster.shutdown() only."""
    raise _make_error("shutdown", "shutdown() of the TFCluster")


def _make_error(what: str, instead: str) -> NotImplementedError:
    return NotImplementedError(
        f"TFSparkNode.{what}() was a part of the old library's inside that is not there any more."
        f" Call {instead}."
    )


def _get_cluster_spec(sorted_cluster_info: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Addresses by role, of nodes in their order."""
    spec: dict[str, list[str]] = {}
    last = -1
    for node in sorted_cluster_info:
        if node["executor_id"] == last:
            raise Exception("Duplicate worker/task in cluster_info")
        last = node["executor_id"]
        spec.setdefault(node["job_name"], []).append(f"{node['host']}:{node['port']}")
    return spec
