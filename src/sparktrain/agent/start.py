"""What the tasks of a cluster's start job run: each starts its share of the nodes, and ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparktrain.agent.devices import split_devices
from sparktrain.agent.executor import find_executor, find_start
from sparktrain.agent.given import make_given
from sparktrain.agent.keeper import KeeperSpec, start_keeper
from sparktrain.spec import NodeSpec, RunSpec

if TYPE_CHECKING:
    import pyarrow as pa

#: The schema of what a task yields: empty text if all is well.
SCHEMA = "problem string"


@dataclass(frozen=True)
class StartTask:
    """The callable given to mapInArrow, in a barrier stage: all tasks run at once, spread out."""

    spec: RunSpec
    #: The nodes to start; others are started elsewhere.
    nodes: tuple[NodeSpec, ...]
    num_tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import BarrierTaskContext

        for _ in batches:
            pass
        context = BarrierTaskContext.get()
        index = context.partitionId()
        address = context.getTaskInfos()[index].address
        host = address.rsplit(":", 1)[0].strip("[]") or "127.0.0.1"
        pid = find_executor()
        nodes = self.nodes[index :: self.num_tasks]
        wish = self.spec.devices
        resource = context.resources().get(wish.resource)
        shares = split_devices(nodes, resource.addresses, wish) if resource is not None else None
        executors = [info.address for info in context.getTaskInfos()]
        problem = ""
        try:
            for node in nodes:
                own = None if shares is None else shares.get(node.name, ())
                given = make_given(own, self.nodes, wish, executors, index)
                start_keeper(KeeperSpec(self.spec, node, host, pid, find_start(pid), given))
        except Exception as error:
            # Not raised: Spark would try the whole stage again, and start every node twice.
            problem = f"{type(error).__name__}: {error}"
        yield pa.RecordBatch.from_pydict({"problem": [problem]})
