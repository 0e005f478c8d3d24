"""Every error sparktrain raises, in one tree.

    SparktrainError
    ├── ConfigError (also ValueError)   a wish that cannot be met; raised before any job starts
    │   ├── DeviceError                 GPUs asked, GPUs there
    │   ├── FunctionError               the function or its arguments cannot travel
    │   ├── ModelError                  a model that cannot be read, or not for what is asked
    │   ├── ResourceError               slots asked, slots there
    │   ├── RunDirError                 the run directory cannot be used
    │   ├── SchemaError                 a column that cannot become a tensor
    │   └── SessionError                no embedded Spark on this machine
    ├── LaunchError                     the group of nodes did not come up
    │   └── VersionMismatchError        nodes run different software
    ├── TrainingError                   something failed while training
    │   ├── NodeFailedError             the user's function failed on a node
    │   │   ├── DataError               a row, a file or a disk under the data is bad
    │   │   ├── DevicesTakenError       others have the GPUs of its host
    │   │   └── ResultError             its return value cannot travel
    │   ├── NodeLostError               a node vanished; a restart may help
    │   └── RunTimeoutError             the run took longer than timeout_s
    ├── ScoringError                    a row that a model cannot score
    ├── RecordError                     a TFRecord file is damaged, or a value has no place in it
    └── WireError                       a message that is not one of ours

An error keeps its values as fields and builds its text from them: what happened, what was
expected, what to do. It pickles by its fields, so the text never changes on the way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: How many of a node's last output lines an error carries.
TAIL_LINES = 100


def _rebuild(cls: type[SparktrainError], fields: dict[str, Any]) -> SparktrainError:
    return cls(**fields)


@dataclass(kw_only=True, eq=False)
class SparktrainError(Exception):
    """The root: catch it to catch everything of ours."""

    def __post_init__(self) -> None:
        self.args = (self.describe(),)

    def describe(self) -> str:
        return type(self).__name__

    def __str__(self) -> str:
        return self.describe()

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return _rebuild, (type(self), fields)


@dataclass(kw_only=True, eq=False)
class ConfigError(SparktrainError, ValueError):
    """A wish that cannot be met. Raised on the driver, before any job starts."""

    #: What was found, with its value.
    problem: str
    #: What was expected and what to do.
    advice: str

    def describe(self) -> str:
        return f"{self.problem} {self.advice}"


@dataclass(kw_only=True, eq=False)
class DeviceError(ConfigError):
    """The run needs more GPUs than the executors have."""

    needed: int
    found: int
    #: Whether others have them, who may give them back.
    is_taken: bool = False

    def describe(self) -> str:
        return f"{self.problem} {self.needed} are needed, {self.found} are there. {self.advice}"


@dataclass(kw_only=True, eq=False)
class FunctionError(ConfigError):
    """The training function, or its arguments, cannot be sent to the nodes."""


@dataclass(kw_only=True, eq=False)
class RunDirError(ConfigError):
    """The run directory cannot be created or written."""


@dataclass(kw_only=True, eq=False)
class SessionError(ConfigError):
    """The embedded Spark cannot start on this machine."""


@dataclass(kw_only=True, eq=False)
class SchemaError(ConfigError):
    """A column that cannot become a tensor, or a wish about one that does not fit it."""

    table: str
    column: str

    def describe(self) -> str:
        name = f"Column {self.column!r} of" if self.column else "The columns of"
        return f"{name} {self.table!r}: {self.problem} {self.advice}"


@dataclass(kw_only=True, eq=False)
class ModelError(ConfigError):
    """A model that cannot be read, or that is not what the call takes it for."""

    model: str

    def describe(self) -> str:
        return f"The model {self.model!r}: {self.problem} {self.advice}"


@dataclass(kw_only=True, eq=False)
class ResourceError(ConfigError):
    """The run needs more task slots than the cluster has."""

    needed: int
    slots: int
    waited_s: float
    problem: str = "Too few task slots."

    def describe(self) -> str:
        return (
            f"{self.problem} The run needs {self.needed} task slots at the same time, one for"
            f" each node, but the cluster has {self.slots} (looked for {self.waited_s:.1f} s)."
            f" {self.advice}"
        )


@dataclass(kw_only=True, eq=False)
class LaunchError(SparktrainError):
    """The group of nodes did not come up."""

    problem: str
    advice: str

    def describe(self) -> str:
        return f"{self.problem} {self.advice}"


@dataclass(kw_only=True, eq=False)
class VersionMismatchError(LaunchError):
    """The nodes do not run the same software."""

    #: What differs -> value -> names of the nodes that have it.
    differences: Mapping[str, Mapping[str, tuple[str, ...]]]
    problem: str = "The nodes of this run do not have the same software."
    advice: str = "Install the same versions for the Python of every executor."

    def describe(self) -> str:
        parts = []
        for name, values in self.differences.items():
            found = ", ".join(f"{value} on {', '.join(who)}" for value, who in values.items())
            parts.append(f"{name}: {found}")
        found = f" {'; '.join(parts)}." if parts else ""
        return f"{self.problem}{found} {self.advice}"


@dataclass(kw_only=True, eq=False)
class TrainingError(SparktrainError):
    """Something failed while training, on a node that has a name."""

    #: The node's name, such as "worker:0".
    node: str
    host: str
    #: What happened, in one sentence without its full stop.
    what: str
    exit_code: int | None = None
    signal: int | None = None
    #: The traceback of the exception on the node, as text.
    traceback: str = ""
    #: The last lines the node printed.
    tail: tuple[str, ...] = ()
    #: Where the node's whole log is.
    log_path: str = ""
    advice: str = ""

    def describe(self) -> str:
        where = f" on {self.host}" if self.host else ""
        text = f"{self.node}{where}: {self.what.rstrip('.')}."
        if self.advice:
            text += f" {self.advice}"
        if self.traceback:
            text += f"\n\nTraceback on {self.node}:\n{self.traceback.rstrip()}"
        if self.tail:
            lines = "\n".join(f"  {line}" for line in self.tail)
            text += f"\n\nLast lines of {self.node} ({len(self.tail)}):\n{lines}"
        if self.log_path:
            text += f"\n\nThe whole log: {self.log_path}"
        return text


@dataclass(kw_only=True, eq=False)
class NodeFailedError(TrainingError):
    """The user's function failed on a node: an exception, sys.exit, or an early end."""


