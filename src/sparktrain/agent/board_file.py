"""The TensorBoard that BOARD_FILE tells of, and whether it is there."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ANSWER_TIMEOUT_S = 5.0
LOOK_S = 0.2


@dataclass(frozen=True)
class ToldBoard:
    """What its guard has written.

    Attributes:
        group: Of its processes, on its own host.
    """

    url: str
    group: int


def read_board(file: Path) -> ToldBoard | None:
    """None if there is no such file, or one that says nothing."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        told = json.loads(file.read_text())
        return ToldBoard(str(told["url"]), int(told["group"]))
    return None


def is_there(url: str) -> bool:
    """Whether a TensorBoard answers at this URL, as seen from here."""
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        parts = urlsplit(url)
        # Not urllib: a proxy of the environment knows nothing of this machine.
        called = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=ANSWER_TIMEOUT_S
        )
        with contextlib.closing(called):
            called.request("GET", f"{parts.path}data/environment")
            return "data_location" in json.loads(called.getresponse().read())
    return False


def wait_until_gone(url: str, timeout_s: float) -> bool:
    """Whether nothing answers there any more within the time."""
    deadline = time.monotonic() + timeout_s
    while is_there(url):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True
