"""What a function returned, as the experiment keeps it: a dict of plain values.

Files that a value names are copied to the experiment's folder; the value becomes their path there.
"""

from __future__ import annotations

import itertools
import math
import os
import posixpath
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hops import place, stores
from hops.plain import to_json, to_plain

#: Bytes of a path, and of each of its names, on Linux.
MAX_PATH, MAX_NAME = 4095, 255

OUTPUTS, METRIC, LOG = ".outputs.json", ".metric", "output.log"
#: What a value that has no name is called.
SINGLE = "metric"


@dataclass(frozen=True)
class Kept:
    """Where the outputs of a trial go.

    Attributes:
        folder: The trial's folder, in any store.
        project: The folder of the project; kept paths are relative to it.
        log: The name of the trial's log.
        logdir: A folder of this machine that is in the trial's folder already, as it is.
    """

    folder: str
    project: str
    log: str = LOG
    logdir: str | None = None

    def find(self, path: Path) -> str | None:
        """Where a file of this machine is kept already; None if it is not."""
        for root in (place.find_local(self.folder), self.logdir):
            if root is not None and path.is_relative_to(os.path.abspath(root)):  # noqa: PTH100
                below = path.relative_to(os.path.abspath(root)).as_posix()  # noqa: PTH100 (as text)
                return self.folder if below == "." else posixpath.join(self.folder, below)
        return None


def keep(value: Any, kept: Kept, key: str | None) -> dict[str, Any]:
    """Writes the outputs of a trial to its folder; returns them.

    Args:
        key: Under which the number is that a search looks at; None outside of searches.
    """
    outputs = make_outputs(value, key)
    #: By their full names: a file that is named twice is gone the second time.
    known: dict[str, str] = {}
    for name, item in outputs.items():
        if isinstance(item, str):
            full = os.path.abspath(place.to_plain(item))  # noqa: PTH100 (as text)
            outputs[name] = known.get(full) or keep_file(item, kept)
            if outputs[name] != item:
                known[full] = outputs[name]
    outputs["log"] = place.make_relative(posixpath.join(kept.folder, kept.log), kept.project)
    stores.write(posixpath.join(kept.folder, OUTPUTS), to_json(outputs))
    if key is not None:
        stores.write(posixpath.join(kept.folder, METRIC), str(find_score(outputs, key)))
    return outputs


def make_outputs(value: Any, key: str | None) -> dict[str, Any]:
    """The value as a dict; one that is none is called metric. Checked for a search. No I/O."""
    if value is None and key is None:
        return {}
    is_dict = isinstance(value, dict)
    outputs = {str(name): to_plain(item) for name, item in value.items()} if is_dict else {}
    if not is_dict:
        outputs[SINGLE] = to_plain(value)
    if key is not None:
        # A single value, which has no name, stands for whatever is looked for.
        find_metric(outputs, key if is_dict else SINGLE)
    return outputs


def find_score(outputs: dict[str, Any], key: str) -> float:
    """The number that a search looks at, of outputs that make_outputs() has checked for it."""
    return find_metric(outputs, key if key in outputs else SINGLE)


def find_metric(outputs: dict[str, Any], key: str) -> float:
    """The number under a name; raises ValueError if there is none."""
    if key not in outputs:
        raise ValueError(
            f"The function returned {sorted(outputs) or 'an empty dict'}, and the metric that is"
            f" looked at is {key!r}. Return that too, or name another with optimization_key."
        )
    try:
        number = float(outputs[key])
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise ValueError(
            f"Metric to maximize or minimize is not a number: {outputs[key]!r} under {key!r}."
            " Return a number, or a dict that has one there."
        )
    return number


def keep_file(value: str, kept: Kept) -> str:
    """Copies a file or a folder that a value names into the trial's folder; the file goes away.

    Returns:
        Its path relative to the project; the value itself if it names neither.
    """
    full = Path(os.path.abspath(place.to_plain(value)))  # noqa: PTH100 (without ..)
    if not can_be_path(str(full)) or Path.cwd().is_relative_to(full):  # also of an empty text
        return value
    # One word may be a folder's name by chance, unless the function has made that folder.
    is_made = full.parent == Path.cwd() and not full.is_symlink()
    if full.is_file() or (("/" in value or is_made) and full.is_dir()):
        target = kept.find(full)
        if target is None:
            target = find_free(kept.folder, full.name, (OUTPUTS, METRIC, kept.log))
            stores.put(str(full), target)
            if full.is_file():  # whole folders may be of other use
                full.unlink()
        return place.make_relative(target, kept.project)
    is_text = any(map(str.isspace, value)) or value.startswith(("http://", "https://"))
    if "/" not in value or is_text or stores.exists(place.make_absolute(value, kept.project)):
        return value
    raise FileNotFoundError(
        f"Could not find file or directory on path {value!r}, which the function returned:"
        f" neither below {os.getcwd()} nor in the project {kept.project}."  # noqa: PTH109
    )


def can_be_path(value: str) -> bool:
    """Whether a file can have such a name: reports and JSON are too long for it."""
    data = value.encode(errors="replace")
    parts = data.split(b"/")
    return b"\0" not in data and len(data) <= MAX_PATH and max(map(len, parts)) <= MAX_NAME


def find_free(folder: str, name: str, reserved: Collection[str]) -> str:
    """A path in the folder; numbered if there is such a file already."""
    stem, ending = posixpath.splitext(name)
    for number in itertools.count(2):
        target = posixpath.join(folder, name)
        if name not in reserved and not stores.exists(target):
            break
        name = f"{stem}-{number}{ending}"
    return target
