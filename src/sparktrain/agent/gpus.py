"""The GPUs of a host as values: what nvidia-smi printed, and what names mean. Asks nobody."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: The lines of --list-gpus: a part of a GPU is below the GPU that it is of.
_LISTED = re.compile(r"^\s*(GPU|MIG) .*\(UUID: ([^\s)]+)\)\s*$")
#: The profile of a part: its compute slices if others have the same memory, all slices, and GB.
_PROFILE = re.compile(r"^\s*MIG (?:(\d+)c\.)?(\d+)g\.(\d+)gb")
#: A profile's name rounds up: 1g.5gb has 4864 MB, 1g.18gb has 16384.
_PROFILE_MB = 900


@dataclass(frozen=True)
class Gpu:
    """One device that a process can be given: a GPU, or a part of one (MIG).

    Attributes:
        index: Its number, in the order of the bus; that of the whole GPU for a part.
        total_mb: Its memory; 0 if that is not known.
        parent: The GPU that it is a part of; empty for a whole one.
        place: Of a whole one on the bus; empty if that is not known.
        is_empty: Whether it shall be used by parts (MIG), and has none: CUDA cannot use it.
    """

    index: str
    uuid: str
    name: str = ""
    total_mb: int = 0
    used_mb: int = 0
    is_busy: bool = False
    parent: str = ""
    place: str = ""
    is_empty: bool = False

    @property
    def token(self) -> str:
        """What to call it in CUDA_VISIBLE_DEVICES."""
        return self.index if self.uuid == make_id(self.index) else self.uuid

    @property
    def key(self) -> str:
        """What it is claimed by: its place, as the driver knows the id once it was used only."""
        return self.place or self.uuid

    def answers_to(self, token: str) -> bool:
        """Whether an entry of CUDA_VISIBLE_DEVICES means this one; the start of an id will do."""
        if token.isdecimal():
            return token == self.index and not self.parent
        return self.uuid.startswith(token)

    def is_part_of(self, token: str) -> bool:
        """Whether an entry means the GPU that this one is a part of."""
        if token.isdecimal():
            return token == self.index and bool(self.parent)
        return self.parent.startswith(token)


def parse_gpus(table: str, listing: str, busy: str, details: str = "") -> tuple[Gpu, ...]:
    """The devices of a host.

    Args:
        table: Of --query-gpu: index, uuid, memory.total, memory.used, name.
        listing: Of --list-gpus, for the parts of GPUs.
        busy: Of --query-compute-apps: the GPUs that processes compute on.
        details: Of --query-gpu: uuid, pci.bus_id, mig.mode.current.
    """
    used = {line.strip() for line in busy.splitlines() if line.strip()}
    parts = _parse_parts(listing)
    known = {fields[0]: fields[1:] for fields in _split(details, 3)}
    found: list[Gpu] = []
    for index, uuid, total, in_use, name in _split(table, 5):
        if not index.isdecimal():
            continue
        if uuid in parts:
            # Which part a process is on is not told; claims keep nodes of ours apart.
            found += [Gpu(index, part, name, mb, parent=uuid) for part, mb in parts[uuid]]
            continue
        total_mb, used_mb = _to_mb(total), _to_mb(in_use)
        # Processes of other containers are not listed, but their memory is counted.
        is_busy = uuid in used or used_mb * 2 > total_mb > 0
        place, mode = known.get(uuid, ("", ""))
        gpu = Gpu(
            index,
            uuid,
            name,
            total_mb,
            used_mb,
            is_busy,
            place=make_place(place),
            is_empty=mode == "Enabled",
        )
        found.append(gpu)
    return tuple(found)


def _split(table: str, count: int) -> list[list[str]]:
    """The rows that have so many fields; the last one may have commas."""
    rows = ([field.strip() for field in line.split(",", count - 1)] for line in table.splitlines())
    return [row for row in rows if len(row) == count]


def _parse_parts(listing: str) -> dict[str, list[tuple[str, int]]]:
    """The parts of each GPU that has some, with their memory, by the GPU's id."""
    parts: dict[str, list[tuple[str, int]]] = {}
    current = ""
    for line in listing.splitlines():
        if not (found := _LISTED.match(line)):
            continue
        if found[1] == "GPU":
            current = found[2]
        elif current:
            parts.setdefault(current, []).append((found[2], _find_part_mb(line)))
    return parts


def _find_part_mb(line: str) -> int:
    """The memory of a part, by the name of its profile; 0 if that does not tell."""
    if not (profile := _PROFILE.match(line)):
        return 0
    slices = int(profile[2])
    return int(profile[3]) * _PROFILE_MB * int(profile[1] or slices) // max(slices, 1)


def _to_mb(text: str) -> int:
    return int(text) if text.isdecimal() else 0  # "[N/A]" where memory is shared with the host


def make_place(bus: str) -> str:
    """A place on the bus as all tell it: some write the domain with 4 digits, some with 8."""
    domain, _, rest = bus.partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest.lower()}"
    except ValueError:
        return ""


def make_id(index: str) -> str:
    """The id of a device that has told none."""
    return f"gpu-{index}"


def find_meant(gpus: Sequence[Gpu], token: str) -> list[Gpu]:
    """What a name means: a device, all parts of one that is split, or one that nobody lists."""
    found = next((gpu for gpu in gpus if gpu.answers_to(token)), None)
    if found is not None:
        return [found]
    unknown = Gpu(token, make_id(token) if token.isdecimal() else token)
    return [gpu for gpu in gpus if gpu.is_part_of(token)] or [unknown]


def find_named(gpus: Sequence[Gpu], tokens: Sequence[str]) -> list[Gpu]:
    """The device of each name; of one that is split, the part that CUDA takes."""
    return [find_meant(gpus, token)[0] for token in tokens]


def choose_visible(gpus: Sequence[Gpu], visible: Sequence[str] | None) -> list[tuple[str, Gpu]]:
    """The devices that may be used, by what to call them; in the order of the choice."""
    if visible is None:
        return [(gpu.token, gpu) for gpu in gpus if not gpu.is_empty]
    found: dict[str, tuple[str, Gpu]] = {}
    for token in visible:
        meant = [gpu for gpu in find_meant(gpus, token) if gpu in gpus and not gpu.is_empty]
        if not meant:
            break  # for CUDA, the list ends with what is not there
        for gpu in meant:
            found.setdefault(gpu.key, (gpu.uuid if gpu.is_part_of(token) else token, gpu))
    return list(found.values())
