"""Frozen values that cross process borders: who the nodes are, what a run is, how one failed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparktrain.data.tables import FileTableSpec, TableSpec
    from sparktrain.events import BoardSpec, EventSpec

CHIEF, WORKER, EVALUATOR, PS = "chief", "worker", "evaluator", "ps"
#: What the driver writes into the run directory first; who sees it sees the directory.
RUN_FILE = "run.json"
#: How workers train: together, each for itself, or each for itself with parameter servers.
AUTO, NONE, PERIODIC = "auto", "none", "periodic"
#: What TensorFlow 1 called the chief; programs of that time still ask for it.
MASTER = "master"


@dataclass(frozen=True, order=True)
class NodeSpec:
    """One trainer of a run: a role and an index within the role."""

    role: str
    index: int
    #: The rank of worker:0, which is 0 only where no node is the chief.
    first_rank: int = 1

    @property
    def name(self) -> str:
        return f"{self.role}:{self.index}"

    @property
    def rank(self) -> int | None:
        """The position among the nodes that train; None for an evaluator or a ps."""
        if self.role in (CHIEF, MASTER):
            return 0
        return self.index + self.first_rank if self.role == WORKER else None


def make_nodes(
    num_workers: int, evaluator: bool = False, num_ps: int = 0, chief: str | None = CHIEF
) -> tuple[NodeSpec, ...]:
    """The nodes of a run, in the order of their Spark partitions.

    Args:
        chief: What the first of the workers is called; None if it is a worker like the others.
    """
    first = 1 if chief is not None else 0
    nodes = [NodeSpec(chief, 0)] if chief is not None else []
    nodes += [NodeSpec(WORKER, index, first) for index in range(num_workers - first)]
    if evaluator:
        nodes.append(NodeSpec(EVALUATOR, 0))
    nodes += [NodeSpec(PS, index) for index in range(num_ps)]
    return tuple(nodes)


def make_cluster(
    nodes: Sequence[NodeSpec], addresses: Mapping[str, tuple[str, int]]
) -> dict[str, list[str]]:
    """TensorFlow's cluster description: role -> addresses, by index."""
    cluster: dict[str, list[str]] = {}
    for node in nodes:
        host, port = addresses[node.name]
        host = f"[{host}]" if ":" in host else host
        cluster.setdefault(node.role, []).append(f"{host}:{port}")
    return cluster


def make_tf_config(node: NodeSpec, cluster: Mapping[str, list[str]]) -> dict[str, Any]:
    """TF_CONFIG for one node. TensorFlow keeps the evaluator out of the cluster it describes."""
    together = {role: list(hosts) for role, hosts in cluster.items() if role != EVALUATOR}
    return {"cluster": together, "task": {"type": node.role, "index": node.index}}


@dataclass(frozen=True)
class ControlAddress:
    """Where somebody listens for the nodes of a run, and how to be let in."""

    host: str
    port: int
    #: The run's secret; kept out of every repr so that it cannot reach a log.
    token: str = field(repr=False)
    #: The one certificate a node accepts, PEM.
    certificate: str = field(repr=False)


@dataclass(frozen=True)
class DeviceWish:
    """What each node shall have of the GPUs of its host."""

    #: What Spark calls them.
    resource: str = "gpu"
    #: For the chief and each worker; None for what Spark gives, or for an even share.
    per_worker: int | None = None
    #: The most of an even share; 0 for all of it.
    at_most: int = 0
    per_evaluator: int = 0
    #: The memory that a node takes of a device, which others may then use too; 0 for no limit.
    memory_fraction: float = 0.0
    memory_mb: int = 0
    #: A folder that the containers of a host share, for claims that all of them see.
    claims_dir: str = ""

    @property
    def is_shared(self) -> bool:
        return self.memory_fraction > 0 or self.memory_mb > 0

    def count_for(self, node: NodeSpec) -> int | None:
        """How many a node gets; None if nobody has said a number."""
        if node.role == PS:
            return 0
        return self.per_evaluator if node.role == EVALUATOR else self.per_worker


