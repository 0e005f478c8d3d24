"""What happens when a worker meets the parameter server: arithmetic on arrays, nothing else.

With s the server's values, w the worker's, b what the worker had after the last meeting:

    average   s <- s + (w - s) / num_workers     w <- s
    delta     s <- s + (w - b)                   w <- s
    elastic   d = alpha (w - s)                  s <- s + d     w <- w - d

`average` moves the server by the mean of what the workers have learnt, `delta` by its sum, and
`elastic` (EASGD) leaves each worker near its own values, pulled towards the server's. None of
them takes a value for its distance from zero: where weights start makes no difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

AVERAGE, DELTA, ELASTIC = "average", "delta", "elastic"
RULES = (AVERAGE, DELTA, ELASTIC)
#: Not offered to programs: the server takes what is sent, whatever it had.
REPLACE = "replace"


def to_send(rule: str, worker: Any, base: Any) -> Any:
    """What travels to the server."""
    return worker - base if rule == DELTA else worker


def to_mean(worker: Any, base: Any, num_workers: int) -> Any:
    """What a worker brings as statistics for `delta`: their moves add up to the mean."""
    return base + (worker - base) * base.dtype.type(1.0 / num_workers)


def combine(rule: str, rate: float, server: Any, sent: Any) -> tuple[Any, Any]:
    """The server's new values, and what the worker goes on with; changes neither argument.

    Args:
        rate: 1 / num_workers for `average`, alpha for `elastic`; not used by others.
    """
    if rule == REPLACE:
        taken = np.array(sent, server.dtype)
        return taken, taken
    if rule == DELTA:
        added = np.add(server, sent)
        return added, added
    step = np.subtract(sent, server)
    step *= server.dtype.type(rate)
    if rule == AVERAGE:
        step += server
        return step, step
    return np.add(server, step), np.subtract(sent, step, out=step)


def find_taken(rule: str, rate: float, brought: Any, server: Any) -> Any:
    """What a worker would have gone on with, from what the server has after it brought its values.

    For answers that were lost. What others brought since then is in it as well.
    """
    if rule != ELASTIC:
        return server
    # The server moved from s to s + d, d = alpha (w - s): so d = alpha / (1 - alpha) (w - s - d).
    # Not beyond the server: what others brought is not for this worker to add up.
    share = min(rate / (1.0 - rate), 1.0)
    return brought - (brought - server) * server.dtype.type(share)


def find_rate(rule: str, num_workers: int, alpha: float | None) -> float:
    """By default alpha is 0.9 / num_workers, as in the paper on elastic averaging."""
    if rule == ELASTIC:
        return 0.9 / num_workers if alpha is None else alpha
    return 1.0 / num_workers
