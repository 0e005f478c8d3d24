"""The spill's files: read while they grow, cut ones, full disks, folders."""

from __future__ import annotations

import errno
import json
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue

import pyarrow as pa
import pytest

from sparktrain.data import spill
from sparktrain.data.spill import PAGE_BYTES, Entry, SpillError, SpillReader, SpillWriter
from sparktrain.data.spill_folders import make_folder, remove_folders, write_manifest

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        pa.field("s", pa.large_binary(), nullable=False),
        pa.field("l", pa.large_list(pa.float32()), nullable=False),
    ]
)

#: Writes blocks of 1000 rows to a file that may not grow over 64 KiB: a real full disk.
FULL = """
import mmap, resource, signal, sys
from pathlib import Path
import pyarrow as pa
from sparktrain.data.spill import SpillError, SpillWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
writer = SpillWriter(Path(sys.argv[1]), schema)
block = pa.RecordBatch.from_arrays([pa.array(range(1000))], schema=schema)
try:
    for number in range(20):
        if sys.argv[2] == "append":
            writer.append(block)
        else:
            memory = memoryview(mmap.mmap(-1, writer.find_size(block)))
            writer.write(writer.place(block, memory), memory)
except SpillError as error:
    print(number, error)
writer.close()
"""

#: Reads blocks whose places come on stdin, and answers with their sums.
READER = """
import json, sys
from pathlib import Path
from sparktrain.data.spill import Entry, SpillReader
reader = SpillReader(Path(sys.argv[1]))
for line in sys.stdin:
    print(sum(reader.read(Entry(**json.loads(line))).column("n").to_pylist()), flush=True)
"""


def make_block(start: int, rows: int) -> pa.RecordBatch:
    numbers = range(start, start + rows)
    arrays = [
        pa.array(numbers, pa.int64()),
        pa.array([b"%d" % n for n in numbers], pa.large_binary()),
        pa.array([[0.5] * (n % 3) for n in numbers], pa.large_list(pa.float32())),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def make_blocks() -> Iterator[pa.RecordBatch]:
    start = 0
    for rows in (1, 0, 7, 1000, 3, 0, 250):
        yield make_block(start, rows)
        start += rows


def write(path: Path) -> list[Entry]:
    writer = SpillWriter(path, SCHEMA)
    entries = [writer.append(block) for block in make_blocks()]
    writer.close()
    return entries


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.arrow"


def test_blocks_come_back_in_any_order(path: Path) -> None:
    entries = write(path)
    reader = SpillReader(path)
    pairs = list(zip(entries, make_blocks(), strict=True))
    for entry, block in pairs[::-1] + pairs:
        assert reader.read(entry).equals(block)
        assert entry.rows == block.num_rows
    reader.close()


def write_past_cache(path: Path) -> list[Entry]:
    writer = SpillWriter(path, SCHEMA)
    entries = []
    for block in make_blocks():
        memory = memoryview(mmap.mmap(-1, writer.find_size(block)))
        entries.append(writer.place(block, memory))
        writer.write(entries[-1], memory)
    writer.close()
    return entries


def check(path: Path, entries: list[Entry]) -> None:
    reader = SpillReader(path)
    for entry, block in zip(entries, make_blocks(), strict=True):
        assert reader.read(entry).equals(block)
    reader.close()


def test_blocks_written_past_the_cache_are_the_same(path: Path) -> None:
    entries = write_past_cache(path)
    check(path, entries)
    assert entries == write(path.with_suffix(".other"))


def test_every_arrow_tool_can_open_a_block(path: Path) -> None:
    entries = write(path)
    for entry, block in zip(entries, make_blocks(), strict=True):
        content = path.read_bytes()[entry.offset : entry.offset + entry.size]
        assert next(iter(pa.ipc.open_stream(content))).equals(block)


def test_blocks_begin_in_pages_of_their_own_with_values_at_good_addresses(path: Path) -> None:
    entries = write(path)
    assert len({entry.offset // PAGE_BYTES for entry in entries}) == len(entries)
    reader = SpillReader(path)
    for entry in entries[2:]:  # the first with rows tells where the others' values will be
        values = reader.read(entry).column("n").buffers()[1]
        assert values is None or values.address % 64 == 0
    reader.close()


def test_a_file_system_that_cannot_write_past_its_cache(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite

    def pwrite(target: int, data: memoryview, offset: int) -> int:
        import fcntl

        if fcntl.fcntl(target, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(target, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    check(path, write_past_cache(path))


def test_a_write_that_is_cut_short_goes_on_where_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:4096], offset))
    check(path, write_past_cache(path))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:512], offset))
    check(path, write_past_cache(path))


