"""A program's function on its node: before it, its folder for events; behind it, its outputs."""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Callable, Iterator
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
                with self._logdir(ctx):
                    value = self.train_fn(**self.arguments)
            except ServingError:
                return None
            if ctx.rank != 0:
                return None
            return outputs.keep(value, self.folder, self.project, log, self.key)

    def _prepare(self, ctx: Any) -> None:
        if ctx.num_workers == 1 and set(ctx.cluster_spec) == {ctx.role}:
            os.environ.pop("TF_CONFIG", None)  # it trains alone
        elif "ps" in ctx.cluster_spec:
            if ctx.role == "worker":
                on_import.call_with("tensorflow", serve_on)
        else:
            from tensorflowonspark import strategies

            strategies.install(lambda strategy: ctx.use_strategy(strategy, is_together=True))

    @contextlib.contextmanager
    def _logdir(self, ctx: Any) -> Iterator[None]:
        # TensorFlow writes to paths only; the run's own folder is one.
        if not (self.local_logdir or place.has_scheme(self.folder)):
            tensorboard._set(self.folder)
            yield
            return
        own = "" if ctx.rank == 0 else f"{ctx.role}_{ctx.index}"
        local = posixpath.join(ctx.log_dir, own)
        tensorboard._set(local)
        try:
            yield
        finally:
            if os.path.isdir(local):  # noqa: PTH112 (as text)
                stores.put(local, posixpath.join(self.folder, own))


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
