"""Starts the nodes of a program on Spark's executors, feeds them, and waits for them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tensorflowonspark import reservation
from tensorflowonspark.TFSparkNode import run_node

#: What num_epochs=0 means.
DEFAULT_EPOCHS = 10


class InputMode:
    """Where the rows come from: the nodes read them, or Spark feeds them."""

    TENSORFLOW = 0
    SPARK = 1


class TFCluster:
    """A running program; made by run()."""

    def __init__(
        self, sc: Any, cluster: Any, input_mode: int, queues: Sequence[str], meta: dict[str, Any]
    ) -> None:
        self.sc = sc
        self.cluster = cluster
        self.input_mode = input_mode
        self.queues = list(queues)
        self.meta = self.cluster_meta = meta
        self.cluster_id = meta["id"]
        self.defaultFS = meta["default_fs"]
        self.working_dir = meta["working_dir"]
        self.num_executors = meta["num_executors"]
        self.server = reservation.Server(meta["num_executors"])
        meta["server_addr"] = self.server.start()
        for node in self.cluster_info:
            self.server.reservations.add(node)

    @property
    def cluster_info(self) -> list[dict[str, Any]]:
        """One dict a node."""
        found = []
        for card in self.cluster.describe_nodes():
            name, _, index = card["node"].partition(":")
            found.append(
                {
                    "executor_id": self.meta["executor_ids"][card["node"]],
                    "host": card["host"],
                    "job_name": name,
                    "task_index": int(index),
                    "port": card["port"],
                    "tb_pid": 0,
                    "tb_port": 0,
                    "addr": card["node"],
                    "authkey": None,
                }
            )
        return sorted(found, key=lambda node: node["executor_id"])

    def train(
        self, dataRDD: Any, num_epochs: int = 0, feed_timeout: float = 600, qname: str = "input"
    ) -> Any:
        """Feeds an RDD, a DataFrame, a DStream or a streaming DataFrame to the workers.

        Args:
            num_epochs: How often; 0 means 10. A stream is fed once.
            feed_timeout: Seconds in which no row is taken before it is an error.
            qname: The name of the feed.
        """
        self._need_spark("train")
        if num_epochs < 0:
            raise ValueError(f"train() got num_epochs={num_epochs}; expected 0 or more")
        if hasattr(dataRDD, "foreachRDD"):
            dataRDD.foreachRDD(lambda rdd: self._feed(rdd, 1, feed_timeout, qname))
            return None
        if getattr(dataRDD, "isStreaming", False):
            return self.cluster.feed(dataRDD, name=qname)
        self._feed(dataRDD, num_epochs or DEFAULT_EPOCHS, feed_timeout, qname)
        return None

    def _feed(self, data: Any, epochs: int, feed_timeout: float, qname: str) -> None:
        result = self.cluster.feed(data, epochs=epochs, name=qname, idle_timeout_s=feed_timeout)
        if result.was_stopped:
            self.server.done = True

    def inference(self, dataRDD: Any, feed_timeout: float = 600, qname: str = "input") -> Any:
        """A lazy RDD: for each row what the function answered, in order."""
        from sparktrain.agent.asking import ask_rows

        self._need_spark("inference")
        return dataRDD.mapPartitions(partial(ask_rows, self.cluster.target))

    def shutdown(self, ssc: Any = None, grace_secs: float = 0, timeout: float = 259200) -> None:
        """Ends the feeds, waits for all functions, and raises the first error of any.

        Args:
            ssc: A StreamingContext to wait for first; it is stopped when a function has enough.
            grace_secs: Not needed any more: functions may take their time to their end.
            timeout: Seconds after which functions that still run are ended; -1 for no limit.
        """
        limit = timeout if timeout and timeout > 0 else None
        try:
            if ssc is not None:
                while not ssc.awaitTerminationOrTimeout(1):
                    if self.server.done or self.cluster.has_enough:
                        ssc.stop(stopSparkContext=False, stopGraceFully=True)
                        break
            self.cluster.stop(limit)
        finally:
            self.server.stop()

    def tensorboard_url(self) -> str | None:
        """Where TensorBoard is; None if it was not asked for."""
        url: str | None = self.cluster.tensorboard_url
        return url

    def _need_spark(self, what: str) -> None:
        if self.input_mode != InputMode.SPARK:
            raise AssertionError(f"TFCluster.{what}() needs InputMode.SPARK")


def run(
    sc: Any,
    map_fun: Callable[[Any, Any], Any],
    tf_args: Any,
    num_executors: int,
    num_ps: int,
    tensorboard: bool = False,
    input_mode: int = InputMode.TENSORFLOW,
    log_dir: str | None = None,
    driver_ps_nodes: bool = False,
    master_node: str | None = None,
    reservation_timeout: float = 600,
    queues: Sequence[str] = ("input", "output", "error"),
    eval_node: bool = False,
    release_port: bool = True,
) -> TFCluster:
    """Starts a program on a cluster.

    Args:
        sc: The SparkContext.
        map_fun: Called on every node with tf_args and its TFNodeContext.
        tf_args: Anything picklable; a list becomes sys.argv.
        num_executors: How many nodes there are, all roles together.
        num_ps: How many of them are parameter servers.
        tensorboard, log_dir: Whether TensorBoard runs, and what it shows.
        input_mode: Whether Spark feeds the nodes.
        driver_ps_nodes: Whether parameter servers run beside the driver.
        master_node: What one of the nodes is called, 'chief' or 'master'.
        reservation_timeout: Seconds for the nodes to come up.
        queues: Kept; names of feeds need not be declared.
        eval_node: Whether one node is the evaluator.
        release_port: Kept; ports are held until TensorFlow has bound them.
    """
    from pyspark.sql import SparkSession

    import sparktrain

    if driver_ps_nodes and input_mode != InputMode.TENSORFLOW:
        raise Exception(
            "running PS nodes on driver locally is only supported in InputMode.TENSORFLOW"
        )
    if eval_node and input_mode != InputMode.TENSORFLOW:
        raise Exception("running evaluator nodes is only supported in InputMode.TENSORFLOW")
    num_workers = num_executors - num_ps - int(eval_node)
    if num_workers < 1:
        raise AssertionError(
            f"num_executors={num_executors} leaves no worker beside {num_ps} ps"
            f" and {int(eval_node)} evaluator"
        )
    spark = SparkSession.builder.getOrCreate() if sc is None else SparkSession(sc)
    names = [f"ps:{index}" for index in range(num_ps)]
    names += [f"{master_node}:0"] if master_node else []
    names += ["evaluator:0"] if eval_node else []
    names += [f"worker:{index}" for index in range(num_workers - bool(master_node))]
    meta: dict[str, Any] = {
        "id": random.getrandbits(64),
        "num_executors": num_executors,
        "default_fs": find_default_fs(spark),
        "working_dir": os.getcwd(),  # noqa: PTH109 (as text)
        "release_port": release_port,
        "executor_ids": {name: number for number, name in enumerate(names)},
        "cluster_template": _make_template(names),
    }
    cluster = sparktrain.cluster(
        run_node,
        num_workers=num_workers,
        num_ps=num_ps,
        evaluator=eval_node,
        args=(map_fun, tf_args, meta),
        spark=spark,
        chief=master_node,
        ps_on_driver=driver_ps_nodes,
        tensorboard=(log_dir or True) if tensorboard else False,
        distribution="none",
        launch_timeout_s=reservation_timeout,
    )
    return TFCluster(sc, cluster, input_mode, queues, meta)


def find_default_fs(spark: Any) -> str:
    """Hadoop's fs.defaultFS, without the slash at its end."""
    found = str(spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS") or "file://")
    return "file://" if found.startswith("file:") else found.rstrip("/")


def _make_template(names: Sequence[str]) -> dict[str, list[int]]:
    template: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        template.setdefault(name.partition(":")[0], []).append(number)
    return template
