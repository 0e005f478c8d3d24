"""A session of TensorFlow that trains on the rows of an RDD, on many workers."""

from __future__ import annotations

import hashlib
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from sparktrain.driver.spark_facts import count_slots
from sparktrain.errors import ConfigError
from tensorspark.core.batches import Batches
from tensorspark.core.checks import (
    check_combiner,
    check_count,
    find_constants,
    find_feeds,
    find_parameters,
)
from tensorspark.core.param_server import ParameterServer
from tensorspark.core.paths import find_base_dir, find_storage_options
from tensorspark.core.sent_files import SentFiles
from tensorspark.core.session_files import SessionFiles, pack_graph
from tensorspark.core.session_util import (
    apply_parameters,
    extract_fetch,
    find_fetch,
    find_variables,
    read_variables,
)
from tensorspark.core.session_worker import Task
from tensorspark.core.weight_combiner import MeanWeightCombiner, WeightCombiner, find_rule


class SparkSession:
    """Trains the variables of a session with the rows of RDDs; use as a context manager.

    Args:
        spark_context: The SparkContext.
        session: A tf.compat.v1.Session whose variables are initialised. It is changed in place.
        user: The user of HDFS.
        name: What the session's files are called.
        server_host, server_port: Kept: the parameter server is beside the driver, on a port of
            its own, with TLS and a token.
        target, graph, config: Kept; not used, as of old.
        sync_interval: Mini-batches that a worker trains alone between two meetings with the
            server.
        batch_size: Rows of a mini-batch.
    """

    def __init__(
        self,
        spark_context: Any,
        session: Any,
        user: str = "",
        name: str = "",
        target: str = "",
        server_host: str = "localhost",
        server_port: int = 10080,
        graph: Any = None,
        config: Any = None,
        sync_interval: int = 3,
        batch_size: int = 10000,
    ) -> None:
        from pyspark.sql import SparkSession as Spark

        check_count("sync_interval", sync_interval)
        check_count("batch_size", batch_size)
        self._spark = Spark(spark_context) if hasattr(spark_context, "_jsc") else spark_context
        self._session = session
        self._sync_interval = sync_interval
        self._batch_size = batch_size
        self._server: ParameterServer | None = None
        self._sent = SentFiles(self._spark, name or "", user or "")

    def __enter__(self) -> SparkSession:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self._abort(error)
        self.close()

    def run(
        self,
        fetches: Any,
        feed_rdd: Any = None,
        feed_name_list: Sequence[str] | None = None,
        param_list: Sequence[Any] | None = None,
        feed_dict: Mapping[Any, Any] | None = None,
        weight_combiner: WeightCombiner | None = None,
        shuffle_within_partition: bool = False,
        options: Any = None,
        run_metadata: Any = None,
        server_reusable: bool = False,
    ) -> Any:
        """Runs fetches on the rows of an RDD, in mini-batches; the session has what was learnt.

        Args:
            fetches: An operation or a tensor, or a list or dict of them.
            feed_rdd: An RDD of tuples. None runs fetches here, as session.run() does.
            feed_name_list: The names of the placeholders, in the order of the tuples.
            param_list: The variables that workers share.
            feed_dict: With an RDD, fed with every mini-batch.
            weight_combiner: What becomes of the weights that workers bring. Defaults to
                MeanWeightCombiner of the number of workers.
            shuffle_within_partition: Whether the rows of a partition are shuffled.
            options: A RunOptions.
            run_metadata: For runs without an RDD.
            server_reusable: Whether server and workers stay for the next run, until
                stop_param_server().

        Returns:
            Without an RDD, what session.run() returns; else None.

        Raises:
            ConfigError: Something cannot be; nothing was started.
            TrainingError: A worker failed: the first cause.
        """
        if feed_rdd is None:
            return self._session.run(fetches, feed_dict, options, run_metadata)
        if run_metadata is not None:
            warnings.warn("run_metadata is filled by runs without an RDD only", stacklevel=2)
        graph = self._session.graph
        names = self._name_fetches(fetches)
        feeds, dtypes = find_feeds(graph, feed_name_list)
        known = find_variables(graph)
        variables = find_parameters(self._session, known, param_list)
        constants = find_constants(graph, feed_dict, feeds)
        check_combiner(weight_combiner)
        meta = pack_graph(graph)
        parameters = {one.name: known[one.name] for one in variables}
        values = read_variables(self._session, parameters)
        others = {name: one for name, one in known.items() if name not in parameters}
        rest = read_variables(self._session, others)
        try:
            server = self._find_server(feed_rdd, weight_combiner)
            combiner = weight_combiner or MeanWeightCombiner(server.num_workers)
            rule, rate = find_rule(combiner)
            with self._sent.lend(server.run_dir, constants) as lent:
                task = Task(
                    files=self._sent.keep(server.run_dir, meta, rest, values),
                    fetches=names,
                    feeds=feeds,
                    variables=variables,
                    space=_name_space(variables, rule),
                    rule=rule,
                    rate=rate,
                    sync_interval=self._sync_interval,
                    constants=lent,
                    options=None if options is None else options.SerializeToString(),
                )
                seed = random.getrandbits(64) if shuffle_within_partition else None
                batches = Batches(task, feeds, dtypes, self._batch_size, seed)
                found = server.run(
                    task,
                    feed_rdd.mapPartitionsWithIndex(batches),
                    [values[one.name] for one in variables],
                )
            if not server_reusable:
                self.stop_param_server()
        except BaseException as error:
            self._abort(error)
            raise
        learnt = dict(zip([one.name for one in variables], found, strict=True))
        apply_parameters(self._session, known, learnt)
        return None

    def _name_fetches(self, fetches: Any) -> Any:
        try:
            names = extract_fetch(fetches)
            find_fetch(self._session.graph, names)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                problem=f"run() got fetches that are not of the session's graph: {error}.",
                advice="Expected an operation or a tensor of it, or a list or dict of them.",
            ) from error
        return names

    def _find_server(self, rdd: Any, combiner: WeightCombiner | None) -> ParameterServer:
        """The one of the last run, if it was kept, is still up, and fits."""
        if self._server is not None and (problem := self._server.find_problem()) is not None:
            told = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
            warnings.warn(
                f"The parameter server of the last run is gone, or one of its workers ({told}). New"
                " ones begin with what the session has; what else they had is lost.",
                stacklevel=3,
            )
            self._abort(problem)
        if self._server is not None:
            if combiner is None or self._server.can_combine(combiner):
                return self._server
            self.stop_param_server()
        partitions = max(rdd.getNumPartitions(), 1)
        num_workers = min(partitions, count_slots(self._spark) or partitions)
        wished = combiner or MeanWeightCombiner(num_workers)
        self._server = ParameterServer(self._spark, wished, num_workers)
        return self._server

    def broadcast_session(
        self, session: Any, user: str, filename: str, base_dir: str = ""
    ) -> tuple[str, str, str]:
        """Writes a session's files for everyone to read; returns path, meta path, saver path.

        They stay until you remove them.
        """
        base = base_dir or find_base_dir(self._spark, "sparktrain-runs")
        path = f"{base.rstrip('/')}/{filename}"
        files = SessionFiles(path, find_storage_options(path, user))
        files.write(
            pack_graph(session.graph), read_variables(session, find_variables(session.graph))
        )
        return files.path, files.meta_path, files.saver_path

    def save_session_hdfs(
        self, session: Any, user: str, filename: str, base_dir: str = ""
    ) -> tuple[str, str, str]:
        """The same as broadcast_session()."""
        return self.broadcast_session(session, user, filename, base_dir)

    def get_session(self) -> Any:
        """The session, with what was learnt so far."""
        return self._session

    def stop_param_server(self) -> None:
        """Ends the server and the workers of runs with server_reusable."""
        server, self._server = self._server, None
        try:
            if server is not None:
                server.stop()
        finally:
            self._sent.remove()

    def _abort(self, error: BaseException) -> None:
        server, self._server = self._server, None
        try:
            if server is not None:
                server.abort(error)
        finally:
            self._sent.remove()

    def close(self) -> None:
        """Ends what runs, and closes the session."""
        try:
            self.stop_param_server()
        finally:
            self._session.close()

    @staticmethod
    def reset(target: str, containers: Any = None, config: Any = None) -> None:
        """As tf.Session.reset()."""
        import tensorflow as tf

        tf.compat.v1.Session.reset(target, containers, config)


def _name_space(variables: Sequence[Any], rule: str) -> str:
    """Other parameters have another place; so have those that are cut into other parts."""
    told = f"{'own' if rule == 'own' else ''} {variables!r}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]
