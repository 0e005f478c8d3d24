"""One message on a byte stream: four bytes of length, then that much JSON.

    0        4                      4 + length
    | length | JSON object, UTF-8   |
      big-endian unsigned

The limit keeps a stray or hostile peer from making us reserve memory.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

from sparktrain.errors import WireError

#: Large enough for 100 long log lines and a deep traceback, small enough to be harmless.
MAX_FRAME_BYTES = 1024 * 1024
HEADER = struct.Struct(">I")


def encode(values: dict[str, Any]) -> bytes:
    """The bytes of one frame."""
    body = json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    if len(body) > MAX_FRAME_BYTES:
        raise WireError(
            problem=f"A message of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}."
        )
    return HEADER.pack(len(body)) + body


def decode_header(header: bytes) -> int:
    """The length of the body that follows."""
    (length,) = HEADER.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise WireError(
            problem=f"A frame announces {length} bytes; the limit is {MAX_FRAME_BYTES}."
        )
    return int(length)


def decode_body(body: bytes) -> dict[str, Any]:
    """The JSON object in a frame."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireError(problem=f"A frame does not hold JSON: {error}.") from error
    if not isinstance(values, dict):
        raise WireError(problem=f"A frame holds a {type(values).__name__}, expected an object.")
    return values


def read_exactly(stream: socket.socket, size: int) -> bytes:
    """Reads size bytes; EOFError if the peer is gone first."""
    chunks = []
    while size:
        chunk = stream.recv(min(size, 1024 * 1024))
        if not chunk:
            raise EOFError
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def read_frame(stream: socket.socket) -> dict[str, Any]:
    """Reads one frame from a blocking socket; EOFError at the end of the stream."""
    return decode_body(read_exactly(stream, decode_header(read_exactly(stream, HEADER.size))))
