"""A program's function on its node: before it, its folder for events; behind it, its outputs."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hops import on_import, outputs, place, stores, tensorboard, work_folder
from hops.hparams import Params


@dataclass(frozen=True)
class TrainNode:
    """The function of the run: calls the program's own.

    Attributes:
        arguments: What it is called with.
        folder: The trial's folder, in any store.
        local_logdir: Whether events are written to this host first.
        key: What a search looks at; None outside of searches.
        is_together: Whether the nodes train together, each with a log of its own.
    """

    train_fn: Callable[..., Any]
    folder: str
    project: str
    arguments: Params = field(default_factory=dict)
    local_logdir: bool = False
    key: str | None = None
    is_together: bool = False

    def __call__(self, ctx: Any) -> dict[str, Any] | None:
        self._prepare(ctx)
        log = f"{ctx.role}_{ctx.index}_{outputs.LOG}" if self.is_together else outputs.LOG
        with work_folder.entered(Path(ctx.run_dir) / "work" / f"{ctx.role}-{ctx.index}"):
            try:
                with self._logdir(ctx) as logdir:
                    value = self.train_fn(**self.arguments)
            except ServingError:
                return None
            if ctx.rank != 0:
                return None
            kept = outputs.Kept(self.folder, self.project, log, logdir)
            return outputs.keep(value, kept, self.key)

    def _prepare(self, ctx: Any) -> None:
        if ctx.num_workers == 1 and set(ctx.cluster_spec) == {ctx.role}:
            os.environ.pop("TF_CONFIG", None)  # it trains alone
        elif "ps" in ctx.cluster_spec:
            if ctx.role == "worker":
                on_import.call_with("tensorflow", serve_on)
        else:
            os.environ["TF_CONFIG"] = add_evaluator(os.environ["TF_CONFIG"], ctx.cluster_spec)
            from tensorflowonspark import strategies

            strategies.install(lambda strategy: ctx.use_strategy(strategy, is_together=True))

    @contextlib.contextmanager
    def _logdir(self, ctx: Any) -> Iterator[str]:
        """The node's folder for events: the experiment's own, or one that is copied there."""
        # TensorFlow writes to paths only; the run's own folder is one.
        if not (self.local_logdir or place.has_scheme(self.folder)):
            tensorboard._set(self.folder)
            yield self.folder
            return
        # One each: nodes that go on write while others copy theirs.
        own = f"{ctx.role}_{ctx.index}"
        local = posixpath.join(os.path.abspath(ctx.log_dir), own)  # noqa: PTH100 (as text)
        tensorboard._set(local)
        try:
            yield local
        finally:
            if os.path.isdir(local):  # noqa: PTH112 (as text)
                stores.put(local, self.folder if ctx.rank == 0 else f"{self.folder}/{own}")


def add_evaluator(tf_config: str, cluster: Mapping[str, Sequence[str]]) -> str:
    """TF_CONFIG as hops had it: with the evaluator among the others."""
    config = json.loads(tf_config)
    config["cluster"].update({role: list(cluster[role]) for role in cluster if role == "evaluator"})
    return json.dumps(config)


#: Servers that go on behind their functions.
_serving: list[Any] = []


class ServingError(BaseException):
    """A worker only serves the chief from now on. No error: it leaves the program's function."""


def serve_on(tensorflow: Any) -> None:
    """Lets a worker's function be over when it joins its server.

    Joining never returns, and the driver would wait for ever. The server itself goes on: the
    process is there until all functions are over.
    """

    def join(self: Any) -> None:
        _serving.append(self)  # a server stops when nobody has it
        raise ServingError

    tensorflow.distribute.Server.join = join
