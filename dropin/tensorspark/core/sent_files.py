"""What workers are sent of a session in files, so that it does not travel with every mini-batch."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tensorspark.core.paths import find_base_dir, find_storage_options
from tensorspark.core.session_files import SessionFiles, pack_value


class SentFiles:
    """The files of one session's runs.

    Args:
        name: Part of their names.
        user: The user of stores that have users.
    """

    def __init__(self, spark: Any, name: str, user: str) -> None:
        self._spark = spark
        self._name = name
        self._user = user
        #: The files that workers have a copy of, and what is in them.
        self._kept: SessionFiles | None = None
        self._digest = ""

    def keep(
        self, run_dir: str, meta: bytes, rest: Mapping[str, Any], values: Mapping[str, Any]
    ) -> SessionFiles:
        """A graph and its values. Workers keep their copies as long as nothing changes but what
        they share.

        Args:
            values: Of what they share.
        """
        digest = hashlib.sha256(meta)
        for name, value in rest.items():
            digest.update(f"{name} {value.dtype} {value.shape}".encode())
            digest.update(pack_value(value).data)
        if self._kept is None or digest.hexdigest() != self._digest:
            self.remove()
            self._kept = self._make(run_dir)
            self._digest = digest.hexdigest()
            self._kept.write(meta, {**rest, **values})
        return self._kept

    @contextmanager
    def lend(self, run_dir: str, values: Mapping[str, Any]) -> Iterator[SessionFiles | None]:
        """Values for one run, gone behind it; None if there are none."""
        files = self._make(run_dir) if values else None
        try:
            if files is not None:
                files.write(b"", values)
            yield files
        finally:
            if files is not None:
                files.remove()

    def remove(self) -> None:
        files, self._kept = self._kept, None
        if files is not None:
            files.remove()

    def _make(self, run_dir: str) -> SessionFiles:
        base = find_base_dir(self._spark, run_dir)
        # Two at a time must not take each other's files.
        name = f"session_{self._name}_{time.time_ns() // 1_000_000}_{uuid.uuid4().hex[:6]}"
        return SessionFiles(f"{base}/{name}", find_storage_options(base, self._user))
