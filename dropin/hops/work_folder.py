"""A working directory for each node: trials beside each other write files of the same names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def entered(folder: Path) -> Iterator[None]:
    """Works in another folder, in which all files of the present one are found too.

    What was written there stays; links to what was there before are removed.
    """
    before = Path.cwd()
    folder.mkdir(parents=True, exist_ok=True)
    links = []
    for entry in before.iterdir():
        link = folder / entry.name
        with contextlib.suppress(OSError):  # of an earlier attempt, or one that cannot be
            link.symlink_to(entry)
            links.append(link)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        for link in links:
            if link.is_symlink():  # else it was replaced
                link.unlink()
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()
            folder.parent.rmdir()
