"""The GPUs of this host, as nvidia-smi lists them; without it, as the driver does."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
#: A part of a GPU: only this list has them, below the GPU that they are of.
_LISTED = re.compile(r"^(\s*)(GPU|MIG) .*\(UUID: ([^\s)]+)\)\s*$")


@dataclass(frozen=True)
class Gpu:
    """One device that a process can be given: a GPU, or a part of one (MIG).

    Attributes:
        index: Its number, in the order of the bus; that of the whole GPU for a part.
        total_mb: Its memory; 0 if that is not known.
        parent: The GPU that it is a part of; empty for a whole one.
    """

    index: str
    uuid: str
    name: str = ""
    total_mb: int = 0
    used_mb: int = 0
    is_busy: bool = False
    parent: str = ""

    @property
    def token(self) -> str:
        """What to call it in CUDA_VISIBLE_DEVICES."""
        return self.index if self.uuid == _make_id(self.index) else self.uuid

    def answers_to(self, token: str) -> bool:
        """Whether an entry of CUDA_VISIBLE_DEVICES means this one; the start of an id will do."""
        if token.isdecimal():
            return token == self.index and not self.parent
        return self.uuid.startswith(token)


def parse_gpus(table: str, listing: str, busy: str) -> tuple[Gpu, ...]:
    """The devices of a host.

    Args:
        table: Of --query-gpu.
        listing: Of --list-gpus, for the parts of GPUs.
        busy: Of --query-compute-apps: the GPUs that processes compute on.
    """
    used = {line.strip() for line in busy.splitlines() if line.strip()}
    parts = _parse_parts(listing)
    found: list[Gpu] = []
    for line in table.splitlines():
        fields = [field.strip() for field in line.split(",", 4)]
        if len(fields) != 5 or not fields[0].isdecimal():
            continue
        index, uuid, total, in_use, name = fields
        if uuid in parts:
            # Which part a process is on is not told; claims keep nodes of ours apart.
            found += [Gpu(index, part, name, parent=uuid) for part in parts[uuid]]
            continue
        total_mb, used_mb = _to_mb(total), _to_mb(in_use)
        # Processes of other containers are not listed, but their memory is counted.
        is_busy = uuid in used or used_mb * 2 > total_mb > 0
        found.append(Gpu(index, uuid, name, total_mb, used_mb, is_busy))
    return tuple(found)


def _parse_parts(listing: str) -> dict[str, list[str]]:
    """The parts of each GPU that has some, by the GPU's id."""
    parts: dict[str, list[str]] = {}
    current = ""
    for line in listing.splitlines():
        if not (found := _LISTED.match(line)):
            continue
        if found[2] == "GPU":
            current = found[3]
        elif current:
            parts.setdefault(current, []).append(found[3])
    return parts


def _to_mb(text: str) -> int:
    return int(text) if text.isdecimal() else 0  # "[N/A]" where memory is shared with the host


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
    answers = ["", ""]
    for number, options in enumerate((["--list-gpus"], ["--query-compute-apps=gpu_uuid", _FORMAT])):
        with contextlib.suppress(DeviceError):
            answers[number] = _ask(*options)
    return parse_gpus(table, *answers)


def make_unknown(token: str) -> Gpu:
    """A device of which only its name is known."""
    return Gpu(token, _make_id(token) if token.isdecimal() else token)


def _make_id(index: str) -> str:
    return f"gpu-{index}"


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
        found.append(Gpu(index, _make_id(index) if "?" in uuid else uuid, told.get("Model", "")))
    return tuple(found)


def find_named(gpus: Sequence[Gpu], tokens: Sequence[str]) -> list[Gpu]:
    """The device of each name."""
    return [
        next((gpu for gpu in gpus if gpu.answers_to(token)), make_unknown(token))
        for token in tokens
    ]


def choose_visible(gpus: Sequence[Gpu], visible: Sequence[str] | None) -> list[tuple[str, Gpu]]:
    """The devices that may be used, by what to call them; in the order of the choice."""
    if visible is None:
        return [(gpu.token, gpu) for gpu in gpus]
    found: list[tuple[str, Gpu]] = []
    for token in visible:
        known = next((gpu for gpu in gpus if gpu.answers_to(token)), None)
        if known is None:
            break  # for CUDA, the list ends with what is not there
        found.append((token, known))
    return found


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