@dataclass(kw_only=True, eq=False)
class DataError(NodeFailedError):
    """The data is bad: a row that does not fit, a broken file, a full disk, no rows at all."""


@dataclass(kw_only=True, eq=False)
class DevicesTakenError(NodeFailedError):
    """Others have the GPUs of the node's host, and may give them back: another time may do."""


@dataclass(kw_only=True, eq=False)
class ResultError(NodeFailedError):
    """What the function returned cannot be sent back."""


@dataclass(kw_only=True, eq=False)
class NodeLostError(TrainingError):
    """A node vanished: killed by a signal, or with its executor. A restart may help."""


@dataclass(kw_only=True, eq=False)
class RunTimeoutError(TrainingError, TimeoutError):
    """The run took longer than timeout_s."""


@dataclass(kw_only=True, eq=False)
class RecordError(SparktrainError):
    """A TFRecord file that is damaged, or a value that has no place in one."""

    problem: str
    advice: str

    def describe(self) -> str:
        return f"{self.problem} {self.advice}"


@dataclass(kw_only=True, eq=False)
class ScoringError(SparktrainError):
    """Rows that a model cannot score. Raised in Spark's tasks, and shown in Spark's error."""

    problem: str
    advice: str

    def describe(self) -> str:
        return f"{self.problem} {self.advice}".rstrip()


@dataclass(kw_only=True, eq=False)
class WireError(SparktrainError):
    """Bytes on the control link that are not a message of ours."""

    problem: str

    def describe(self) -> str:
        return self.problem