@dataclass(frozen=True)
class RunSpec:
    """All an agent needs to know. Travels to the executors inside Spark's own job."""

    run_id: str
    attempt: int
    nodes: tuple[NodeSpec, ...]
    num_workers: int
    run_dir: str
    #: cloudpickle of (function, args); only the trainer opens it.
    function: bytes = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    #: The driver's import path: lets nodes on the same machine find the user's modules.
    python_path: tuple[str, ...] = ()
    #: What the driver runs: sparktrain's own version must be the same on every node.
    driver_versions: Mapping[str, str] = field(default_factory=dict)
    distribution: str = "auto"
    kept_log_lines: int = 10_000
    max_result_bytes: int = 64 * 1024 * 1024
    control: ControlAddress | None = None
    #: What Spark feeds the nodes, and whether several tables share the stage.
    tables: tuple[TableSpec, ...] = ()
    is_mixed: bool = False
    #: What the nodes read from files themselves.
    file_tables: tuple[FileTableSpec, ...] = ()
    spill_dir: str = ""
    #: Whether attempts are left: a spill is then kept for the next one.
    may_restart: bool = False
    restart_on_error: bool = False
    #: How often a worker that trains alone is started again by its own agent.
    worker_restarts: int = 0
    #: What the nodes get of the GPUs.
    devices: DeviceWish = field(default_factory=DeviceWish)
    #: The secret of the doors of trainers; and how long those that outlive their task stay
    #: without a word of the driver.
    feed_token: str = field(default="", repr=False)
    driver_timeout_s: float = 0.0
    #: What is written for TensorBoard, and one to start beside the chief.
    events: EventSpec | None = None
    board: BoardSpec | None = None

    @property
    def num_ps(self) -> int:
        return sum(node.role == PS for node in self.nodes)

    @property
    def needs_strategy(self) -> bool:
        return self.distribution == "auto" and (self.num_workers > 1 or self.num_ps > 0)


@dataclass(frozen=True)
class Failure:
    """How a node failed, as plain values."""

    node: str
    host: str
    #: "exception", "data", "result", "exit", "signal", "versions", "devices", "taken" (devices
    #: that others have), "peer", "lost", "ended" by the driver or "cut" by Spark.
    kind: str
    #: One sentence without its full stop.
    what: str
    exit_code: int | None = None
    signal: int | None = None
    traceback: str = ""
    tail: tuple[str, ...] = ()
    #: True if it looks like the echo of another node's failure.
    is_echo: bool = False
    #: For "versions": what differs -> value -> names of the nodes.
    differences: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Failure:
        kept = {f.name: values[f.name] for f in dataclasses.fields(cls) if f.name in values}
        kept["tail"] = tuple(kept.get("tail") or ())
        return cls(**kept)


@dataclass(frozen=True)
class FeedResult:
    """How the input of one node was."""

    #: Rows that Spark or files gave to datasets over all epochs, and their size.
    rows: int
    bytes: int
    #: Seconds of training in fit, and of waiting for input within them: in all, and in the
    #: first epoch, when rows still arrive.
    train_s: float
    wait_s: float
    first_s: float
    first_wait_s: float
    #: Blocks that were here and not yet read, when it was last looked.
    queue: int

    @property
    def wait_share(self) -> float:
        """The share of the training time that steps waited for input."""
        return self.wait_s / self.train_s if self.train_s > 0 else 0.0

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.train_s if self.train_s > 0 else 0.0

    @property
    def mb_per_s(self) -> float:
        return self.bytes / 1e6 / self.train_s if self.train_s > 0 else 0.0


@dataclass(frozen=True)
class NodeResult:
    """What became of one node."""

    role: str
    index: int
    host: str
    seconds: float
    #: The exit code of the trainer process; None if it was never seen to end.
    exit: int | None
    #: Rows and steps trained on, where the progress callback could count them.
    rows: int | None = None
    steps: int | None = None
    #: How the input of run(data=...) was; None without data.
    feed: FeedResult | None = None

    @property
    def name(self) -> str:
        return f"{self.role}:{self.index}"
