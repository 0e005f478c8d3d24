"""The messages between the driver of a cluster, its nodes, and tasks that lost one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sparktrain.wire.message import Checks, Message, is_card, is_count, is_lines, is_text

#: Who was not heard of on a link for so long, although beats go both ways, is not there: a host
#: that vanishes does not close its connections.
SILENT_S = 8.0


@dataclass(frozen=True)
class Arrived(Message):
    """A node that outlives its Spark task is there; the driver tells it who the others are."""

    card: dict[str, Any]
    kind: ClassVar[str] = "arrived"
    checks: ClassVar[Checks] = {"card": is_card}


@dataclass(frozen=True)
class Meet(Message):
    """From the driver: all have arrived, and these are their addresses by role."""

    cluster: dict[str, list[str]]
    #: The doors at which parameters are held.
    stores: list[dict[str, Any]] = field(default_factory=list)
    kind: ClassVar[str] = "meet"
    checks: ClassVar[Checks] = {
        "cluster": lambda value: isinstance(value, dict) and all(map(is_lines, value.values())),
        "stores": lambda value: (
            isinstance(value, list) and all(isinstance(one, dict) for one in value)
        ),
    }


@dataclass(frozen=True)
class Beat(Message):
    """From the driver, every few seconds: it is still there."""

    kind: ClassVar[str] = "beat"


@dataclass(frozen=True)
class Here(Message):
    """The answer to a beat: so is the node."""

    kind: ClassVar[str] = "here"


@dataclass(frozen=True)
class Exported(Message):
    """The function wrote a model."""

    path: str
    kind: ClassVar[str] = "export"
    checks: ClassVar[Checks] = {"path": is_text}


@dataclass(frozen=True)
class Taken(Message):
    """How many rows of a feed the function has taken so far."""

    feed: str
    rows: int
    kind: ClassVar[str] = "taken"
    checks: ClassVar[Checks] = {"feed": is_text, "rows": is_count}


@dataclass(frozen=True)
class Enough(Message):
    """The function wants no more rows."""

    kind: ClassVar[str] = "enough"


@dataclass(frozen=True)
class Pace(Message):
    """How many steps a worker's dataset has given out, and whether it waits for rows now."""

    table: str
    steps: int
    is_waiting: bool
    kind: ClassVar[str] = "pace"
    checks: ClassVar[Checks] = {
        "table": is_text,
        "steps": is_count,
        "is_waiting": lambda value: isinstance(value, bool),
    }


@dataclass(frozen=True)
class Catch(Message):
    """From the driver: give out steps up to this number, without rows where there are none."""

    table: str
    steps: int
    kind: ClassVar[str] = "catch"
    checks: ClassVar[Checks] = {"table": is_text, "steps": is_count}


@dataclass(frozen=True)
class Announce(Message):
    """From the driver: rows of a table will come, here or elsewhere; these are its columns."""

    table: str
    columns: list[dict[str, Any]]
    kind: ClassVar[str] = "announce"
    checks: ClassVar[Checks] = {
        "table": is_text,
        "columns": lambda value: (
            isinstance(value, list) and all(isinstance(column, dict) for column in value)
        ),
    }


@dataclass(frozen=True)
class Forget(Message):
    """From the driver: a feed is over, and no task of it will come back."""

    feed: str
    kind: ClassVar[str] = "forget"
    checks: ClassVar[Checks] = {"feed": is_text}


@dataclass(frozen=True)
class NoMore(Message):
    """From the driver: no more rows will come, of a table or, without a name, of any."""

    table: str = ""
    kind: ClassVar[str] = "no_more"
    checks: ClassVar[Checks] = {"table": is_text}


@dataclass(frozen=True)
class Flush(Message):
    """From the driver: train on what has come of a table, also if it does not fill a batch."""

    feed: str
    table: str
    kind: ClassVar[str] = "flush"
    checks: ClassVar[Checks] = {"feed": is_text, "table": is_text}


@dataclass(frozen=True)
class Flushed(Message):
    """The node has trained on all that had come."""

    feed: str
    kind: ClassVar[str] = "flushed"
    checks: ClassVar[Checks] = {"feed": is_text}


@dataclass(frozen=True)
class Save(Message):
    """From the driver, to the chief: write a checkpoint."""

    feed: str
    kind: ClassVar[str] = "save"
    checks: ClassVar[Checks] = {"feed": is_text}


@dataclass(frozen=True)
class Saved(Message):
    """The checkpoint is there."""

    feed: str
    kind: ClassVar[str] = "saved"
    checks: ClassVar[Checks] = {"feed": is_text}


@dataclass(frozen=True)
class Ask(Message):
    """From a feeding task that lost a trainer: what happened?"""

    kind: ClassVar[str] = "ask_cause"


@dataclass(frozen=True)
class Cause(Message):
    """The answer: the error as text; empty if none is known."""

    text: str
    kind: ClassVar[str] = "cause"
    checks: ClassVar[Checks] = {"text": is_text}


#: Every kind of them.
ALL: tuple[type[Message], ...] = (
    Arrived,
    Meet,
    Beat,
    Here,
    Exported,
    Taken,
    Enough,
    Pace,
    Catch,
    Announce,
    Forget,
    NoMore,
    Flush,
    Flushed,
    Save,
    Saved,
    Ask,
    Cause,
)
