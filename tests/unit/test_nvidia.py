"""What nvidia-smi prints, of many kinds of GPUs, and what it makes of a choice."""

from __future__ import annotations

import pytest

from sparktrain.agent.nvidia import Gpu, choose_visible, parse_gpus

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
