"""What nvidia-smi prints, of many kinds of GPUs, or the driver; and what a choice is."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpu_host import HERE, NODES, RUN, see
from sparktrain.agent import node_devices, nvidia
from sparktrain.agent.node_devices import Devices, Given, NodeDevices
from sparktrain.agent.nvidia import Gpu, choose_visible, find_gpus, parse_gpus
from sparktrain.errors import DeviceError
from sparktrain.spec import DeviceWish

NAMES = (
    "NVIDIA H100 80GB HBM3",
    "NVIDIA A100 80GB PCIe",
    "NVIDIA GeForce RTX 3090",
    "Tesla T4",
    "NVIDIA RTX A6000, special",
)
MIG_LISTING = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)
  MIG 1g.5gb      Device  0: (UUID: MIG-1)
  MIG 2g.10gb     Device  1: (UUID: MIG-2)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b)
"""
OLD_MIG_LISTING = """GPU 0: A100-SXM4-40GB (UUID: GPU-a)
  MIG 1g.5gb Device 0: (UUID: MIG-GPU-a/7/0)
"""


@pytest.mark.parametrize("name", NAMES)
def test_any_name(name: str) -> None:
    (gpu,) = parse_gpus(f"0, GPU-a, 81559, 4, {name}\n", f"GPU 0: {name} (UUID: GPU-a)\n", "")
    assert gpu == Gpu("0", "GPU-a", name, 81559, 4)


@pytest.mark.parametrize(
    ("table", "busy", "expected"),
    [
        ("0, GPU-a, 100, 1, X\n1, GPU-b, 100, 1, X\n", "", [False, False]),
        ("0, GPU-a, 100, 1, X\n1, GPU-b, 100, 1, X\n", "GPU-b\nGPU-b\n", [False, True]),
        # Of a process that another container hides.
        ("0, GPU-a, 100, 60, X\n", "", [True]),
        ("0, GPU-a, [N/A], [N/A], NVIDIA GB10\n", "", [False]),
        ("10, GPU-a, 100, 0, X\n", "GPU-aa\n", [False]),
        ("No devices were found\n", "", []),
        ("", "", []),
    ],
)
def test_who_is_busy(table: str, busy: str, expected: list[bool]) -> None:
    assert [gpu.is_busy for gpu in parse_gpus(table, "", busy)] == expected


def test_parts_of_gpus() -> None:
    table = "0, GPU-a, 40960, 0, NVIDIA A100-SXM4-40GB\n1, GPU-b, 40960, 0, NVIDIA A100\n"
    gpus = parse_gpus(table, MIG_LISTING, "")
    assert [(gpu.index, gpu.uuid, gpu.parent) for gpu in gpus] == [
        ("0", "MIG-1", "GPU-a"),
        ("0", "MIG-2", "GPU-a"),
        ("1", "GPU-b", ""),
    ]
    (old,) = parse_gpus("0, GPU-a, 40960, 0, A100\n", OLD_MIG_LISTING, "")
    assert old.uuid == "MIG-GPU-a/7/0"


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["GPU-aa", "GPU-ab", "GPU-b"]),
        (("2", "0"), ["2", "0"]),
        (("GPU-ab",), ["GPU-ab"]),
        (("GPU-b", "1"), ["GPU-b", "1"]),
        (("0", "7", "1"), ["0"]),  # as for CUDA, the list ends with what is not there
        ((), []),
    ],
)
def test_a_choice(visible: tuple[str, ...] | None, expected: list[str]) -> None:
    gpus = parse_gpus("0, GPU-aa, 1, 0, X\n1, GPU-ab, 1, 0, X\n2, GPU-b, 1, 0, X\n", "", "")
    assert [name for name, _ in choose_visible(gpus, visible)] == expected


INFORMATION = """Model: \t\t NVIDIA A10G
IRQ:   \t\t 42
GPU UUID: \t {uuid}
Video BIOS: \t 94.04.42.00.01
Bus Location: \t 0000:{bus}:00.0
Device Minor: \t {minor}
GPU Excluded:\t {excluded}
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A driver without an nvidia-smi, and three GPUs of a container; the ids that are known."""
    ids = [f"GPU-{uuid.uuid4()}" for _ in range(2)]
    unknown = "GPU-????????-????-????-????-????????????"
    gpus = [
        ("0a", ids[1], 0, "No", True),
        ("01", ids[0], 3, "No", True),
        ("1b", unknown, 4, "No", True),
        ("02", f"GPU-{uuid.uuid4()}", 1, "No", False),  # another container's
        ("03", f"GPU-{uuid.uuid4()}", 2, "Yes", True),
    ]
    for bus, one, minor, excluded, is_own in gpus:
        file = tmp_path / "proc" / f"0000:{bus}:00.0" / "information"
        file.parent.mkdir(parents=True)
        file.write_text(INFORMATION.format(uuid=one, bus=bus, minor=minor, excluded=excluded))
        if is_own:
            (tmp_path / f"nvidia{minor}").touch()
    monkeypatch.setattr(nvidia, "DRIVER_FOLDER", tmp_path / "proc")
    monkeypatch.setattr(nvidia, "FILE_FOLDER", tmp_path)
    monkeypatch.setattr(node_devices, "GONE_WAIT_S", 0.0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return ids


def test_what_the_driver_tells(driver: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # In the order of the bus, as CUDA counts them.
    assert find_gpus() == (
        Gpu("0", driver[0], "NVIDIA A10G"),
        Gpu("1", driver[1], "NVIDIA A10G"),
        Gpu("2", "gpu-2", "NVIDIA A10G"),
    )
    assert [gpu.uuid for gpu in find_gpus(["1", "MIG-a", "7"])] == [driver[1], "MIG-a", "gpu-7"]
    with ExitStack() as stack:
        nodes = [NodeDevices(DeviceWish(per_worker=1), node, HERE, {}, RUN) for node in NODES[:2]]
        assert [see(stack.enter_context(node)) for node in nodes] == [[one] for one in driver]
        auto = NodeDevices(DeviceWish(), NODES[2], Given(None, 3), {}, RUN)
        assert see(stack.enter_context(auto)) == ["2"]
        with pytest.raises(DeviceError, match="1 are needed, 0 are there"):
            NodeDevices(DeviceWish(per_worker=1), NODES[3], HERE, {}, RUN).__enter__()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")  # these are the same ones
        with pytest.raises(DeviceError, match="1 are needed, 0 are there"):
            NodeDevices(DeviceWish(per_worker=1), NODES[3], HERE, {}, RUN).__enter__()


def test_a_container_without_the_gpus_of_its_host(driver: list[str], tmp_path: Path) -> None:
    for file in tmp_path.glob("nvidia*"):
        file.unlink()
    with NodeDevices(DeviceWish(), NODES[0], Given(None, 9), {}, RUN) as found:
        assert found == Devices({})
