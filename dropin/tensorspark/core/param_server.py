"""The parameter server of a session and its workers: a group of nodes, for one run or many."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pyarrow.flight as fl

import sparktrain
from sparktrain.errors import SparktrainError
from sparktrain.trainer.sync_rules import REPLACE
from sparktrain.wire.layout import gather
from sparktrain.wire.parameters import ParameterClient, Stores
from tensorspark.core.session_worker import DONE, SessionWorker, Task, make_client, name_table
from tensorspark.core.weight_combiner import WeightCombiner, find_rule

TICK_S = 0.1
#: How long to wait for the cause, when the server does not answer.
CAUSE_WAIT_S = 8.0
#: The driver, among the workers.
DRIVER = -1


class ParameterServer:
    """A server beside the driver, and workers on the executors.

    Args:
        spark: pyspark's own session.
        combiner: What the server computes.
        num_workers: How many nodes train.
    """

    def __init__(self, spark: Any, combiner: WeightCombiner, num_workers: int) -> None:
        self.combiner = combiner
        self.num_workers = num_workers
        #: Runs that have begun.
        self.num_runs = 0
        self._cluster = sparktrain.cluster(
            SessionWorker(combiner, num_workers),
            num_workers=num_workers,
            num_ps=1,
            distribution="periodic",
            ps_on_driver=True,
            spark=spark,
        )
        group = self._cluster._group
        doors = tuple(door for door in group.hub.doors if door.node.startswith("ps:"))
        self._stores = Stores(doors, self._cluster.target.token)

    @property
    def run_dir(self) -> str:
        return self._cluster.run_dir

    def find_problem(self) -> Exception | None:
        """Why it cannot be used again: it, or a worker, was lost since the last run."""
        group = self._cluster._group
        try:
            group.check()
            with self._open_done() as done:
                done.states()
        except (SparktrainError, fl.FlightError, OSError) as error:
            return error
        return RuntimeError("it was stopped") if group.is_over else None

    def can_combine(self, combiner: WeightCombiner) -> bool:
        """Whether it combines like this one."""
        return combiner is self.combiner or find_rule(combiner)[0] != "own"

    def run(self, task: Task, batches: Any, values: list[Any]) -> list[Any]:
        """Trains on an RDD of batches; returns the parameters' new values.

        Args:
            values: What the parameters have now.
        """
        try:
            return self._run(task, batches, values)
        except fl.FlightError:
            # The server is gone: most often because a node failed, which is the cause.
            self._cluster._group.wait_for_cause(CAUSE_WAIT_S)
            raise

    def _run(self, task: Task, batches: Any, values: list[Any]) -> list[Any]:
        table = name_table(self.num_runs)
        with make_client(self._stores, task, DRIVER) as client, self._open_done() as done:
            bring(client, values)
            self.num_runs += 1
            self._cluster.feed(batches, name=table)
            self._cluster.end_feed(table)
            self._wait(done)
            found = [np.empty_like(value) for value in values]
            client.pull(found)
        return found

    def _open_done(self) -> ParameterClient:
        client = ParameterClient(self._stores, DONE, (), DRIVER)
        try:
            client.open()
        except BaseException:
            client.close()
            raise
        return client

    def _wait(self, done: ParameterClient) -> None:
        """Until all workers have brought what they learnt; raises the first error of any."""
        group = self._cluster._group
        last = self.num_runs * self.num_workers
        wanted = set(range(last - self.num_workers, last))
        while True:
            group.check()
            if wanted <= set(done.states()[0]["left"]):
                return
            group.hub.wait(TICK_S)

    def stop(self) -> None:
        """Ends the server and the workers."""
        self._cluster.stop()

    def abort(self, error: BaseException) -> None:
        """The same at once, because of an error."""
        with contextlib.suppress(SparktrainError):
            self._cluster.__exit__(type(error), error, error.__traceback__)


def bring(client: ParameterClient, values: list[Any]) -> None:
    """The session's values, also if it was changed since an earlier run."""
    if not client.open():
        client.put(values)
        return
    known = [np.empty_like(value) for value in values]
    client.pull(known)
    if all(np.array_equal(*pair) for pair in zip(known, values, strict=True)):
        return
    # What the server has may be NaN, or far away: no difference would lead from there to them.
    client.sync(REPLACE, 1.0, lambda part: gather(part, values), lambda part, new: None)
