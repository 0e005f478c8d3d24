"""What a task that starts a node was given, and who else of the run is on its host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparktrain.agent.devices import count_aside, count_training
from sparktrain.spec import DeviceWish, NodeSpec


@dataclass(frozen=True)
class Given:
    """What the task that starts a node was given.

    Attributes:
        addresses: The node's share of what Spark gave to the task; None if Spark gives out none.
        num_here: How many nodes of the host train.
        aside: How many of the host's own devices are for nodes that do not.
        is_restart: Whether an earlier attempt of the run was on these hosts.
        of_executor: num_here and aside of the node's executor alone, whose nodes all see the same
            devices.
    """

    addresses: tuple[str, ...] | None = None
    num_here: int = 1
    aside: int = 0
    is_restart: bool = False
    of_executor: tuple[int, int] = (1, 0)


def make_given(
    own: tuple[str, ...] | None,
    nodes: Sequence[NodeSpec],
    wish: DeviceWish,
    executors: Sequence[str],
    index: int,
    is_restart: bool = False,
) -> Given:
    """
    Args:
        own: The node's share of what Spark gave.
        nodes: All that are dealt out to the tasks.
        executors: The address of each task's executor: a host and a port.
        index: Of the task that starts the node.
    """
    hosts = [address.rsplit(":", 1)[0] for address in executors]
    (num_here, aside), of_executor = (
        (
            count_training(nodes, places, places[index]),
            count_aside(wish, nodes, places, places[index]),
        )
        for places in (hosts, list(executors))
    )
    return Given(own, num_here, aside, is_restart, of_executor)
