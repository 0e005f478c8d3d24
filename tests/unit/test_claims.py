"""Names that claims are made of: of one network, of a folder that containers share, or of none."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpu_host import HERE, NODES, OTHER, RUN, count_free, see
from sparktrain.agent import claims, names
from sparktrain.agent.claims import Claims
from sparktrain.agent.device_refusals import find_doubled
from sparktrain.agent.node_devices import NodeDevices
from sparktrain.driver.gpu_survey import HostGpus, describe_host
from sparktrain.errors import DeviceError
from sparktrain.spec import DeviceWish

#: A node of another run, in a container that has the host's GPUs and a network of its own.
BESIDE = """
import sys
from sparktrain.agent.given import Given
from sparktrain.agent.node_devices import NodeDevices
from sparktrain.errors import DeviceError
from sparktrain.spec import DeviceWish, NodeSpec

try:
    with NodeDevices(
        DeviceWish(per_worker=1, claims_dir=sys.argv[1]), NodeSpec("chief", 0), Given(), {}, "other"
    ) as found:
        print(found.variables["CUDA_VISIBLE_DEVICES"])
except DeviceError as error:
    print(error)
"""
APART = ["unshare", "--map-root-user", "--net"]


def can_unshare() -> bool:
    return (
        bool(shutil.which(APART[0]))
        and not subprocess.run([*APART, "true"], capture_output=True).returncode
    )


@pytest.mark.skipif(not can_unshare(), reason="this system makes no namespaces")
def test_containers_with_networks_of_their_own(gpus: list[str], tmp_path: Path) -> None:
    def see_beside(claims_dir: str) -> str:
        code = [sys.executable, "-c", BESIDE, claims_dir]
        return subprocess.run([*APART, *code], capture_output=True, text=True).stdout.strip()

    folder = tmp_path / "claims"
    folder.mkdir()
    wish = DeviceWish(per_worker=2, claims_dir=str(folder))
    with NodeDevices(wish, NODES[0], HERE, {}, RUN) as found:
        assert see(found) == [gpus[0], gpus[2]]
        assert see_beside("") == gpus[0]  # what the folder is for
        assert see_beside(str(folder)) == gpus[3]
        # Who has not the folder sees the claims of its own network.
        assert [count_free(gpu) for gpu in gpus] == [0, 1, 0, 1]
        with NodeDevices(DeviceWish(per_worker=1), NODES[1], HERE, {}, OTHER) as second:
            assert see(second) == [gpus[3]]
        with NodeDevices(DeviceWish(per_worker=1, claims_dir=str(folder)), NODES[1], HERE, {}, RUN):
            assert "1 are needed, 0 are there" in see_beside(str(folder))
    assert see_beside(str(folder)) == gpus[0]


@pytest.fixture
def no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not Linux: sockets have no abstract names."""

    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(names.socket, "socket", Socket)
    monkeypatch.setattr(claims, "LOOK_WAIT_S", 600.0)


def test_a_system_without_such_names(no_names: None, gpus: list[str], tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"refuses the name .* No such file .* gpu_claims_dir"):
        NodeDevices(DeviceWish(), NODES[0], HERE, {}, RUN).__enter__()
    wish = DeviceWish(per_worker=2, claims_dir=str(tmp_path))
    with NodeDevices(wish, NODES[0], HERE, {}, RUN):
        assert [count_free(gpu, str(tmp_path)) for gpu in gpus] == [0, 1, 0, 1]
        with pytest.raises(DeviceError, match="2 are needed, 1 are there"):
            NodeDevices(wish, NODES[1], HERE, {}, RUN).__enter__()


def test_a_system_without_such_names_and_without_gpus(
    no_names: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sparktrain.agent.nvidia.DRIVER_FOLDER", tmp_path)
    started = time.monotonic()
    assert describe_host({}) == HostGpus(socket.gethostname())
    assert time.monotonic() - started < 5


def test_a_folder_of_all_users(tmp_path: Path) -> None:
    key = f"MIG-GPU-{uuid.uuid4()}/7/0"
    with ExitStack() as stack:
        mine, others = (stack.enter_context(Claims(RUN, str(tmp_path))) for _ in range(2))
        assert others.count_free(key) == 1 and not list(tmp_path.iterdir())  # who looks makes none
        assert mine.claim([(key, 1)], 1) == (key,)
        assert others.claim([(key, 1)], 1) == () and others.count_own(key) == 1
        made = list(tmp_path.iterdir())
        assert made and all(os.access(path, os.R_OK) and not path.stat().st_size for path in made)
    with Claims(OTHER, str(tmp_path)) as later:
        assert later.claim([(key, 1)], 1) == (key,)


def test_a_folder_that_is_not_mounted(gpus: list[str], tmp_path: Path) -> None:
    wish = DeviceWish(claims_dir=str(tmp_path / "none"))
    with pytest.raises(DeviceError, match=r"claims_dir=.*none: .*no folder.* Mount one folder"):
        NodeDevices(wish, NODES[0], HERE, {}, RUN).__enter__()
    assert "no folder" in describe_host({}, str(tmp_path / "none")).problem


def test_containers_that_do_not_see_each_others_claims() -> None:
    taken = [("a", ("GPU-1", "0")), ("b", ("MIG-2",)), ("c", ("GPU-3", "0")), ("d", ())]
    assert find_doubled(taken) == ""  # every host has a GPU 0
    text = find_doubled([*taken, ("e", ("GPU-4", "MIG-2"))])
    assert text.startswith("b and e took the same GPU, MIG-2: ") and "gpu_claims_dir" in text
