"""Memory that two processes share: who holds a tray, when it is free, and that it goes."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sparktrain.data.trays import TrayReader, Trays

#: The other process: adds up the bytes of the trays that are named on stdin.
READER = """
import json, os, sys
from sparktrain.data.trays import TrayReader
reader = TrayReader(json.loads(sys.argv[1]))
for line in sys.stdin:
    tray, start, size = map(int, line.split())
    lent = reader.lend(tray, start, size)
    total = sum(lent.to_pybytes())
    del lent
    print(total, *reader.take_freed(), flush=True)
"""


@pytest.fixture
def trays() -> Iterator[Trays]:
    with Trays(num_trays=4, tray_bytes=8192) as trays:
        yield trays


@pytest.fixture
def reader(trays: Trays) -> TrayReader:
    return TrayReader({**trays.describe(), "descriptor": os.dup(trays.descriptor)})


def take_all(trays: Trays) -> list[int]:
    found = []
    while (tray := trays.take()) is not None:
        found.append(tray)
    return found


def test_a_tray_is_taken_once_until_it_is_freed(trays: Trays) -> None:
    assert sorted(take_all(trays)) == [0, 1, 2, 3]
    trays.free([2])
    assert trays.take() == 2
    assert trays.take() is None


def test_the_last_one_freed_is_taken_first(trays: Trays) -> None:
    taken = take_all(trays)
    trays.free(reversed(taken))
    assert take_all(trays) == taken


def test_every_tray_is_memory_of_its_own(trays: Trays, reader: TrayReader) -> None:
    for tray in range(4):
        trays.view(tray)[:] = bytes([tray]) * 8192
    for tray in range(4):
        assert reader.lend(tray, 100, 50).to_pybytes() == bytes([tray]) * 50


def test_what_was_lent_is_the_memory_itself_and_comes_back_when_nobody_looks(
    trays: Trays, reader: TrayReader
) -> None:
    lent = reader.lend(1, 0, 8)
    trays.view(1)[:8] = b"12345678"
    part = pa.Array.from_buffers(pa.uint8(), 4, [None, lent.slice(4)])
    del lent
    gc.collect()
    assert reader.take_freed() == []
    values = part.to_numpy()
    del part
    assert reader.take_freed() == [] and bytes(values) == b"5678"
    del values
    assert reader.take_freed() == [1] and reader.take_freed() == []


def test_somebody_who_keeps_blocks_gets_copies_and_the_trays_come_back(
    trays: Trays, reader: TrayReader
) -> None:
    trays.view(3)[:4] = b"kept"
    kept = [reader.lend(tray, 0, 4) for tray in range(4)]
    assert reader.take_freed() == [2, 3]  # more than half are never on loan
    trays.view(3)[:4] = b"next"
    assert kept[3].to_pybytes() == b"kept"
    kept.clear()
    assert sorted(reader.take_freed()) == [0, 1]


def test_another_process_sees_what_is_on_a_tray(trays: Trays) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", READER, json.dumps(trays.describe())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[trays.descriptor],
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for round_number in range(1, 10):
            tray = trays.take()
            assert tray is not None
            trays.view(tray)[:1000] = bytes([round_number]) * 1000
            process.stdin.write(f"{tray} 10 990\n")
            process.stdin.flush()
            total, freed = map(int, process.stdout.readline().split())
            assert (total, freed) == (990 * round_number, tray)
            trays.free([freed])
    assert process.returncode == 0


def test_whoever_waits_for_a_reader_goes_on_when_one_asks(trays: Trays) -> None:
    assert not trays.is_asked()
    thread = threading.Thread(target=trays.wait_for_reader)
    thread.start()
    trays.ask()
    thread.join(10)
    assert not thread.is_alive() and trays.is_asked()


def test_nothing_is_left_of_them() -> None:
    gc.collect()
    before = set(Path("/proc/self/fd").iterdir())
    with Trays(num_trays=2, tray_bytes=4096) as trays:
        reader = TrayReader({**trays.describe(), "descriptor": os.dup(trays.descriptor)})
        lent = reader.lend(0, 0, 4096)
        held = trays.view(1)  # a feeder that is stuck
    assert "sparktrain-trays" in Path("/proc/self/maps").read_text()
    del reader, lent, held, trays
    gc.collect()
    assert "sparktrain-trays" not in Path("/proc/self/maps").read_text()
    assert set(Path("/proc/self/fd").iterdir()) == before
