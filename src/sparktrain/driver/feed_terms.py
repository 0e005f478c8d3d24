"""Whether a feed may go on: limits of time, functions that have enough, clusters that are over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sparktrain.agent.feeding import is_waiting
from sparktrain.driver.group import Group
from sparktrain.errors import ConfigError


@dataclass(frozen=True)
class Terms:
    """Under which conditions a feed goes on.

    Attributes:
        timeout_s: How long it may take in all.
        idle_timeout_s: How long rows may wait without any being taken.
        needs_all: Whether it ends early only when every function wants no more rows; rows for
            those that do not want them are dropped then.
        is_stopped: Whether whoever feeds has had enough.
    """

    timeout_s: float | None = None
    idle_timeout_s: float | None = None
    needs_all: bool = False
    is_stopped: Callable[[], bool] = lambda: False


class FeedStoppedError(Exception):
    """Whoever feeds has had enough."""


class Watch:
    """Looks, while a feed goes on, whether it may."""

    def __init__(self, group: Group, terms: Terms) -> None:
        self._group = group
        self._terms = terms
        self._started = self._moved = time.monotonic()
        self._taken = 0
        #: Whether all rows were brought: then it is the functions that are waited for.
        self.is_brought = False

    @property
    def needs_all(self) -> bool:
        return self._terms.needs_all

    def is_over(self) -> bool:
        """Whether functions want no more rows; raises what else ends a feed."""
        group, terms = self._group, self._terms
        group.check()
        if terms.is_stopped():
            raise FeedStoppedError
        if group.is_over:
            raise ConfigError(
                problem="The cluster was ended while it was fed.",
                advice="Call stop() when the feeds have returned.",
            )
        now = time.monotonic()
        if terms.timeout_s is not None and now - self._started > terms.timeout_s:
            raise self._make_error(f"The rows were not taken within timeout_s={terms.timeout_s:g}")
        self._check_idle(now)
        return group.has_enough(terms.needs_all)

    def _check_idle(self, now: float) -> None:
        limit_s = self._terms.idle_timeout_s
        taken = self._group.hub.num_taken
        if taken != self._taken:
            self._taken, self._moved = taken, now
        if limit_s is None or now - self._moved <= limit_s:
            return
        target = self._group.target
        if not self.is_brought and not any(is_waiting(target, door) for door in target.doors):
            self._moved = now  # Spark still computes them: there is nothing to be taken
            return
        raise self._make_error(f"No row was taken for {limit_s:g} s")

    def _make_error(self, what: str) -> TimeoutError:
        return TimeoutError(
            f"{what}. The functions of the cluster may be busy, or not ask for rows: their last"
            f" lines are in {self._group.plan.run_dir / 'logs'}."
        )
