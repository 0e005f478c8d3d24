"""The messages of the control link, as frozen values, and the check of what comes in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sparktrain.errors import WireError

Checks = Mapping[str, Callable[[object], bool]]

#: Raised with every change of a message's meaning; both ends must have the same.
PROTOCOL = 1


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_lines(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(line, str) for line in value)


def _is_metrics(value: object) -> bool:
    return isinstance(value, dict) and all(_is_number(number) for number in value.values())


def _is_failure(value: object) -> bool:
    return isinstance(value, dict) and all(
        check(value.get(name)) for name, check in _FAILURE_CHECKS.items()
    )


def _is_differences(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(holders, dict) and all(_is_lines(names) for names in holders.values())
        for holders in value.values()
    )


def _is_card(value: object) -> bool:
    """As the driver uses it: where the node is, what it runs, and its door."""
    if not isinstance(value, dict) or not _is_text(value.get("host")):
        return False
    versions, door = value.get("versions"), value.get("door")
    if not isinstance(versions, dict) or not isinstance(door, dict):
        return False
    texts = [*versions.values(), *(door.get(name) for name in ("node", "host", "path"))]
    texts.append(door.get("certificate"))
    return (
        all(map(_is_text, texts)) and _is_count(value.get("port")) and _is_count(door.get("port"))
    )


def _maybe(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or check(value)


#: The fields of spec.Failure as they arrive.
_FAILURE_CHECKS: Checks = {
    **dict.fromkeys(("node", "host", "kind", "what"), _is_text),
    "exit_code": _maybe(lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "signal": _maybe(_is_count),
    "traceback": _is_text,
    "tail": _is_lines,
    "is_echo": lambda value: isinstance(value, bool),
    "differences": _maybe(_is_differences),
}


@dataclass(frozen=True)
class Message:
    """Base of all messages."""

    kind: ClassVar[str] = ""
    checks: ClassVar[Checks] = {}

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **dataclasses.asdict(self)}


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
        "node": _is_text,
        "run_id": _is_text,
        "attempt": _is_count,
        "token": _is_text,
        "protocol": _is_count,
    }


@dataclass(frozen=True)
class Joined(Message):
    """The node met the others and its trainer is running."""

    host: str
    pid: int
    kind: ClassVar[str] = "joined"
    checks: ClassVar[Checks] = {"host": _is_text, "pid": _is_count}


@dataclass(frozen=True)
class Log(Message):
    """Lines the trainer printed, and how many had to be dropped before them."""

    lines: list[str]
    dropped: int = 0
    kind: ClassVar[str] = "log"
    checks: ClassVar[Checks] = {"lines": _is_lines, "dropped": _is_count}


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
        "epoch": _maybe(_is_count),
        "epochs": _maybe(_is_count),
        "step": _maybe(_is_count),
        "steps": _maybe(_is_count),
        "metrics": _is_metrics,
        "examples_per_s": _maybe(_is_number),
        "steps_per_s": _maybe(_is_number),
        "input_wait": _maybe(_is_number),
        "rows": _maybe(_is_count),
        "total_steps": _maybe(_is_count),
        "ended": lambda value: isinstance(value, bool),
    }


@dataclass(frozen=True)
class Report(Message):
    """Metrics for the run's record: one epoch's, or what ctx.report() was given."""

    metrics: dict[str, float]
    kind: ClassVar[str] = "report"
    checks: ClassVar[Checks] = {"metrics": _is_metrics}


@dataclass(frozen=True)
class Failed(Message):
    """The node failed; the agent ends its task with the same values."""

    failure: dict[str, Any]
    kind: ClassVar[str] = "failed"
    checks: ClassVar[Checks] = {"failure": _is_failure}


@dataclass(frozen=True)
class Fed(Message):
    """All rows of the node have come in: how many, by table."""

    rows: dict[str, float]
    kind: ClassVar[str] = "fed"
    checks: ClassVar[Checks] = {"rows": _is_metrics}


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
        "reason": _is_text,
        "may_restart": lambda value: isinstance(value, bool),
    }


@dataclass(frozen=True)
class Leave(Message):
    """From the chief's agent: every function has returned."""

    kind: ClassVar[str] = "leave"


