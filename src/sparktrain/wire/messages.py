"""The messages of the control link, as frozen values, and the check of what comes in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sparktrain.errors import WireError
from sparktrain.wire import cluster_messages
from sparktrain.wire.message import (
    Checks,
    Message,
    is_count,
    is_failure,
    is_lines,
    is_metrics,
    is_number,
    is_text,
    maybe,
)

#: Raised with every change of a message's meaning; both ends must have the same.
PROTOCOL = 1


@dataclass(frozen=True)
class Hello(Message):
    """First message of a link: who calls, and the run's token."""

    node: str
    run_id: str
    attempt: int
    token: str = dataclasses.field(repr=False)
    protocol: int = PROTOCOL
    kind: ClassVar[str] = "hello"
    checks: ClassVar[Checks] = {
        "node": is_text,
        "run_id": is_text,
        "attempt": is_count,
        "token": is_text,
        "protocol": is_count,
    }


@dataclass(frozen=True)
class Joined(Message):
    """The node met the others and its trainer is running."""

    host: str
    pid: int
    kind: ClassVar[str] = "joined"
    checks: ClassVar[Checks] = {"host": is_text, "pid": is_count}


@dataclass(frozen=True)
class Log(Message):
    """Lines the trainer printed, and how many had to be dropped before them."""

    lines: list[str]
    dropped: int = 0
    kind: ClassVar[str] = "log"
    checks: ClassVar[Checks] = {"lines": is_lines, "dropped": is_count}


@dataclass(frozen=True)
class Progress(Message):
    """Where a node is. Epochs and steps count from 1."""

    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    examples_per_s: float | None = None
    steps_per_s: float | None = None
    #: The share of the epoch so far that steps waited for input.
    input_wait: float | None = None
    #: Totals since the function began.
    rows: int | None = None
    total_steps: int | None = None
    #: True in the message at the end of an epoch.
    ended: bool = False
    kind: ClassVar[str] = "progress"
    checks: ClassVar[Checks] = {
        "epoch": maybe(is_count),
        "epochs": maybe(is_count),
        "step": maybe(is_count),
        "steps": maybe(is_count),
        "metrics": is_metrics,
        "examples_per_s": maybe(is_number),
        "steps_per_s": maybe(is_number),
        "input_wait": maybe(is_number),
        "rows": maybe(is_count),
        "total_steps": maybe(is_count),
        "ended": lambda value: isinstance(value, bool),
    }


@dataclass(frozen=True)
class Report(Message):
    """Metrics for the run's record: one epoch's, or what ctx.report() was given."""

    metrics: dict[str, float]
    kind: ClassVar[str] = "report"
    checks: ClassVar[Checks] = {"metrics": is_metrics}


@dataclass(frozen=True)
class Failed(Message):
    """The node failed; the agent ends its task with the same values."""

    failure: dict[str, Any]
    kind: ClassVar[str] = "failed"
    checks: ClassVar[Checks] = {"failure": is_failure}


@dataclass(frozen=True)
class Fed(Message):
    """All rows of the node have come in: how many, by table."""

    rows: dict[str, float]
    kind: ClassVar[str] = "fed"
    checks: ClassVar[Checks] = {"rows": is_metrics}


@dataclass(frozen=True)
class Board(Message):
    """Where the chief's TensorBoard listens, or why it does not."""

    url: str
    problem: str = ""
    kind: ClassVar[str] = "board"
    checks: ClassVar[Checks] = {"url": is_text, "problem": is_text}


@dataclass(frozen=True)
class Returned(Message):
    """The function returned; the node waits for the others."""

    kind: ClassVar[str] = "returned"


@dataclass(frozen=True)
class Bye(Message):
    """The node is gone and the link closes on purpose."""

    kind: ClassVar[str] = "bye"


@dataclass(frozen=True)
class Stop(Message):
    """From the driver: ctx.should_stop turns true."""

    kind: ClassVar[str] = "stop"


@dataclass(frozen=True)
class End(Message):
    """From the driver: end the trainer now."""

    reason: str
    #: Whether a restart may follow, which can use the spill.
    may_restart: bool = False
    kind: ClassVar[str] = "end"
    checks: ClassVar[Checks] = {
        "reason": is_text,
        "may_restart": lambda value: isinstance(value, bool),
    }


@dataclass(frozen=True)
class Leave(Message):
    """From the chief's agent: every function has returned."""

    kind: ClassVar[str] = "leave"


_RUN: tuple[type[Message], ...] = (
    Hello,
    Joined,
    Log,
    Progress,
    Report,
    Failed,
    Fed,
    Board,
    Returned,
    Bye,
    Stop,
    End,
    Leave,
)
_KINDS: dict[str, type[Message]] = {cls.kind: cls for cls in (*_RUN, *cluster_messages.ALL)}


def from_dict(values: Mapping[str, Any]) -> Message:
    """The message in a decoded frame; WireError for anything that is not exactly one."""
    cls = _KINDS.get(str(values.get("kind")))
    if cls is None:
        raise WireError(
            problem=f"Unknown message kind {values.get('kind')!r}; known: {', '.join(_KINDS)}."
        )
    fields = {name: value for name, value in values.items() if name != "kind"}
    names = set(cls.checks)
    if set(fields) != names:
        raise WireError(
            problem=f"A {cls.kind} message has the fields {sorted(fields)},"
            f" expected {sorted(names)}."
        )
    for name, check in cls.checks.items():
        if not check(fields[name]):
            raise WireError(
                problem=f"A {cls.kind} message has {name}={str(fields[name])[:80]!r}"
                f" of type {type(fields[name]).__name__}."
            )
    return cls(**fields)
