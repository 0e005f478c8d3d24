"""The front door of long-lived groups: `cluster` starts nodes that later Spark jobs feed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sparktrain.spec import CHIEF, PS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparktrain.agent.feeding import Target
    from sparktrain.driver.feeds import FeedResult
    from sparktrain.driver.group import Group
    from sparktrain.driver.state import NodeState, Snapshot
    from sparktrain.driver.streams import StreamFeed

TICK_S = 0.2


class Cluster:
    """Nodes that are up and wait for rows; made by cluster(). Use as a context manager.

    Attributes:
        run_dir: Logs, checkpoints, TensorBoard events.
    """

    def __init__(self, group: Group) -> None:
        from sparktrain.driver.feeds import Feeds

        self._group = group
        self._feeds = Feeds(group)
        self._streams: list[StreamFeed] = []
        #: Tables of which no more rows will come.
        self._ended: set[str] = set()
        self.run_dir = str(group.plan.run_dir)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        if error is None:
            self.stop()
            return
        # What went wrong in the block is the error; the nodes' own may be its cause.
        self._abort(error)

    def feed(
        self,
        data: Any,
        *,
        epochs: int = 1,
        name: str = "train",
        timeout_s: float | None = None,
        idle_timeout_s: float | None = None,
        stop_when: str = "any",
        checkpoint: str | os.PathLike[str] | None = None,
        trigger: Mapping[str, Any] | None = None,
    ) -> FeedResult | StreamFeed:
        """Brings rows to the functions; returns when they have taken them.

        Args:
            data: A DataFrame, sparktrain.table(df, ...) with declarations, an RDD of any rows, or
                a streaming DataFrame, which is fed in the background until it ends.
            epochs: How often all rows are fed. Defaults to 1.
            name: The table, as ctx.dataset() calls it. Defaults to "train".
            timeout_s: How long it may take; a stream: each of its batches. Defaults to None, no
                limit.
            idle_timeout_s: How long rows may wait without any being taken. Defaults to None, no
                limit.
            stop_when: "any": the feed ends when any function wants no more rows. "all": when all
                want no more; rows for those that do not want them are dropped.
            checkpoint: For a stream: where Spark keeps its offsets. Defaults to a folder in the
                run directory.
            trigger: For a stream: arguments of its trigger(), such as {"availableNow": True}.

        Raises:
            ConfigError, SchemaError: It cannot be fed; nothing was started.
            TrainingError: A node failed: the first cause.
            TimeoutError: timeout_s or idle_timeout_s is over.
        """
        from sparktrain.data.tables import Table, table
        from sparktrain.driver.arguments import check_feed
        from sparktrain.driver.feed_terms import Terms
        from sparktrain.driver.streams import StreamFeed
        from sparktrain.errors import ConfigError

        self._check_open("feed")
        check_feed(epochs, name, timeout_s, idle_timeout_s, stop_when)
        if name in self._ended:
            raise ConfigError(
                problem=f"feed() got name={name!r}, behind end_feed({name!r}).",
                advice="Feed before it, or under another name.",
            )
        terms = Terms(timeout_s, idle_timeout_s, stop_when == "all")
        frame = data.frame if isinstance(data, Table) else data
        if getattr(frame, "isStreaming", False):
            if epochs != 1:
                raise ConfigError(
                    problem=f"feed() got a stream and epochs={epochs}.",
                    advice="A stream is fed once. Feed its rows as a DataFrame for more epochs.",
                )
            wished = data if isinstance(data, Table) else table(data)
            stream = StreamFeed(self._group, self._feeds, wished, name, checkpoint, trigger, terms)
            self._streams.append(stream)
            return stream
        return self._feeds.feed(data, epochs, name, terms)

    def end_feed(self, name: str = "train") -> None:
        """No more rows of a table will come: the functions' loops over it end, and they go on.

            cluster.feed(df)
            cluster.end_feed()          # fit returns, and what is behind it runs: ctx.serve()
            scored = cluster.predict(df)

        Args:
            name: The table. Defaults to "train".
        """
        self._check_open("end_feed")
        self._ended.add(name)
        self._group.hub.finish_feeds(name)

    def predict(
        self, data: Any, *, inputs: Any = None, outputs: Any = None, timeout_s: float | None = None
    ) -> DataFrame:
        """A lazy DataFrame: all columns, and what ctx.serve() answers, row for row.

        Args:
            data: A DataFrame, or sparktrain.table(df, ...).
            inputs: The columns that the function gets. Defaults to all.
            outputs: The schema of the answers, such as "prediction array<float>". By default the
                function is asked about one row to find out.
            timeout_s: How long finding out may take. Defaults to None, no limit.

        Raises:
            TimeoutError: No function has answered within timeout_s; the cluster goes on.
        """
        from sparktrain.driver.predictions import predict

        self._check_open("predict")
        return predict(self._group, data, inputs, outputs, timeout_s)

    @property
    def target(self) -> Target:
        """Where tasks find the trainers; for layers above this one."""
        return self._group.target

    @property
    def has_enough(self) -> bool:
        """Whether some function wants no more rows."""
        return self._group.has_enough()

    def describe_nodes(self) -> list[dict[str, Any]]:
        """Each node's card: name, host, port, versions."""
        return self._group.hub.describe()

    @property
    def nodes(self) -> tuple[NodeState, ...]:
        """What is known of each node: name, status, host, process id."""
        return tuple(self.snapshot().nodes.values())

    def snapshot(self) -> Snapshot:
        """A frozen picture of the cluster."""
        return self._group.hub.snapshot

    @property
    def metrics(self) -> list[dict[str, float]]:
        """One dict an epoch, or a call of ctx.report(), so far."""
        return [dict(row) for row in self.snapshot().metrics]

    @property
    def model_path(self) -> str | None:
        """What ctx.export() wrote last."""
        return self._group.hub.model_path

    @property
    def tensorboard_url(self) -> str | None:
        """Where TensorBoard is; None if it was not asked for."""
        return self._group.board.find(self.snapshot())[0] or None

    @property
    def tensorboard_command(self) -> str:
        """What shows the events later, in a terminal."""
        from sparktrain.driver.boards import find_command

        return find_command(self._group.plan)

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until every function has returned by itself; raises the first cause if one fails.

        Raises:
            TimeoutError: Functions still run; the cluster goes on.
        """
        group = self._group
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while not group.is_over and not group.has_returned:
                group.check()
                if deadline is not None and time.monotonic() > deadline:
                    busy = [node.name for node in self.nodes if node.status == "running"]
                    raise TimeoutError(
                        f"{', '.join(busy) or 'the cluster'} still ran after {timeout_s:g} s."
                        " cluster.stop() ends the feeds, which functions wait for."
                    )
                group.hub.wait(TICK_S)
        except TimeoutError:
            raise
        except BaseException as error:
            self._abort(error)
            raise
        self._end_streams()
        group.close(None)
        group.check()

    def stop(self, timeout_s: float | None = None) -> None:
        """Ends the feeds, waits for the functions to come to their end, and raises their errors.

        Args:
            timeout_s: After this, functions that still run are ended, with RunTimeoutError.
                Defaults to None: they may take their time to train on the last rows and to save.
        """
        group = self._group
        if group.is_over:
            group.check()
            return
        self._end_streams()
        group.hub.finish_feeds()
        try:
            self.wait(timeout_s)
        except TimeoutError as late:
            from sparktrain.driver.failures import make_timeout

            error = make_timeout(group.hub.snapshot, timeout_s, group.record)
            self._abort(error)
            raise error from late

    def _end_streams(self) -> None:
        for stream in self._streams:
            stream.stop()

    def _abort(self, error: BaseException) -> None:
        # The nodes first: batches of streams wait for them.
        self._group.close(error)
        self._end_streams()

    def _check_open(self, what: str) -> None:
        from sparktrain.errors import ConfigError

        self._group.check()
        if self._group.is_over:
            raise ConfigError(
                problem=f"{what}() was called on a cluster that has ended.",
                advice="Start another one with sparktrain.cluster().",
            )


def cluster(
    train_fn: Callable[..., Any],
    *,
    num_workers: int,
    num_ps: int = 0,
    evaluator: bool = False,
    args: Any = None,
    data: Any = None,
    spark: SparkSession | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    ps_on_driver: bool = False,
    tensorboard: bool | str | os.PathLike[str] = False,
    chief: str | None = CHIEF,
    **settings: Any,
) -> Cluster:
    """Starts nodes that outlive their Spark tasks, and are fed by jobs and streams.

        def train(ctx):
            model = build(); model.compile(...)
            model.fit(ctx.dataset(batch_size=256, features=["x"], label="y"))
            ctx.serve(lambda batch: model(batch["x"], training=False))

        with cluster(train, num_workers=2) as group:
            group.feed(df, epochs=3)
            group.end_feed()
            scored = group.predict(df)

    Args:
        train_fn: Called on every node with its context.
        num_workers: How many nodes train: the chief and the workers.
        num_ps: How many of TensorFlow's parameter servers there are; with distribution="periodic",
            nodes that hold parameters for ctx.parameter_server(). Defaults to 0.
        evaluator: Whether one more node runs the function as an evaluator. Defaults to False.
        args: Anything picklable; the function finds it as ctx.args. Defaults to None.
        data: Files that nodes read themselves: sparktrain.files(path, ...) or a dict of them.
        spark: A SparkSession. Defaults to the active one, else to the embedded one.
        run_dir: Where everything of this cluster is written. Defaults to a new folder.
        env: Environment variables for the nodes, set before TensorFlow is loaded.
        ps_on_driver: Whether parameter servers, if they are small, run beside the driver.
        tensorboard: Whether TensorBoard runs as long as the cluster does; the path of what it
            shows, if that is not ctx.log_dir. Defaults to False. See docs/tensorboard.md.
        chief: What the first worker is called; None if it is a worker like the others, as
            programs of TensorFlow 1 may have it, with distribution="none". Defaults to "chief".
        **settings: See docs/settings.md.

    Raises:
        ConfigError: Something asked for cannot be; nothing was started.
        LaunchError: The nodes did not come up.
    """
    from sparktrain.driver.arguments import check_numbers
    from sparktrain.driver.boards import add_board
    from sparktrain.driver.group import Group
    from sparktrain.driver.plan import make_cluster_plan
    from sparktrain.training import find_session

    check_numbers(num_workers, call="cluster")
    session = spark if spark is not None else find_session(num_workers + bool(evaluator))
    plan, num_tasks = make_cluster_plan(
        session,
        train_fn,
        num_workers=num_workers,
        num_ps=num_ps,
        evaluator=bool(evaluator),
        args=args,
        data=data,
        run_dir=run_dir,
        env=env,
        settings=settings,
        chief=chief,
    )
    own = tuple(node for node in plan.nodes if ps_on_driver and node.role == PS)
    num_tasks = min(num_tasks, len(plan.nodes) - len(own))
    is_served = num_ps > 0 and plan.settings.distribution == "auto"
    plan = add_board(plan, tensorboard, "cluster")
    group = Group(session, plan, num_tasks, is_served, own)
    group.start()
    return Cluster(group)
