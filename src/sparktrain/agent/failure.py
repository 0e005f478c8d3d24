"""How a failure leaves a Spark task: as text, which is all that Spark passes on."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import zlib

from sparktrain.errors import DeviceError
from sparktrain.spec import Failure

_MARK = re.compile(r"sparktrain-failure:([A-Za-z0-9+/=]+):")


class NodeFailureError(Exception):
    """Ends a Spark task. Carries the failure in its text: that is all Spark passes on."""

    def __init__(self, failure: Failure) -> None:
        packed = zlib.compress(json.dumps(failure.to_dict()).encode())
        mark = base64.b64encode(packed).decode()
        super().__init__(f"{failure.node} failed: {failure.what}. sparktrain-failure:{mark}:")


def make_device_failure(node: str, host: str, error: DeviceError) -> Failure:
    """Of a node that does not get its GPUs."""
    kind = "taken" if error.is_taken else "devices"
    return Failure(node=node, host=host, kind=kind, what=str(error).rstrip("."))


def find_failure(text: str) -> Failure | None:
    """The failure in the text of Spark's error, if an agent raised it."""
    found = _MARK.search(text)
    if found is None:
        return None
    with contextlib.suppress(ValueError, zlib.error, TypeError, KeyError):
        return Failure.from_dict(json.loads(zlib.decompress(base64.b64decode(found[1]))))
    return None
