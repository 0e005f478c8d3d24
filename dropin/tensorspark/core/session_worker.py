"""What runs on the nodes: a copy of the session, fed with batches, that meets the server.

Loads TensorFlow only where it trains; the parameter server needs the combiner alone.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparktrain.wire.layout import PART_BYTES, Part, Variable, gather, scatter
from sparktrain.wire.parameters import ParameterClient, Stores
from tensorspark.core.session_files import SessionFiles, load_graph
from tensorspark.core.session_util import apply_parameters, find_fetch, read_variables
from tensorspark.core.weight_combiner import WeightCombiner

#: Where workers say that they are done with a run; no parameters are there.
DONE = "done"


@dataclass(frozen=True)
class Task:
    """What a run wants; goes with every batch."""

    files: SessionFiles
    fetches: Any
    feeds: tuple[str, ...]
    #: Of the parameters, in their order.
    variables: tuple[Variable, ...]
    space: str
    rule: str
    rate: float
    sync_interval: int
    #: What is fed with every batch, by name, if there is anything.
    constants: SessionFiles | None = None
    #: tf.compat.v1.RunOptions, if there are any.
    options: bytes | None = None


def make_client(stores: Stores, task: Task, worker: int) -> ParameterClient:
    """A program's own combiner gets whole variables."""
    part_bytes = None if task.rule == "own" else PART_BYTES
    return ParameterClient(stores, task.space, task.variables, worker, part_bytes)


class Copy:
    """A worker's own copy of the session; use as a context manager."""

    def __init__(self, files: SessionFiles) -> None:
        import tensorflow as tf

        self.files = files
        meta, values = files.read()
        self.graph, self.variables = load_graph(meta)
        self.session = tf.compat.v1.Session(graph=self.graph)
        apply_parameters(self.session, self.variables, values)

    def close(self) -> None:
        self.session.close()


class Training:
    """One run on one worker."""

    def __init__(self, copy: Copy, task: Task, stores: Stores, worker: int) -> None:
        self._task = task
        self._session = copy.session
        self._variables = {one.name: copy.variables[one.name] for one in task.variables}
        self._fetches = find_fetch(copy.graph, task.fetches)
        self._options = _unpack_options(task.options)
        self._constants = task.constants.read()[1] if task.constants is not None else {}
        self._client = make_client(stores, task, worker)
        #: What this worker had after the last meeting.
        self._base: list[Any] = []
        self._steps = 0
        self._client.open()
        arrays = [np.empty(one.shape, one.dtype) for one in task.variables]
        self._client.pull(arrays)
        self._take(arrays)

    def step(self, arrays: list[Any]) -> None:
        """One mini-batch; the servers are met behind every sync_interval of them."""
        fed = {**self._constants, **dict(zip(self._task.feeds, arrays, strict=True))}
        self._session.run(self._fetches, fed, options=self._options)
        self._steps += 1
        if self._steps % self._task.sync_interval == 0:
            self._sync()

    def finish(self) -> None:
        """What is left since the last meeting."""
        if self._steps % self._task.sync_interval:
            self._sync()

    def close(self) -> None:
        self._client.close()

    def _sync(self) -> None:
        values = read_variables(self._session, self._variables)
        own = [values[one.name] for one in self._task.variables]
        taken = [np.empty_like(array) for array in own]

        def get(part: Part) -> Any:
            found = gather(part, own)
            return found - gather(part, self._base) if self._task.rule == "delta" else found

        self._client.sync(
            self._task.rule, self._task.rate, get, lambda part, new: scatter(part, new, taken)
        )
        self._take(taken)

    def _take(self, arrays: list[Any]) -> None:
        names = [one.name for one in self._task.variables]
        apply_parameters(self._session, self._variables, dict(zip(names, arrays, strict=True)))
        self._base = arrays


class SessionWorker:
    """The function of the nodes: takes part in one run after the other, until the group stops."""

    def __init__(self, combiner: WeightCombiner, num_workers: int) -> None:
        self._combiner = combiner
        self._num_workers = num_workers

    def combine(self, old: Any, new: Any, worker: int, name: str) -> Any:
        """Called on the parameter server, for combiners that sparktrain has no rule for."""
        return self._combiner.compute(old, new, worker % self._num_workers, name)

    def __call__(self, ctx: Any) -> None:
        copy: Copy | None = None
        try:
            for number in itertools.count():
                # Another one in every run, so that it is seen which run it is done with.
                worker = number * self._num_workers + ctx.rank
                training: Training | None = None
                try:
                    for task, arrays in ctx.rows(name_table(number)):
                        if copy is None or copy.files != task.files:
                            if copy is not None:
                                copy.close()
                            copy = Copy(task.files)
                        if training is None:
                            training = Training(copy, task, ctx.stores, worker)
                        training.step(arrays)
                    if ctx.stream.inbox.has_ended(""):
                        return
                    if training is not None:
                        training.finish()
                finally:
                    if training is not None:
                        training.close()
                with ParameterClient(ctx.stores, DONE, (), worker) as client:
                    client.leave()
        finally:
            if copy is not None:
                copy.close()


def name_table(number: int) -> str:
    return f"run-{number}"


def _unpack_options(data: bytes | None) -> Any:
    if data is None:
        return None
    import tensorflow as tf

    return tf.compat.v1.RunOptions.FromString(data)
