"""A host with GPUs that only an nvidia-smi of our own knows."""

from __future__ import annotations

import re
import uuid
from fractions import Fraction
from pathlib import Path

from sparktrain.agent.claims import Claims
from sparktrain.agent.given import Given
from sparktrain.agent.node_devices import Devices
from sparktrain.spec import NodeSpec

NODES = [NodeSpec("worker", index) for index in range(20)]
HERE = Given(None, 1)
RUN, OTHER = "20260101-000000-1a2b", "20260101-000000-3c4d"


def make_host(folder: Path) -> list[str]:
    """Four GPUs of 1000 MB, of which the second computes for somebody."""
    # Claims are seen by the whole host: other tests must not have the same devices.
    ids = [f"GPU-{uuid.uuid4()}" for _ in range(4)]
    rows = "".join(f"echo '{n}, {one}, 1000, 1, NVIDIA H100'\n" for n, one in enumerate(ids))
    script = folder / "nvidia-smi"
    script.write_text(
        f"#!/bin/sh\ncase $1 in --query-gpu=*)\n{rows};;\n--query-comp*) echo {ids[1]};;\nesac\n"
    )
    script.chmod(0o755)
    return ids


def see(devices: Devices) -> list[str]:
    return devices.variables["CUDA_VISIBLE_DEVICES"].split(",")


def count_free(key: str, folder: str = "") -> Fraction:
    return Claims(folder=folder).count_free(key)


def set_busy(folder: Path, *ids: str) -> None:
    """Has nvidia-smi say that processes compute on these."""
    script = folder / "nvidia-smi"
    listed = "; ".join(f"echo {one}" for one in ids) or ":"
    text = re.sub(r"(--query-comp\*\)).*;;", rf"\1 {listed};;", script.read_text())
    following = folder / "following"
    following.write_text(text)
    following.chmod(0o755)
    following.replace(script)  # somebody may be reading it


def answer(folder: Path, option: str, text: str) -> None:
    """Has nvidia-smi print this where an option begins so; before what it would print else."""
    script = folder / "nvidia-smi"
    told = folder / f"told-{uuid.uuid4()}"
    told.write_text(text)
    script.write_text(
        script.read_text().replace("case $1 in ", f"case $1 in {option}*) cat {told};;\n")
    )


def split_first(
    folder: Path, gpus: list[str], num_parts: int, profile: str = "1g.5gb"
) -> list[str]:
    """Splits the first GPU; returns its parts."""
    parts = [f"MIG-{uuid.uuid4()}" for _ in range(num_parts)]
    rows = [f"GPU 0: NVIDIA H100 (UUID: {gpus[0]})"]
    rows += [f"  MIG {profile}     Device  {n}: (UUID: {one})" for n, one in enumerate(parts)]
    answer(folder, "--list", "\n".join(rows) + "\n")
    return parts
