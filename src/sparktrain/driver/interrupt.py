"""Ctrl-C while a run is on: one KeyboardInterrupt, and nothing before it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def holding_back_spark() -> Iterator[None]:
    """Keeps Spark's own handler of Ctrl-C from acting.

    It cancels every job of the session before it raises: the nodes would be gone before their
    functions could see ctx.should_stop. The run cancels its own job once they had their time.
    A handler the user set is left alone.
    """
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not _is_of_spark(handler):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _is_of_spark(handler: Any) -> bool:
    return str(getattr(handler, "__module__", "")).startswith("pyspark.")
