"""The GPUs of this host, as nvidia-smi lists them; without it, as the driver does."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sparktrain.agent.gpus import Gpu, find_named, make_id, make_place, parse_gpus
from sparktrain.errors import DeviceError

SMI = "nvidia-smi"
TIMEOUT_S = 30.0
#: Where the driver tells of each GPU, by its place on the bus; and the files to use them by.
DRIVER_FOLDER, FILE_FOLDER = Path("/proc/driver/nvidia/gpus"), Path("/dev")
#: Its exit codes where there is no device, and where its driver is not loaded: CUDA has none then.
_HAS_NONE = (6, 9)
#: By named fields: the name of a GPU has any number of words, and is asked for last.
_FIELDS = "index,uuid,memory.total,memory.used,name"
_FORMAT = "--format=csv,noheader,nounits"
#: What else is asked: by itself, as not every nvidia-smi knows these fields.
_MORE = (
    ["--list-gpus"],
    ["--query-compute-apps=gpu_uuid", _FORMAT],
    ["--query-gpu=uuid,pci.bus_id,mig.mode.current", _FORMAT],
)


def find_gpus(named: Sequence[str] | None = None) -> tuple[Gpu, ...]:
    """The devices of this host.

    Args:
        named: What somebody calls them. Where there is no nvidia-smi they are there, whether the
            driver tells of them or not.

    Raises:
        DeviceError: There is an nvidia-smi, and it fails.
    """
    if shutil.which(SMI) is None:
        listed = read_driver()
        return listed if named is None else tuple(find_named(listed, named))
    table = _ask(f"--query-gpu={_FIELDS}", _FORMAT)
    if not table:
        return ()
    # Some devices do not tell these, and are used nevertheless.
    answers = [""] * len(_MORE)
    for number, options in enumerate(_MORE):
        with contextlib.suppress(DeviceError):
            answers[number] = _ask(*options)
    return parse_gpus(table, *answers)


def read_driver() -> tuple[Gpu, ...]:
    """The GPUs that the driver tells of: it knows no parts, no memory, and not who computes."""
    found: list[Gpu] = []
    for file in sorted(DRIVER_FOLDER.glob("*/information")):
        told: dict[str, str] = {}
        with contextlib.suppress(OSError):
            for line in file.read_text(errors="replace").splitlines():
                name, _, value = line.partition(":")
                told[name.strip()] = value.strip()
        # A container may be told of all GPUs of its host; it has the files of its own.
        own = FILE_FOLDER / f"nvidia{told.get('Device Minor')}"
        if told.get("GPU Excluded") == "Yes" or not os.access(own, os.R_OK | os.W_OK):
            continue
        index, uuid = str(len(found)), told.get("GPU UUID", "?")
        # Without its id until somebody has used it.
        uuid = make_id(index) if "?" in uuid else uuid
        found.append(Gpu(index, uuid, told.get("Model", ""), place=make_place(file.parent.name)))
    return tuple(found)


def _ask(*options: str) -> str:
    try:
        answer = subprocess.run(
            [SMI, *options], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _make_error(str(error)) from error
    if answer.returncode in _HAS_NONE:
        return ""
    if answer.returncode:
        said = (answer.stderr.strip() or answer.stdout.strip() or "nothing").splitlines()[-1][:300]
        raise _make_error(f"exit code {answer.returncode}, and it said: {said}")
    return answer.stdout


def _make_error(what: str) -> DeviceError:
    return DeviceError(
        problem=f"nvidia-smi fails on this host, so that its GPUs are not known: {what}.",
        needed=1,
        found=0,
        advice="Run nvidia-smi there and repair what it says, or train without GPUs with"
        " gpus_per_worker=0.",
    )
