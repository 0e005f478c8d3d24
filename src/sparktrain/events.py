"""What is written for TensorBoard, and how one is started: frozen values, and their checks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparktrain.errors import ConfigError

#: What can be written beside scalars, which always are.
GRAPH, HISTOGRAMS, PROFILE = "graph", "histograms", "profile"
KINDS = (GRAPH, HISTOGRAMS, PROFILE)
#: Where a board may run.
DRIVER, CHIEF_HOST = "driver", "chief"
#: In the run directory while a board runs: where it is. Who removes it ends the board.
BOARD_FILE = "tensorboard.json"
LOOPBACK = "127.0.0.1"
#: Addresses that mean every interface; nobody can call them.
_ANY = ("0.0.0.0", "::")
#: A user and a password, which may have slashes; not a port.
_PASSWORD = re.compile(r"://[^/@:\[]*:(?!\d+(?:[/,]|$))[^@]+@")


@dataclass(frozen=True)
class EventSpec:
    """What nodes write.

    Attributes:
        kinds: Of KINDS.
        copy_to: Any path of fsspec to which events are copied; empty for none.
    """

    kinds: tuple[str, ...] = ()
    copy_to: str = ""


@dataclass(frozen=True)
class BoardSpec:
    """A TensorBoard that was asked for.

    Attributes:
        log_dir: What it shows: any path of fsspec.
        file: Where BOARD_FILE is.
        at: The driver, or the host of the chief.
        host, port: Where it listens; port 0 takes any free one.
        is_kept: Whether it stays when the run is over.
    """

    log_dir: str
    file: str
    at: str = DRIVER
    host: str = LOOPBACK
    port: int = 0
    is_kept: bool = False

    def find_told(self, own: str) -> str:
        """The address in its URL, of a machine that others call by its own one."""
        return own if self.host in _ANY else self.host


def parse_kinds(source: str, given: Any) -> tuple[str, ...]:
    """Kinds of events from a text with commas, or from a list; raises ConfigError."""
    if given is None:
        return ()
    parts = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, Sequence) or not all(isinstance(part, str) for part in parts):
        parts = [repr(given)]
    wished = [name for part in parts if (name := part.strip()) and name != "scalars"]
    unknown = [name for name in wished if name not in KINDS]
    if unknown:
        raise ConfigError(
            problem=f"{source} names events that are not known: {', '.join(unknown)}.",
            advice=f"Expected some of {', '.join(KINDS)}; scalars are always written.",
        )
    return tuple(dict.fromkeys(wished))


def check_url(source: str, url: str) -> None:
    """Refuses a URL with a password, in words that do not repeat it."""
    if _PASSWORD.search(url):
        raise ConfigError(
            problem=f"{source} is a URL of {url.split('://')[0]} with a password or a key in it.",
            advice="Expected one without: it is written into the run directory, logs and command"
            " lines. Give the key as the store's package wants it, by variables (AWS_ACCESS_KEY_ID,"
            " AWS_SECRET_ACCESS_KEY, or FSSPEC_<PROTOCOL>_<OPTION> for any store) or by its own"
            " files; the nodes have the variables of env=, and the driver those of its process.",
        )


def make_command(log_dir: str) -> str:
    """How to look at events later."""
    if "://" in log_dir:  # TensorBoard would ask TensorFlow, which reads few stores
        return f"sparktrain tensorboard {shlex.quote(log_dir)}"
    return f"tensorboard --logdir {shlex.quote(log_dir)}"
