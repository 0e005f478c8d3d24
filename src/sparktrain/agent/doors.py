"""The door that a trainer will open: its place, and the secrets that belong to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparktrain.spec import NodeSpec
from sparktrain.wire.credentials import Credentials
from sparktrain.wire.flight import Door

#: A Unix socket's path may be no longer than about 100 bytes.
MAX_PATH_BYTES = 100


def make_door(node: NodeSpec, host: str, folder: Path, token: str) -> tuple[Door, dict[str, Any]]:
    """The door as others know it, and as the trainer that opens it does.

    Args:
        folder: A private one, for the Unix socket.
    """
    credentials = Credentials.make()
    path = str(folder / "rows")
    door = Door(
        node=node.name,
        host=host,
        port=0,  # the trainer will tell
        path=path if len(path.encode()) <= MAX_PATH_BYTES else "",
        certificate=credentials.certificate,
    )
    return door, {**door.to_dict(), "key": credentials.key, "token": token}
