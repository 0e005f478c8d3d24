"""What a program's function is given on its node."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tensorflowonspark import TFNode, strategies


class NodeManager:
    """The node's end of the feeds, and a few values by name.

    Args:
        context: sparktrain's own, whose stream the rows come by.
    """

    def __init__(self, context: Any) -> None:
        self.context = context
        self.stream = context.stream
        self._values: dict[str, Any] = {"state": "running"}

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value


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
        cluster_spec: Mapping[str, Sequence[str]] | None = None,
        defaultFS: str = "file://",
        working_dir: str = ".",
        mgr: Any = None,
        tmp_socket: Any = None,
    ) -> None:
        self.worker_num = executor_id
        self.executor_id = executor_id
        self.job_name = job_name
        self.task_index = task_index
        self.cluster_spec = dict(cluster_spec or {})
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


def run_node(ctx: Any) -> Any:
    """The function of the sparktrain cluster: calls the program's own with its context."""
    map_fun, tf_args, meta = ctx.args
    strategies.install()
    if isinstance(tf_args, list):
        sys.argv = tf_args
    if not {"chief", "master"} & set(ctx.cluster_spec):
        os.environ.pop("TF_CONFIG", None)
    node = TFNodeContext(
        executor_id=meta["executor_ids"][f"{ctx.role}:{ctx.index}"],
        job_name=ctx.role,
        task_index=ctx.index,
        cluster_spec=ctx.cluster_spec,
        defaultFS=meta["default_fs"],
        working_dir=meta["working_dir"],
        mgr=NodeManager(ctx),
    )
    TFSparkNode.mgr, TFSparkNode.cluster_id = node.mgr, meta["id"]
    return map_fun(tf_args, node)


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
