"""How nodes find each other: one allGather of who is where, with what software."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from sparktrain.spec import ControlAddress, Failure, NodeSpec
from sparktrain.version import __version__

#: Distributions whose versions must agree, and the names they may be installed under.
_CHECKED = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-rocm"),
    "keras": ("keras",),
    "tf-keras": ("tf-keras",),
    "numpy": ("numpy",),
}


class Barrier(Protocol):
    """The part of pyspark's BarrierTaskContext that is needed here."""

    def allGather(self, message: str = "") -> list[str]: ...  # noqa: N802 (Spark's name)


@dataclass(frozen=True)
class NodeCard:
    """What a node tells the others about itself."""

    node: str
    host: str
    port: int
    executable: str
    versions: Mapping[str, str]
    sees_run_dir: bool
    #: Where the nodes check out at the end; on the card of the one that keeps the desk.
    desk: ControlAddress | None = None
    #: Earlier attempt and partition of each complete spill on this host.
    spilled: Sequence[Sequence[int]] = ()
    #: Where a parameter server is reached.
    door: Mapping[str, Any] | None = None
    #: The ids of GPUs that it has for itself alone.
    devices: Sequence[str] = ()
    #: Why it cannot take part; empty if it can.
    problem: str = ""


def find_versions() -> dict[str, str]:
    """The versions that matter, read without importing anything large."""
    found = {"python": ".".join(platform.python_version_tuple()[:2]), "sparktrain": __version__}
    for name, candidates in _CHECKED.items():
        for candidate in candidates:
            try:
                found[name] = importlib.metadata.version(candidate)
                break
            except importlib.metadata.PackageNotFoundError:
                continue
        else:
            found[name] = "none"
    return found


def find_differences(
    versions: Sequence[tuple[str, Mapping[str, str]]],
) -> dict[str, dict[str, tuple[str, ...]]]:
    """What is not the same everywhere: name -> value -> who has it."""
    names = {name for _, known in versions for name in known}
    differences = {}
    for name in sorted(names):
        holders: dict[str, tuple[str, ...]] = {}
        for who, known in versions:
            if name in known:
                holders[known[name]] = (*holders.get(known[name], ()), who)
        if len(holders) > 1:
            differences[name] = holders
    return differences


def meet(barrier: Barrier, card: NodeCard) -> list[NodeCard]:
    """Exchanges cards with all nodes; the answer is in the order of the partitions."""
    answers: list[dict[str, Any]] = [
        json.loads(text) for text in barrier.allGather(json.dumps(asdict(card)))
    ]
    return [
        NodeCard(**{**answer, "desk": ControlAddress(**desk) if (desk := answer["desk"]) else None})
        for answer in answers
    ]


def make_card(
    node: NodeSpec,
    host: str,
    port: int,
    sees_run_dir: bool,
    desk: ControlAddress | None = None,
    spilled: Sequence[Sequence[int]] = (),
    door: Mapping[str, Any] | None = None,
    devices: Sequence[str] = (),
    problem: str = "",
) -> NodeCard:
    return NodeCard(
        node=node.name,
        host=host,
        port=port,
        executable=sys.executable,
        versions=find_versions(),
        sees_run_dir=sees_run_dir,
        desk=desk,
        spilled=[list(one) for one in spilled],
        door=door,
        devices=list(devices),
        problem=problem,
    )


def find_echo(node: NodeSpec, host: str, cards: Sequence[NodeCard]) -> Failure | None:
    """How a node ends itself if another one cannot take part."""
    for card in cards:
        if card.problem and card.node != node.name:
            what = f"{card.node} could not start: {card.problem}"
            return Failure(node=node.name, host=host, kind="peer", what=what, is_echo=True)
    return None


def find_unlike(
    node: NodeSpec, host: str, cards: Sequence[NodeCard], driver_versions: Mapping[str, str]
) -> Failure | None:
    """How a node ends itself if some nodes, or the driver, have other software."""
    known = [("driver", driver_versions), *((card.node, card.versions) for card in cards)]
    differences = find_differences(known)
    if not differences:
        return None
    interpreters = [(card.node, {"interpreter": card.executable}) for card in cards]
    return Failure(
        node=node.name,
        host=host,
        kind="versions",
        what="the nodes do not have the same software",
        differences=differences | find_differences(interpreters),
    )


def reserve_port() -> socket.socket:
    """A bound socket that keeps a port ours until TensorFlow listens on it.

    SO_REUSEPORT on both sides (TF_GRPC_REUSE_PORT=1 in the trainer) lets TensorFlow bind the
    same port while we still hold it, so nobody else can take it in between. A socket that
    does not listen receives no connections.

    TENSORFLOW_PORT names the port where a firewall lets only some through; if another node of
    this host has it already, any other is taken.
    """
    holder = socket.socket(socket.AF_INET6 if _has_ipv6() else socket.AF_INET)
    if holder.family == socket.AF_INET6:
        holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    wished = int(os.environ.get("TENSORFLOW_PORT") or 0)
    # Before it may be shared, or two nodes of one host would both be given it; and if only old
    # connections of an earlier run are in the way, in spite of them.
    for in_spite in (0, 1) if wished else ():
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, in_spite)
        with contextlib.suppress(OSError):
            holder.bind(("", wished))
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            break
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if holder.getsockname()[1] == 0:
        holder.bind(("", 0))
    return holder


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::", 0))
        return True
    except OSError:
        return False
