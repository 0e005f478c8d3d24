"""The name of a run, and the folder it writes to."""

from __future__ import annotations

import datetime
import os
import re
import secrets
from pathlib import Path

from sparktrain.errors import ConfigError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def make_run_id() -> str:
    now = datetime.datetime.now()
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def resolve_run_dir(
    run_dir: str | os.PathLike[str] | None, runs_dir: str, run_id: str, call: str = "run"
) -> Path:
    """The absolute path of the run directory; only paths that TensorFlow can write to."""
    folder = run_dir if run_dir is not None else runs_dir
    if not isinstance(folder, (str, os.PathLike)) or not isinstance(os.fspath(folder), str):
        raise ConfigError(
            problem=f"{call}() got run_dir={folder!r} of type {type(folder).__name__}.",
            advice="Expected a path as text.",
        )
    wished = re.sub(r"^file:(//(?=/))?", "", os.fspath(folder))
    if not wished or "\0" in wished:
        raise ConfigError(
            problem=f"The run directory {folder!r} is no path.", advice="Name a folder."
        )
    if _SCHEME.match(wished) or wished.startswith("//"):
        raise ConfigError(
            problem=f"The run directory {folder!r} is not a path of the file system.",
            advice="TensorFlow writes checkpoints and events to paths only: use a path that all"
            " hosts share (NFS, a mounted bucket), and copy from there.",
        )
    try:
        found = Path(wished).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(
            problem=f"The run directory {wished!r} has no meaning here: {error}.",
            advice="Name a folder by its full path.",
        ) from error
    return found if run_dir is not None else found / run_id
