"""Experiments in the program itself, on the driver: between begin() and end()."""

from __future__ import annotations

import atexit
import os
import posixpath
from contextlib import ExitStack, suppress
from typing import Any

from hops import outputs, place, stores, tensorboard
from hops.records import Record
from hops.session import find_session
from hops.trials import find_run_dir

#: What begin() opened.
_begun: list[tuple[ExitStack, Record, str]] = []


def begin(name: str = "no-name", local_logdir: bool = False, description: str | None = None) -> str:
    """An experiment in the program itself; tensorboard.logdir() is its folder until end()."""
    spark = find_session()
    with ExitStack() as stack:
        record = stack.enter_context(Record(spark, "begin", name, description))
        is_away = local_logdir or place.has_scheme(record.folder)
        path = record.folder
        if is_away:  # also when the program goes to another working directory
            path = os.path.abspath(find_run_dir(spark, record.id, "tensorboard"))  # noqa: PTH100
        tensorboard._set(path)
        stack.callback(tensorboard._set, None)
        _begun.append((stack.pop_all(), record, path))
    return record.folder


def end(metric: Any = None) -> None:
    """Ends what begin() began.

    Args:
        metric: How good it was.
    """
    if not _begun:
        raise RuntimeError("No experiment was begun. Call experiment.begin() first.")
    stack, record, path = _begun.pop()
    with stack:
        if metric is not None:
            stores.write(posixpath.join(record.folder, outputs.METRIC), str(metric))
            record.note(metric=metric)
        _keep_events(path, record.folder)


def _keep_events(path: str, folder: str) -> None:
    if path != folder and os.path.isdir(path):  # noqa: PTH112 (as text)
        stores.put(path, folder)


@atexit.register
def _kill() -> None:
    """What is never ended is not RUNNING when the program is over: it is KILLED."""
    while _begun:
        stack, record, path = _begun.pop()
        with suppress(SystemExit), stack:
            _keep_events(path, record.folder)
            raise SystemExit("the program was over before experiment.end()")
