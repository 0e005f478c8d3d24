"""Shared by the unit tests: plans of runs that are never launched, a host with GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_host import make_host
from sparktrain.agent import node_devices
from sparktrain.driver.plan import Plan
from sparktrain.settings import Settings
from sparktrain.spec import make_nodes


@pytest.fixture(scope="session")
def make_plan() -> Callable[..., Plan]:
    """Makes the plan of a run on two workers; keywords change its fields."""

    def make(
        run_dir: Path = Path("/runs/r1"), settings: Settings | None = None, **changes: Any
    ) -> Plan:
        values: dict[str, Any] = {
            "run_id": "r1",
            "nodes": make_nodes(2),
            "num_workers": 2,
            "function_name": "train",
            "function": b"",
            "env": {},
            "max_restarts": 0,
            "timeout_s": None,
        }
        return Plan(run_dir=run_dir, settings=settings or Settings(), **{**values, **changes})

    return make


@pytest.fixture
def plan(make_plan: Callable[..., Plan]) -> Plan:
    return make_plan()


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The GPUs of make_host(), which are this host's; nobody waits for others of them."""
    ids = make_host(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(node_devices, "GONE_WAIT_S", 0.0)
    return ids
