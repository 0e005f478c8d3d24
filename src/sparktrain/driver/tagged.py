"""A Spark job in a thread, with a name to cancel it by: classic or Connect."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparktrain.driver.spark_facts import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TaggedJob:
    """Runs work() in a thread, so that the driver can watch and cancel it meanwhile.

    Args:
        tag, title: What the job is cancelled by, and how Spark's pages show it.
        on_done: Called when it is over, whichever way.
    """

    def __init__(
        self,
        spark: SparkSession,
        work: Callable[[], Any],
        tag: str,
        title: str,
        on_done: Callable[[], None],
    ) -> None:
        from pyspark import InheritableThread

        self._spark = spark
        self._is_connect = is_connect(spark)
        self._run = work
        self._tag = tag
        self._title = title
        self._on_done = on_done
        self._cancelled = False
        self._thread = InheritableThread(target=self._work, session=spark)
        self._thread.daemon = True
        #: What work() gave, and what Spark raised.
        self.value: Any = None
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def join(self, timeout_s: float) -> bool:
        """Whether the job is done within the time."""
        self._thread.join(timeout_s)
        return self.is_done()

    def cancel(self) -> None:
        """Asks Spark to end the job; one that is not submitted yet never will be."""
        self._cancelled = True
        # Spark may be gone itself: then so is the job.
        with contextlib.suppress(Exception):
            if self._is_connect:
                self._spark.interruptTag(self._tag)
            else:
                self._spark.sparkContext.cancelJobGroup(self._tag)

    def cancel_and_join(self, timeout_s: float) -> None:
        """Ends the job, if it is not done; again and again, as it may be about to begin."""
        deadline = time.monotonic() + timeout_s
        while not self.is_done() and time.monotonic() < deadline:
            self.cancel()
            self.join(0.5)

    def _work(self) -> None:
        try:
            if self._is_connect:
                self._spark.addTag(self._tag)
            else:
                self._spark.sparkContext.setJobGroup(self._tag, self._title)
            if not self._cancelled:
                self.value = self._run()
        except Exception as error:
            self.error = error
        finally:
            self._on_done()
