"""A Flight server on both of its ways in: the Unix socket and TCP with TLS."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any


class BothDoors:
    """Two servers that do the same; use as a context manager.

    Args:
        job: The door's part of the job: path, host, token, certificate and key.
        make: Called with a location, a token and what TLS needs.
    """

    def __init__(self, job: Mapping[str, Any], make: Callable[..., Any]) -> None:
        self._servers = []
        token = str(job["token"])
        if job["path"]:
            self._servers.append(make(f"grpc+unix://{job['path']}", token))
        host = f"[{job['host']}]" if ":" in job["host"] else job["host"]
        tls = {"tls_certificates": [(job["certificate"], job["key"])]}
        self._servers.append(make(f"grpc+tls://{host}:0", token, **tls))
        #: Where other hosts find it.
        self.port = int(self._servers[-1].port)

    def __enter__(self) -> BothDoors:
        return self

    def __exit__(self, *exc: object) -> None:
        for server in self._servers:
            # Waits for calls that are on their way; whoever they wait for is closed already.
            thread = threading.Thread(target=server.shutdown, daemon=True)
            thread.start()
            thread.join(2.0)
            with contextlib.suppress(Exception):
                del server