def test_a_slow_disk_is_written_through_the_cache(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "SLOW_DISK", 1e15)
    monkeypatch.setattr(spill, "JUDGED_BYTES", 10_000)
    writer = SpillWriter(path, SCHEMA)
    seen, real = [], os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *args: seen.append(args[0]) or real(*args))
    block = make_block(0, 100)
    for _ in range(6):
        memory = memoryview(mmap.mmap(-1, writer.find_size(block)))
        writer.write(writer.place(block, memory), memory)
    writer.close()
    assert seen[0] == seen[1] != seen[-1] == seen[-2]


def test_a_sliced_block_is_written_without_the_rest(path: Path) -> None:
    writer = SpillWriter(path, SCHEMA)
    block = make_block(0, 100_000)
    entry = writer.append(block.slice(50_000, 2))
    writer.close()
    assert entry.size < 2000
    reader = SpillReader(path)
    assert reader.read(entry).equals(block.slice(50_000, 2))
    reader.close()


def test_many_threads_read_while_the_file_grows(path: Path) -> None:
    writer = SpillWriter(path, SCHEMA)
    reader = SpillReader(path)
    queues: list[SimpleQueue[tuple[Entry, int] | None]] = [SimpleQueue() for _ in range(3)]

    def read(queue: SimpleQueue[tuple[Entry, int] | None]) -> int:
        count = 0
        while (told := queue.get(timeout=10)) is not None:
            entry, start = told
            assert reader.read(entry).equals(make_block(start, entry.rows))
            count += entry.rows
        return count

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read, queue) for queue in queues]
        for number in range(100):
            entry = writer.append(make_block(number * 50, 50))
            for queue in queues:
                queue.put((entry, number * 50))
        for queue in queues:
            queue.put(None)
        assert [one.result(20) for one in readers] == [5000] * 3
    writer.close()
    reader.close()


def test_another_process_reads_each_block_as_soon_as_it_is_written(path: Path) -> None:
    writer = SpillWriter(path, SCHEMA)
    with subprocess.Popen(
        [sys.executable, "-c", READER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for number in range(20):
            entry = writer.append(make_block(number * 10, 10))
            process.stdin.write(json.dumps(asdict(entry)) + "\n")
            process.stdin.flush()
            assert int(process.stdout.readline()) == number * 100 + 45
    assert process.returncode == 0
    writer.close()


def test_a_file_that_was_cut_is_named(path: Path) -> None:
    entries = write(path)
    reader = SpillReader(path)
    last = entries[-1]
    with path.open("r+b") as file:
        file.truncate(last.offset + last.size // 2)
    with pytest.raises(SpillError, match="somebody has changed it") as caught:
        reader.read(last)
    assert str(path) in str(caught.value)
    assert str(last.offset + last.size) in str(caught.value)
    assert reader.read(entries[0]).num_rows == 1
    reader.close()


@pytest.mark.parametrize("way", ["append", "past the cache"])
def test_a_full_disk_says_where_and_what_to_set(path: Path, way: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path), way], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("5 ")
    assert f"the spill {path} cannot be written" in line
    assert "File too large" in line and "GB are free" in line
    assert "spark.sparktrain.spillDir" in line


def test_folders_that_cannot_be_made_say_where_and_what_to_set(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    for root in (blocker, blocker / "below"):
        with pytest.raises(SpillError, match=r"spark\.sparktrain\.spillDir") as caught:
            make_folder(root, 0, 0)
        assert str(root) in str(caught.value)
    with pytest.raises(SpillError, match="No such file"):
        SpillWriter(tmp_path / "no" / "t.arrow", SCHEMA)
    with pytest.raises(SpillError, match="No such file"):
        write_manifest(tmp_path / "no", {})


def test_folders_are_new_and_private(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "a" / "b", 2, 5)
    assert folder.name == "part-2-5" and folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(SpillError, match="exists"):
        make_folder(tmp_path / "a" / "b", 2, 5)


def test_tasks_that_come_and_go_at_once_do_not_take_the_root_from_each_other(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    start = threading.Barrier(4)

    def work(partition: int) -> None:
        start.wait(10)
        for attempt in range(400):
            remove_folders(root, 0, make_folder(root, partition, attempt))

    with ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(work, partition) for partition in range(4)]:
            one.result(60)
    assert not root.exists()


def test_a_device_without_any_room_is_found_at_the_first_block() -> None:
    writer = SpillWriter(Path("/dev/full"), SCHEMA)
    with pytest.raises(SpillError, match="No space left on device"):
        writer.append(make_block(0, 10))
    writer.close()
