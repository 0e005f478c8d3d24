"""The door of a trainer: where feeding tasks bring rows by Arrow Flight, and how they are let in.

On one host the door is a Unix socket in a private folder, between hosts TCP with TLS. Every
call carries the cluster's token.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.flight as fl

from sparktrain.wire.credentials import TLS_NAME

_HEADER = "x-sparktrain-token"
#: gRPC's own limit of 4 MiB for a message would refuse a row with a large image.
_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
#: A client closes the door behind it; a pool of connections would share one that is broken.
_OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
#: A host that vanishes does not close its connections, and a call may wait long for a function:
#: so it asks whether the other end is there. More often than every five minutes and gRPC's server,
#: whose limits pyarrow does not let us change, takes it for an attack and ends the call.
_KEEPALIVE = [
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # which is what counts
    ("grpc.http2.max_pings_without_data", 0),
]
#: How long a caller tries to reach a door.
CONNECT_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Door:
    """How one trainer is reached."""

    node: str
    host: str
    port: int
    #: The Unix socket; it is there only for who is on the same host.
    path: str
    certificate: str = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Door:
        return cls(**values)

    @property
    def is_here(self) -> bool:
        """Whether this host is the trainer's: the name of the folder is random."""
        return bool(self.path) and Path(self.path).exists()


def connect(
    door: Door, token: str, timeout_s: float | None = None
) -> tuple[fl.FlightClient, fl.FlightCallOptions]:
    """A client of a door, and the options that each call must have. Does not connect yet."""
    headers = [(_HEADER.encode(), token.encode())]
    options = fl.FlightCallOptions(timeout=timeout_s, headers=headers)
    if door.is_here:
        client = fl.FlightClient(
            f"grpc+unix://{door.path}", generic_options=[*_UNLIMITED, *_OWN_CONNECTION]
        )
        return client, options
    host = f"[{door.host}]" if ":" in door.host else door.host
    client = fl.FlightClient(
        f"grpc+tls://{host}:{door.port}",
        tls_root_certs=door.certificate.encode(),
        override_hostname=TLS_NAME,
        generic_options=[*_UNLIMITED, *_OWN_CONNECTION, *_KEEPALIVE],
    )
    return client, options


class TokenCheck(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses every call without the token, before anything of it is read."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token.encode()

    def start_call(self, _info: Any, headers: Mapping[str, list[str]]) -> None:
        given = "".join(headers.get(_HEADER, []))
        if not hmac.compare_digest(given.encode(), self._token):
            raise fl.FlightUnauthenticatedError("no token, or not this cluster's")


def pack(values: Mapping[str, Any]) -> bytes:
    """What a call says about itself."""
    return json.dumps(values, separators=(",", ":")).encode()


def unpack(data: Any) -> dict[str, Any]:
    values = json.loads(bytes(data))
    if not isinstance(values, dict):
        raise ValueError(f"expected an object, got {type(values).__name__}")
    return values
