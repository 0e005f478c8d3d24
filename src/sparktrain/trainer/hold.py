"""A parameter server of periodic synchronisation: holds parameters until the run is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparktrain.data.memory import keeping_memory
from sparktrain.trainer.link import AgentLink
from sparktrain.trainer.store import Own, Store, StoreError
from sparktrain.trainer.store_door import OpenStore


def hold_parameters(link: AgentLink, job: Mapping[str, Any], function: bytes) -> None:
    """Opens the door, and serves until all workers are done. Never loads TensorFlow itself."""

    def find_own() -> Own:
        import cloudpickle

        train_fn, _ = cloudpickle.loads(function)
        own: Own | None = getattr(train_fn, "combine", None)
        if own is None:
            raise StoreError("this program's function has no method `combine`")
        return own

    # Parts come, are replaced and go at each meeting: the process keeps its memory for them.
    with keeping_memory(), OpenStore(job["door"], Store(find_own)) as door:
        link.send({"kind": "door", "port": door.port})
        link.receive_cluster()
        link.watch(lambda frame: None)
        link.send({"kind": "ready"})
        link.stop.wait()