@dataclass(frozen=True)
class Arrived(Message):
    """A node that outlives its Spark task is there; the driver tells it who the others are."""

    card: dict[str, Any]
    kind: ClassVar[str] = "arrived"
    checks: ClassVar[Checks] = {"card": _is_card}


@dataclass(frozen=True)
class Meet(Message):
    """From the driver: all have arrived, and these are their addresses by role."""

    cluster: dict[str, list[str]]
    kind: ClassVar[str] = "meet"
    checks: ClassVar[Checks] = {
        "cluster": lambda value: isinstance(value, dict) and all(map(_is_lines, value.values()))
    }


@dataclass(frozen=True)
class Beat(Message):
    """From the driver, every few seconds: it is still there."""

    kind: ClassVar[str] = "beat"


@dataclass(frozen=True)
class Exported(Message):
    """The function wrote a model."""

    path: str
    kind: ClassVar[str] = "export"
    checks: ClassVar[Checks] = {"path": _is_text}


@dataclass(frozen=True)
class Taken(Message):
    """How many rows of a feed the function has taken so far."""

    feed: str
    rows: int
    kind: ClassVar[str] = "taken"
    checks: ClassVar[Checks] = {"feed": _is_text, "rows": _is_count}


@dataclass(frozen=True)
class Enough(Message):
    """The function wants no more rows."""

    kind: ClassVar[str] = "enough"


@dataclass(frozen=True)
class Pace(Message):
    """How many steps a worker's dataset has given out, and whether it waits for rows now."""

    steps: int
    is_waiting: bool
    kind: ClassVar[str] = "pace"
    checks: ClassVar[Checks] = {
        "steps": _is_count,
        "is_waiting": lambda value: isinstance(value, bool),
    }


@dataclass(frozen=True)
class Catch(Message):
    """From the driver: give out steps up to this number, without rows where there are none."""

    steps: int
    kind: ClassVar[str] = "catch"
    checks: ClassVar[Checks] = {"steps": _is_count}


@dataclass(frozen=True)
class Announce(Message):
    """From the driver: rows of a table will come, here or elsewhere; these are its columns."""

    table: str
    columns: list[dict[str, Any]]
    kind: ClassVar[str] = "announce"
    checks: ClassVar[Checks] = {
        "table": _is_text,
        "columns": lambda value: (
            isinstance(value, list) and all(isinstance(column, dict) for column in value)
        ),
    }


@dataclass(frozen=True)
class Forget(Message):
    """From the driver: a feed is over, and no task of it will come back."""

    feed: str
    kind: ClassVar[str] = "forget"
    checks: ClassVar[Checks] = {"feed": _is_text}


@dataclass(frozen=True)
class NoMore(Message):
    """From the driver: no more rows will come."""

    kind: ClassVar[str] = "no_more"


@dataclass(frozen=True)
class Ask(Message):
    """From a feeding task that lost a trainer: what happened?"""

    kind: ClassVar[str] = "ask_cause"


@dataclass(frozen=True)
class Cause(Message):
    """The answer: the error as text; empty if none is known."""

    text: str
    kind: ClassVar[str] = "cause"
    checks: ClassVar[Checks] = {"text": _is_text}


_RUN = (Hello, Joined, Log, Progress, Report, Failed, Fed, Returned, Bye, Stop, End, Leave)
_CLUSTER = (
    Arrived,
    Meet,
    Beat,
    Exported,
    Taken,
    Enough,
    Pace,
    Catch,
    Announce,
    Forget,
    NoMore,
    Ask,
    Cause,
)
_KINDS: dict[str, type[Message]] = {cls.kind: cls for cls in (*_RUN, *_CLUSTER)}


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
