"""The folder that is written to: hidden files become visible ones, old ones go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sparktrain.data.storage import is_hidden, open_store
from sparktrain.errors import RecordError
from sparktrain.sources.options import WriteOptions

SUCCESS = "_SUCCESS"
#: How the names of all our hidden folders begin.
HIDDEN = "_sparktrain-"

#: Where a file is now and where it belongs, below the folder.
Move = tuple[str, str]


class OutputFolder:
    """Paths given and returned are below it."""

    def __init__(self, options: WriteOptions) -> None:
        self.filesystem, self._root = open_store(options.path, options.storage)
        self._only_touched = options.only_touched

    def path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    def has_files(self) -> bool:
        return any(not any(map(is_hidden, name.split("/"))) for name in self._find())

    def is_file(self) -> bool:
        return bool(self.filesystem.isfile(self._root))

    def _find(self) -> list[str]:
        """All files, hidden ones too."""
        if not self.filesystem.exists(self._root):
            return []
        self.filesystem.invalidate_cache()
        prefix = self._root.rstrip("/") + "/"
        return [str(path).removeprefix(prefix) for path in self.filesystem.find(self._root)]

    def make(self, folder: str = "") -> None:
        self.filesystem.makedirs(self.path(folder), exist_ok=True)

    def find_old(self, moves: Iterable[Move]) -> list[str]:
        """What overwriting with these files replaces; what other jobs write now is hidden."""
        found = [name for name in self._find() if not name.startswith(HIDDEN)]
        if self._only_touched:
            folders = {place.rpartition("/")[0] for _, place in moves}
            found = [name for name in found if name.rpartition("/")[0] in folders]
        return found

    def publish(self, moves: Sequence[Move], old: Iterable[str]) -> None:
        """Makes files visible, then removes old ones. Goes on where it was broken off."""
        for folder in {place.rpartition("/")[0] for _, place in moves}:
            self.make(folder)
        for hidden, place in moves:
            if self.filesystem.exists(self.path(hidden)):
                self.filesystem.mv(self.path(hidden), self.path(place))
            elif not self.filesystem.exists(self.path(place)):
                raise RecordError(
                    problem=f"{self.path(hidden)} was written, and is gone before it was moved to"
                    f" {self.path(place)}.",
                    advice=f"Leave folders that begin with {HIDDEN} alone while a job writes, and"
                    " run the job again.",
                )
        for name in old:
            if self.filesystem.exists(self.path(name)):
                self.filesystem.rm(self.path(name))

    def remove(self, name: str) -> None:
        """A file, or a folder with all that is in it; nothing happens if there is none."""
        if self.filesystem.exists(self.path(name)):
            self.filesystem.rm(self.path(name), recursive=True)

    def write_success(self) -> None:
        self.filesystem.touch(self.path(SUCCESS))

    def read_note(self, name: str) -> Any:
        """What write_note wrote; None if there is none."""
        if not self.filesystem.exists(self.path(name)):
            return None
        return json.loads(self.filesystem.cat_file(self.path(name)))

    def write_note(self, name: str, value: Any) -> None:
        """All of it or nothing, also if this process is ended meanwhile."""
        self.make(name.rpartition("/")[0])
        self.filesystem.pipe_file(self.path(f"{name}.new"), json.dumps(value).encode())
        self.filesystem.mv(self.path(f"{name}.new"), self.path(name))
