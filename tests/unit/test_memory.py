"""What an agent does with large pieces of memory, in processes of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sparktrain.data.memory import _find_glibc

#: Takes and gives back 64 MB a hundred times, as Spark's batches do, and says what that cost.
COST = """
import ctypes, mmap, resource, sys
from contextlib import nullcontext
from sparktrain.data.memory import keeping_memory
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages: some systems use them everywhere
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
with keeping_memory() if sys.argv[1] == "keeping" else nullcontext():
    for _ in range(100):
        piece = bytearray(64 << 20)
        del piece
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
kept = int(open("/proc/self/statm").read().split()[1]) * mmap.PAGESIZE
print(faults, kept)
"""


def measure(way: str) -> tuple[int, int]:
    done = subprocess.run(
        [sys.executable, "-c", COST, way], capture_output=True, text=True, timeout=60, check=True
    )
    faults, kept = map(int, done.stdout.split())
    return faults, kept


def test_pages_are_taken_once_and_given_back_at_the_end() -> None:
    if _find_glibc() is None:
        pytest.skip("only glibc can be told to keep memory")
    faults, kept = measure("keeping")
    usual_faults, _ = measure("usual")
    assert faults < usual_faults / 10
    assert kept < 64 << 20
