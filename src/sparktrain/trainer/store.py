"""The parameters that one server holds: parts of models, each changed by one worker at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparktrain.trainer.sync_rules import REPLACE, RULES, combine

#: What a program computes itself: (server's, worker's, worker, variable) -> the server's.
Own = Callable[[Any, Any, int, str], Any]


class StoreError(Exception):
    """A call that does not fit what is here; the text is for the worker's user."""


@dataclass
class _Part:
    #: Flat. Never written to, only replaced: what was given out may still be on its way.
    values: Any
    #: Of the variable, if it is all of one.
    name: str
    shape: tuple[int, ...]
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class _Meeting:
    """The last synchronisation of a client: which parts it has changed."""

    number: int = 0
    parts: set[int] = field(default_factory=set)
    #: No others any more: the worker was told which.
    is_over: bool = False

    def begin(self, number: int) -> None:
        """Whatever comes first of a later one; an earlier one has no say any more."""
        if number > self.number:
            self.number, self.parts, self.is_over = number, set(), False
        if number < self.number:
            raise StoreError(f"meeting {number} is over, {self.number} has begun")


@dataclass
class _Space:
    """The parameters of one model."""

    layout: str
    parts: dict[int, _Part] = field(default_factory=dict)
    is_ready: bool = False
    num_syncs: int = 0
    #: Workers that have come, and those whose fit is over.
    joined: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    #: How many fits of each worker are over.
    fits: dict[int, int] = field(default_factory=dict)
    #: By client: a worker that is started again has another one.
    meetings: dict[str, _Meeting] = field(default_factory=dict)


class Store:
    """All spaces of a server. A space is made by the first worker that asks for it.

    Args:
        find_own: Finds what a program computes itself, when that is first asked for.
    """

    def __init__(self, find_own: Callable[[], Own] | None = None) -> None:
        self._spaces: dict[str, _Space] = {}
        #: Workers that are gone, also for models that come later.
        self._gone: set[int] = set()
        self._lock = threading.Lock()
        self._find_own = find_own
        self._own: Own | None = None
        #: What a program computes itself is asked one at a time: it may keep notes.
        self._own_lock = threading.Lock()

    def open(self, space: str, layout: str, worker: int) -> bool:
        """A worker begins; whether there are parameters to go on with."""
        with self._lock:
            found = self._spaces.setdefault(space, _Space(layout))
            if found.layout != layout:
                raise StoreError(
                    f"the model {space!r} of worker {worker} has other variables than the model"
                    " that came first. All workers must build the same model, and call"
                    " ctx.parameter_server() for their models in the same order"
                )
            self._gone.discard(worker)
            found.joined.add(worker)
            found.left.discard(worker)
            return found.is_ready

    def leave(self, space: str, worker: int, fit: int = 1) -> None:
        """A worker's fit, its first or a later one, is over; without a space, it is gone."""
        with self._lock:
            if not space:
                self._gone.add(worker)
            elif space in self._spaces:
                found = self._spaces[space]
                found.left.add(worker)
                found.fits[worker] = max(found.fits.get(worker, 0), fit)

    def describe(self, space: str) -> dict[str, Any]:
        with self._lock:
            found = self._spaces.get(space)
            if found is None:
                found = _Space("")
            return {
                "is_ready": found.is_ready,
                "num_syncs": found.num_syncs,
                "joined": sorted(found.joined),
                "left": sorted(found.left | self._gone),
                "fits": sorted(found.fits.items()),
                "gone": sorted(self._gone),
            }

    def put(self, space: str, parts: Mapping[int, tuple[str, tuple[int, ...], Any]]) -> None:
        """The first values, with name and shape of each part; later ones are not wanted."""
        found = self._find(space)
        with self._lock:
            if not found.is_ready:
                found.parts = {
                    number: _Part(np.array(values), name, shape)
                    for number, (name, shape, values) in parts.items()
                }
                found.is_ready = True

    def numbers(self, space: str) -> list[int]:
        return sorted(self._find(space).parts)

    def pull(self, space: str, number: int) -> Any:
        return self._find_part(space, number).values

    def dtype(self, space: str, number: int) -> Any:
        return self._find_part(space, number).values.dtype

    def sync(
        self,
        space: str,
        number: int,
        rule: str,
        rate: float,
        sent: Any,
        worker: int = -1,
        client: str = "",
        meeting: int = 0,
    ) -> Any:
        """One part of a synchronisation; returns what the worker goes on with.

        Args:
            client: The name of the worker's connection.
            meeting: Which synchronisation of that client it is.
        """
        part = self._find_part(space, number)
        if sent.shape != part.values.shape:
            raise StoreError(
                f"part {number} of {space!r} has {part.values.size} values, and {sent.size} came"
            )
        if rule == "own":
            own = self._get_own()
            self._note(space, number, client, meeting)
            with self._own_lock:
                old, new = part.values.reshape(part.shape).copy(), sent.reshape(part.shape)
                found = np.asarray(own(old, new, worker, part.name), part.values.dtype)
                if found.shape != part.shape:
                    raise StoreError(
                        f"the program's own rule made an array of shape {found.shape} of"
                        f" {part.name!r}, which has the shape {part.shape}"
                    )
                part.values = found.reshape(-1).copy()
                return part.values
        if rule not in (*RULES, REPLACE):
            raise StoreError(f"rule {rule!r} is not known; expected one of {', '.join(RULES)}")
        self._note(space, number, client, meeting)
        with part.lock:
            part.values, taken = combine(rule, rate, part.values, sent)
        return taken

    def settle(self, space: str, client: str, meeting: int) -> list[int]:
        """Which parts a client's last meeting has changed; from now on it changes no others.

        For workers to whom the answers were lost: what they brought counts once.
        """
        found = self._find(space)
        with self._lock:
            last = found.meetings.setdefault(client, _Meeting())
            last.begin(meeting)
            last.is_over = True
            return sorted(last.parts)

    def _note(self, space: str, number: int, client: str, meeting: int) -> None:
        """A part of a meeting is about to be changed."""
        found = self._find(space)
        with self._lock:
            last = found.meetings.setdefault(client, _Meeting())
            last.begin(meeting)
            if last.is_over:
                raise StoreError(f"meeting {meeting} is over")
            last.parts.add(number)
            found.num_syncs += len(last.parts) == len(found.parts)

    def _get_own(self) -> Own:
        with self._lock:
            if self._own is None:
                if self._find_own is None:
                    raise StoreError("this program brings no rule of its own")
                self._own = self._find_own()
            return self._own

    def _find(self, space: str) -> _Space:
        with self._lock:
            if space not in self._spaces:
                raise StoreError(f"no worker has opened {space!r}")
            return self._spaces[space]

    def _find_part(self, space: str, number: int) -> _Part:
        found = self._find(space)
        if not found.is_ready or number not in found.parts:
            raise StoreError(f"there is no part {number} of {space!r} here")
        return found.parts[number]
