"""What nvidia-smi prints, of many kinds of GPUs, or the driver; and what a choice is."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_host import HERE, NODES, OTHER, RUN, answer, make_host, see
from sparktrain.agent import node_devices, nvidia
from sparktrain.agent.given import Given
from sparktrain.agent.gpus import Gpu, choose_visible, parse_gpus
from sparktrain.agent.node_devices import Devices, NodeDevices
from sparktrain.agent.nvidia import find_gpus
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
    assert [gpu.total_mb for gpu in gpus] == [4500, 9000, 40960]
    (old,) = parse_gpus("0, GPU-a, 40960, 0, A100\n", OLD_MIG_LISTING, "")
    assert old.uuid == "MIG-GPU-a/7/0"


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("1g.5gb", 4500),
        ("7g.80gb", 72000),
        ("1g.10gb+me", 9000),
        ("1c.3g.20gb", 6000),  # a slice of three that have the same memory
        ("1g.18gb.special", 16200),
        ("something new", 0),
    ],
)
def test_memory_of_a_part(profile: str, expected: int) -> None:
    listing = f"GPU 0: A (UUID: GPU-a)\n  MIG {profile}  Device  0: (UUID: MIG-1)\n"
    assert [gpu.total_mb for gpu in parse_gpus("0, GPU-a, 9, 0, A\n", listing, "")] == [expected]


@pytest.mark.parametrize(
    ("details", "place", "is_empty"),
    [
        ("", "", False),
        ("GPU-a, 00000000:0A:00.0, Disabled\n", "0000:0a:00.0", False),
        (
            "GPU-b, 00000000:0B:00.0, Enabled\nGPU-a, 00010000:0A:00.0, [N/A]\n",
            "10000:0a:00.0",
            False,
        ),
        ("GPU-a, [N/A], Enabled\n", "", True),
        ("0, GPU-a, 100, 1, H100\n", "", False),
    ],
)
def test_details(details: str, place: str, is_empty: bool) -> None:
    (gpu,) = parse_gpus("0, GPU-a, 100, 1, H100, special\n", "", "", details)
    assert (gpu.name, gpu.place, gpu.is_empty) == ("H100, special", place, is_empty)
    assert gpu.key == (place or "GPU-a")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["MIG-1", "MIG-2", "GPU-b"]),
        (("0",), ["MIG-1", "MIG-2"]),
        (("GPU-a", "0", "MIG-1"), ["MIG-1", "MIG-2"]),
        (("MIG-2", "0"), ["MIG-2", "MIG-1"]),
        (("1", "GPU-b"), ["1"]),
        (("3", "0"), []),
    ],
)
def test_a_choice_where_gpus_are_split(
    visible: tuple[str, ...] | None, expected: list[str]
) -> None:
    gpus = parse_gpus("0, GPU-a, 1, 0, X\n1, GPU-b, 1, 0, X\n", MIG_LISTING, "")
    assert [name for name, _ in choose_visible(gpus, visible)] == expected


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
    # Claims are seen by the whole host: other tests must not have the same places.
    domain = f"{uuid.uuid4().int % 2**31:08x}"
    for bus, one, minor, excluded, is_own in gpus:
        file = tmp_path / "proc" / f"{domain}:{bus}:00.0" / "information"
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
    found = find_gpus()
    assert [replace(gpu, place=gpu.place.partition(":")[2]) for gpu in found] == [
        Gpu("0", driver[0], "NVIDIA A10G", place="01:00.0"),
        Gpu("1", driver[1], "NVIDIA A10G", place="0a:00.0"),
        Gpu("2", "gpu-2", "NVIDIA A10G", place="1b:00.0"),
    ]
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


def test_the_driver_knows_an_id_once_the_gpu_was_used(driver: list[str]) -> None:
    """Its claim stays the same."""
    (file,) = nvidia.DRIVER_FOLDER.glob("*:1b:00.0/information")
    wish = DeviceWish(per_worker=3)
    with NodeDevices(wish, NODES[0], HERE, {}, RUN) as found:
        assert see(found) == [*driver, "2"]
        known = f"GPU-{uuid.uuid4()}"
        file.write_text(file.read_text().replace("GPU-????????-????-????-????-????????????", known))
        assert find_gpus()[2].uuid == known
        with pytest.raises(DeviceError, match="1 are needed, 0 are there"):
            NodeDevices(DeviceWish(per_worker=1), NODES[1], HERE, {}, OTHER).__enter__()
        with pytest.raises(DeviceError, match=f"another run have: {known}"):
            NodeDevices(DeviceWish(), NODES[1], Given(("2",)), {}, OTHER).__enter__()


def test_a_claim_is_the_same_with_and_without_nvidia_smi(
    driver: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = find_gpus()[0].place
    with NodeDevices(DeviceWish(per_worker=3), NODES[0], HERE, {}, RUN):
        host = tmp_path / "smi"
        host.mkdir()
        ids = make_host(host)
        answer(host, "--query-gpu=uuid", f"{ids[0]}, {place.upper()}, [N/A]\n")
        monkeypatch.setenv("PATH", f"{host}:/usr/bin:/bin")
        with NodeDevices(DeviceWish(), NODES[1], HERE, {}, OTHER) as found:
            assert see(found) == ids[2:]  # the second computes


def test_a_container_without_the_gpus_of_its_host(driver: list[str], tmp_path: Path) -> None:
    for file in tmp_path.glob("nvidia*"):
        file.unlink()
    with NodeDevices(DeviceWish(), NODES[0], Given(None, 9), {}, RUN) as found:
        assert found == Devices({})
