"""A real keeper with a real trainer, and a hub on the other end of the link. No Spark."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest

from gpu_host import OTHER
from sparktrain.agent.executor import find_start
from sparktrain.agent.failure import find_failure
from sparktrain.agent.given import Given
from sparktrain.agent.keeper import KeeperSpec, start_keeper
from sparktrain.agent.node_devices import NodeDevices
from sparktrain.driver import pulse
from sparktrain.driver.hub import Hub
from sparktrain.driver.plan import Plan
from sparktrain.driver.record import RunRecord
from sparktrain.settings import Settings
from sparktrain.spec import DeviceWish, NodeSpec
from sparktrain.wire.messages import End

NODE = NodeSpec("chief", 0)
CHIEF = NODE.name


def wait_until(is_so: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class Scene:
    """A hub, and nodes that its test starts."""

    def __init__(self, plan: Plan, hub: Hub) -> None:
        self.plan = plan
        self.hub = hub

    def start(self, **changes: Any) -> psutil.Process:
        """Starts the node; returns its keeper."""
        assert self.hub.address is not None
        spec = dataclasses.replace(
            self.plan.make_spec(0),
            control=self.hub.address,
            feed_token="secret",
            driver_timeout_s=60.0,
        )
        me = os.getpid()
        node = self.plan.nodes[0]
        start_keeper(KeeperSpec(spec, node, "127.0.0.1", me, find_start(me), **changes))
        wait_until(lambda: self.hub.snapshot.num_joined == 1)
        pid = self.hub.snapshot.nodes[node.name].pid
        assert pid is not None
        keeper = psutil.Process(pid).parent()
        assert keeper is not None and "sparktrain.agent.keeper" in keeper.cmdline()
        return keeper


@pytest.fixture
def make_scene(make_plan: Callable[..., Plan], tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    from contextlib import ExitStack

    with ExitStack() as stack:

        def make(
            function: Callable[[Any], Any],
            node: NodeSpec = NODE,
            env: dict[str, str] | None = None,
        ) -> Scene:
            function.__module__ = "__main__"  # travels by value
            plan = make_plan(
                tmp_path,
                Settings(distribution="none"),
                nodes=(node,),
                env=env or {},
                num_workers=1,
                function=cloudpickle.dumps((function, None)),
            )
            record = stack.enter_context(RunRecord(plan))
            hub = stack.enter_context(Hub(plan, record, "127.0.0.1", "127.0.0.1"))

            def end() -> None:
                deadline = time.monotonic() + 20
                while hub.num_links() and time.monotonic() < deadline:
                    hub.send(End("the test is over"))
                    hub.wait(0.1)

            stack.callback(end)
            return Scene(plan, hub)

        yield make


def serve(ctx: Any) -> None:
    for _ in ctx.rows():
        pass


def fail_and_stay(ctx: Any) -> None:
    import threading

    threading.Thread(target=threading.Event().wait).start()
    for number in range(1000):
        print("line", number)
    raise KeyError("with a thread that stays")


def test_a_stopped_keeper_is_lost_and_back_when_it_goes_on(
    make_scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that vanishes is no different from a process that is stopped: no packet is refused."""
    monkeypatch.setattr(pulse, "SILENT_S", 1.0)
    scene = make_scene(serve)
    keeper = scene.start()
    hub = scene.hub

    def beat_until(is_so: Callable[[], bool]) -> None:
        def look() -> bool:
            hub.beat()
            time.sleep(0.1)
            return is_so()

        wait_until(look)

    beats = time.monotonic() + 2.5
    beat_until(lambda: time.monotonic() > beats)
    assert CHIEF not in hub._broken_at  # it answers
    keeper.send_signal(signal.SIGSTOP)
    try:
        beat_until(lambda: hub.find_lost(0.2, lambda name: True) == CHIEF)
    finally:
        keeper.send_signal(signal.SIGCONT)
    hub.finish_feeds()  # to nobody
    beat_until(lambda: hub.snapshot.nodes[CHIEF].status == "returned")
    assert hub.snapshot.lost == () and not hub.is_doubled
    hub.let_leave()
    wait_until(lambda: not keeper.is_running())


