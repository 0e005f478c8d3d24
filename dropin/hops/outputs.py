"""What a function returned, as the experiment keeps it: a dict of plain values.

Files that a value names are copied to the experiment's folder; the value becomes their path there.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import posixpath
from collections.abc import Collection
from pathlib import Path
from typing import Any

from hops import hdfs, place, stores

#: Bytes of a path, and of each of its names, on Linux.
MAX_PATH, MAX_NAME = 4095, 255

OUTPUTS, METRIC, LOG = ".outputs.json", ".metric", "output.log"


def keep(value: Any, folder: str, project: str, log: str, key: str | None) -> dict[str, Any]:
    """Writes the outputs of a trial to its folder; returns them.

    Args:
        log: The name of its log.
        key: Under which the number is that a search looks at; None outside of searches.
    """
    outputs = make_outputs(value, key)
    reserved = (OUTPUTS, METRIC, log)
    #: By their full names: a file that is named twice is gone the second time.
    kept: dict[str, str] = {}
    for name, item in outputs.items():
        if isinstance(item, str):
            full = os.path.abspath(place.to_plain(item))  # noqa: PTH100 (as text)
            outputs[name] = kept.get(full) or keep_file(item, folder, project, reserved)
            if outputs[name] != item:
                kept[full] = outputs[name]
    outputs["log"] = place.make_relative(posixpath.join(folder, log), project)
    hdfs.dump(json.dumps(outputs), posixpath.join(folder, OUTPUTS))
    if key is not None:
        hdfs.dump(str(find_metric(outputs, key)), posixpath.join(folder, METRIC))
    return outputs


def make_outputs(value: Any, key: str | None) -> dict[str, Any]:
    """The value as a dict; a single one is called metric. Checked for a search. No I/O."""
    if value is None and key is None:
        return {}
    outputs = value if isinstance(value, dict) else {"metric": value}
    outputs = {str(name): to_plain(item) for name, item in outputs.items()}
    if key is not None:
        find_metric(outputs, key)
    return outputs


def find_metric(outputs: dict[str, Any], key: str) -> float:
    """The number that a search looks at; raises ValueError if there is none."""
    if key not in outputs:
        # A single value, which has no name, stands for whatever is looked for.
        if set(outputs) - {"log"} != {"metric"}:
            raise ValueError(
                f"The function returned {sorted(outputs) or 'an empty dict'}, and the search looks"
                f" at {key!r}. Return that too, or name another with optimization_key."
            )
        key = "metric"
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


def to_plain(value: Any) -> Any:
    """As JSON has it: numbers of numpy and TensorFlow become Python's, others their text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, dict):
        return {str(name): to_plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if hasattr(value, "numpy"):
        value = value.numpy()
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def keep_file(
    value: str, folder: str, project: str, reserved: Collection[str] = (OUTPUTS, METRIC)
) -> str:
    """Copies a file that a value names into the folder, and deletes it here.

    Args:
        reserved: Names that the folder needs for others.

    Returns:
        Its path relative to the project; the value itself if it names no file.
    """
    full = Path(place.to_plain(value)).absolute()
    if not can_be_path(str(full)) or Path.cwd().is_relative_to(full):  # also of an empty text
        return value
    if full.is_file() or ("/" in value and full.is_dir()):
        is_own = not place.has_scheme(folder) and full.is_relative_to(folder)
        target = str(full) if is_own else find_free(folder, full.name, reserved)
        if not is_own:
            stores.put(str(full), target)
            if full.is_file():  # whole folders may be of other use
                full.unlink()
        return place.make_relative(target, project)
    is_text = any(map(str.isspace, value)) or value.startswith(("http://", "https://"))
    if "/" in value and not is_text and not hdfs.exists(value):
        raise FileNotFoundError(
            f"Could not find file or directory on path {value!r}, which the function returned:"
            f" neither below {os.getcwd()} nor in the project {project}."  # noqa: PTH109
        )
    return value


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
        if name not in reserved and not hdfs.exists(target):
            break
        name = f"{stem}-{number}{ending}"
    return target
