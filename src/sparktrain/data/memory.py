"""Keeps the memory that large allocations give back, while batch after batch comes in.

A batch of Spark's can have 64 MB. The C library maps fresh pages for that much and gives them
back with the batch: for images it costs more processor time than reading them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: mallopt's names: when freed memory goes back to the system, and from which size on memory is
#: mapped apart. In <malloc.h> of glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 512 << 20
#: What glibc's own rules come to in a process that has used large pieces of memory. They rest for
#: good once somebody sets a threshold, so nothing smaller may be left behind.
_MMAP_AFTER, _TRIM_AFTER = 32 << 20, 64 << 20


@contextmanager
def keeping_memory() -> Iterator[None]:
    """For this process, which runs one task at a time."""
    libc = _find_glibc()
    if libc is None:
        yield
        return
    libc.mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
    libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_THRESHOLD, _MMAP_AFTER)
        libc.mallopt(_TRIM_THRESHOLD, _TRIM_AFTER)
        libc.malloc_trim(0)


def _find_glibc() -> Any:
    """The C library if it is glibc; others do without."""
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
