"""Starts the nodes of a program on Spark's executors, feeds them, and waits for them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from tensorflowonspark import reservation
from tensorflowonspark.paths import strip_slash
from tensorflowonspark.stream_wait import StreamWait
from tensorflowonspark.TFSparkNode import run_node

#: Kept, and always empty: an error is raised by the cluster that it is of.
tf_status: dict[str, Any] = {}

#: What num_epochs=0 means.
DEFAULT_EPOCHS = 10


class InputMode:
    """Where the rows come from: the nodes read them, or Spark feeds them."""

    TENSORFLOW = 0
    SPARK = 1


class TFCluster:
    """A running program; made by run()."""

    sc: Any = None
    defaultFS: Any = None
    working_dir: Any = None
    num_executors: Any = None
    #: Kept: no job holds on to the nodes.
    nodeRDD: Any = None
    cluster_id: Any = None
    cluster_meta: Any = None
    input_mode: Any = None
    queues: Any = None
    server: Any = None

    def __init__(
        self,
        sc: Any,
        cluster: Any,
        input_mode: int,
        queues: Sequence[str],
        meta: dict[str, Any],
        server: reservation.Server,
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
        self.server = server
        #: Queries that feed this cluster.
        self._streams: list[Any] = []
        for node in self.cluster_info:
            self.server.reservations.add(node)

    @property
    def cluster_info(self) -> list[dict[str, Any]]:
        """One dict a node."""
        cards = self.cluster.describe_nodes()
        shown = find_board_node([card["node"] for card in cards])
        found = []
        for card in cards:
            name, _, index = card["node"].partition(":")
            pid, port = self._find_board() if card["node"] == shown else (0, 0)
            found.append(
                {
                    "executor_id": self.meta["executor_ids"][card["node"]],
                    "host": card["host"],
                    "job_name": name,
                    "task_index": int(index),
                    "port": card["port"],
                    "tb_pid": pid,
                    "tb_port": port,
                    "addr": card["node"],
                    "authkey": None,
                }
            )
        return sorted(found, key=lambda node: node["executor_id"])

    def _find_board(self) -> tuple[int, int]:
        """The process id and the port of TensorBoard; zeros if there is none."""
        board = self.cluster._group.board.here
        if board is None or board.url is None:
            return 0, 0
        return int(board.pid), int(urlsplit(board.url).port or 0)

    def train(
        self,
        dataRDD: Any,
        num_epochs: int = 0,
        feed_timeout: float = 600,
        qname: str = "input",
        *,
        trigger: Mapping[str, Any] | None = None,
    ) -> Any:
        """Feeds an RDD, a DataFrame, a DStream or a streaming DataFrame to the workers.

        Args:
            num_epochs: How often; 0 means 10. A stream is fed once.
            feed_timeout: Seconds in which no row is taken before it is an error.
            qname: The name of the feed.
            trigger: For a streaming DataFrame: arguments of its trigger(), such as
                {"availableNow": True}.
        """
        self._need_spark("train")
        self._check_queue(qname)
        if num_epochs < 0:
            raise AssertionError(f"train() got num_epochs={num_epochs}; expected 0 or more")
        if hasattr(dataRDD, "foreachRDD"):
            dataRDD.foreachRDD(lambda rdd: self._feed(rdd, 1, feed_timeout, qname))
            return None
        if getattr(dataRDD, "isStreaming", False):
            self._streams.append(self._feed_stream(dataRDD, feed_timeout, qname, trigger))
            return self._streams[-1]
        self._feed(dataRDD, num_epochs or DEFAULT_EPOCHS, feed_timeout, qname)
        return None

    def _feed_stream(self, data: Any, feed_timeout: float, qname: str, trigger: Any) -> Any:
        return self.cluster.feed(data, name=qname, trigger=trigger, idle_timeout_s=feed_timeout)

    def _feed(self, data: Any, epochs: int, feed_timeout: float, qname: str) -> None:
        # A worker that terminates its feed leaves the others theirs.
        result = self.cluster.feed(
            data, epochs=epochs, name=qname, idle_timeout_s=feed_timeout, stop_when="all"
        )
        # As of old, who waits for a stream hears of the first that has enough.
        if result.was_stopped or self.cluster.has_enough:
            self.server.done = True

    def inference(self, dataRDD: Any, feed_timeout: float = 600, qname: str = "input") -> Any:
        """A lazy RDD: for each row what the function answered, in order.

        Args:
            dataRDD: An RDD, or a DataFrame, whose rows are asked.
            feed_timeout: Seconds in which rows wait and none is taken or answered before it is
                an error.
        """
        from sparktrain.agent.asking import ask_rows

        self._need_spark("inference")
        self._check_queue(qname)
        rows = dataRDD if hasattr(dataRDD, "mapPartitions") else dataRDD.rdd
        ask = partial(ask_rows, self.cluster.target, idle_timeout_s=feed_timeout)
        return rows.mapPartitions(ask)

    def shutdown(self, ssc: Any = None, grace_secs: float = 0, timeout: float = 259200) -> None:
        """Ends the feeds, waits for all functions, and raises the first error of any.

        Args:
            ssc: A StreamingContext to wait for first; it is stopped when a function has enough.
                Streaming DataFrames that were given to train() are waited for just so.
            grace_secs: Not needed any more: functions may take their time to their end.
            timeout: Seconds after which functions that still run are ended; -1 for no limit.
        """
        wait = StreamWait(self, timeout if timeout and timeout > 0 else None)
        try:
            failure = wait.for_context(ssc) if ssc is not None else wait.for_queries(self._streams)
            # The error of a node comes first: that a stream failed may be its echo.
            self.cluster.stop(wait.left_s)
            if failure is not None:
                raise failure
        except BaseException as error:
            self.end(error)
            raise
        finally:
            self.server.stop()

    def end(self, error: BaseException) -> None:
        """Ends all functions at once, because of an error."""
        self.cluster.__exit__(type(error), error, error.__traceback__)
        self.server.stop()

    def tensorboard_url(self) -> str | None:
        """Where TensorBoard is; None if it was not asked for."""
        url: str | None = self.cluster.tensorboard_url
        return url

    def _need_spark(self, what: str) -> None:
        if self.input_mode != InputMode.SPARK:
            raise AssertionError(f"TFCluster.{what}() needs InputMode.SPARK")

    def _check_queue(self, qname: str) -> None:
        if qname not in self.queues:
            raise AssertionError(
                f"Unknown queue: {qname!r}; TFCluster.run() was given queues={self.queues}"
            )


def find_board_node(names: Sequence[str]) -> str | None:
    """The node that TensorBoard was beside in the old library, and is counted to."""
    first = [name for name in names if name == "worker:0"]
    others = sorted(name for name in names if name in ("chief:0", "master:0"))
    return next(iter(first + others), None)


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
    queues: Sequence[str] = ["input", "output", "error"],
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
        queues: Names of feeds.
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
        "queues": list(queues),
        "executor_ids": {name: number for number, name in enumerate(names)},
        "cluster_template": _make_template(names),
    }
    # Before the nodes: a port that is taken must not leave them behind.
    server = reservation.Server(num_executors)
    meta["server_addr"] = server.start()
    try:
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
    except BaseException:
        server.stop()
        raise
    return TFCluster(sc, cluster, input_mode, queues, meta, server)


def find_default_fs(spark: Any) -> str:
    """Hadoop's fs.defaultFS, without the slash at its end."""
    found = str(spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS") or "file://")
    return "file://" if found.startswith("file:") else strip_slash(found)


def _make_template(names: Sequence[str]) -> dict[str, list[int]]:
    template: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        template.setdefault(name.partition(":")[0], []).append(number)
    return template