def test_a_node_tells_again_what_it_told(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(lambda ctx: ctx.stop_feed() or serve_for_ever())
    scene.start()
    hub = scene.hub
    wait_until(lambda: hub.sated == {CHIEF})
    card = hub.describe()
    hub.sated.clear()  # as if it had never arrived
    hub._cards.clear()
    hub._snapshot = dataclasses.replace(
        hub.snapshot,
        nodes={CHIEF: dataclasses.replace(hub.snapshot.nodes[CHIEF], status="waiting")},
    )
    assert hub._server is not None
    hub._server.cut(0, CHIEF)
    wait_until(lambda: hub.sated == {CHIEF} and hub.snapshot.num_joined == 1)
    assert hub.describe() == card


def serve_for_ever() -> None:
    import time

    time.sleep(600)


serve_for_ever.__module__ = "__main__"


def test_an_exception_is_told_before_its_process_is_gone(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(fail_and_stay)
    keeper = scene.start()
    hub = scene.hub
    trainers = [child for child in keeper.children() if "sparktrain.trainer" in child.cmdline()]
    wait_until(lambda: bool(hub.snapshot.failures))
    assert any(trainer.is_running() for trainer in trainers)
    (failure,) = hub.snapshot.failures
    assert failure.kind == "exception" and "with a thread that stays" in failure.what
    assert failure.tail[-1] == "line 999"
    # The driver ends the others, and this one, which is not asked to wait for its thread.
    hub.end_nodes("another node failed", may_restart=False)
    psutil.wait_procs([keeper, *trainers], timeout=8)
    assert not keeper.is_running() and not any(one.is_running() for one in trainers)
    assert hub.snapshot.failures == (failure,)


def fail_behind_a_door(ctx: Any) -> None:
    import time
    from types import SimpleNamespace

    from sparktrain.trainer import door

    door.threading = SimpleNamespace(Thread=lambda **_: time.sleep(600))  # type: ignore[attr-defined]
    raise KeyError("behind a door that does not shut")


def test_an_exception_is_told_before_the_door_is_shut(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(fail_behind_a_door)
    scene.start()
    wait_until(lambda: bool(scene.hub.snapshot.failures), 10.0)
    assert "a door that does not shut" in scene.hub.snapshot.failures[0].what


def report_devices(ctx: Any) -> None:
    import os

    names = ("CUDA", "HIP", "ROCR")
    print("devices", [os.environ.get(f"{name}_VISIBLE_DEVICES") for name in names], flush=True)
    if ctx.role != "ps":
        ctx.stop_feed()


@pytest.mark.parametrize(
    ("role", "env", "expected"),
    [
        ("chief", {}, ["3,4", "hip", None]),
        ("chief", {"CUDA_VISIBLE_DEVICES": "7"}, ["7", "hip", None]),
        ("ps", {}, ["-1", "-1", "-1"]),
        ("ps", {"CUDA_VISIBLE_DEVICES": "7"}, ["-1", "-1", "-1"]),
    ],
)
def test_a_node_sees_the_devices_it_was_given_and_a_ps_none(
    make_scene: Callable[..., Scene],
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    env: dict[str, str],
    expected: list[str | None],
) -> None:
    for name in ("CUDA", "ROCR"):
        monkeypatch.delenv(f"{name}_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "hip")
    scene = make_scene(report_devices, NodeSpec(role, 0), env)
    scene.start(given=Given(("3", "4")))
    line = (f"{role}:0", f"devices {expected}")
    wait_until(lambda: line in scene.hub.take_lines(), 10.0)


@pytest.mark.parametrize(("per_worker", "kind"), [(5, "devices"), (1, "taken")])
def test_a_keeper_without_its_gpus_says_whether_others_have_them(
    gpus: list[str], plan: Plan, per_worker: int, kind: str
) -> None:
    wish = DeviceWish(per_worker=per_worker)
    run = dataclasses.replace(plan.make_spec(0), devices=wish)
    me = os.getpid()
    with (
        NodeDevices(DeviceWish(per_worker=3), NODE, Given(), {}, OTHER),
        pytest.raises(RuntimeError) as caught,
    ):
        start_keeper(KeeperSpec(run, NODE, "127.0.0.1", me, find_start(me)))
    failure = find_failure(str(caught.value))
    assert failure is not None
    assert (failure.node, failure.host, failure.kind) == (CHIEF, "127.0.0.1", kind)
    assert f"{per_worker} are needed, 0 are there" in failure.what
