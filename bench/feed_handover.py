"""Blocks from an agent to its trainer: trays, against Arrow Flight over a Unix socket.

Both ways the blocks are written to the spill as well, and the trainer looks at each of them.
"""

from __future__ import annotations

import json
import mmap
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from sparktrain.agent.handover import Handover
from sparktrain.data.arrow import make_block, stored_schema
from sparktrain.data.faults import Place
from sparktrain.data.schema import Column
from sparktrain.data.spill import SpillWriter
from sparktrain.data.tables import TableSpec
from sparktrain.data.trays import TrayReader, Trays
from sparktrain.trainer.feed import Feed
from sparktrain.wire import frames

SPEC = TableSpec("t", (Column("x", "float", 1, (100,)), Column("label", "long")))
NUM_BLOCKS, ROWS = 500, 10_000


def make_blocks() -> Iterator[pa.RecordBatch]:
    values = pa.array(np.arange(100 * ROWS, dtype=np.float32))
    x = pa.ListArray.from_arrays(pa.array(range(0, 100 * ROWS + 1, 100), pa.int32()), values)
    batch = pa.RecordBatch.from_pydict({"x": x, "label": np.arange(ROWS)})
    for number in range(NUM_BLOCKS):
        yield make_block(batch, SPEC.columns, Place("t", 0, number * ROWS))


def look(blocks: Iterator[pa.RecordBatch]) -> None:
    """The trainer's work: says what processor time it took."""
    began = time.process_time()
    rows = sum(block.num_rows for block in blocks if block.column(1)[-1].as_py() == ROWS - 1)
    assert rows == NUM_BLOCKS * ROWS
    print(time.process_time() - began, flush=True)


def listen(link: socket.socket, handle: Any) -> None:
    def work() -> None:
        while True:
            try:
                handle(frames.read_frame(link))
            except (EOFError, OSError):
                return

    threading.Thread(target=work, daemon=True).start()


def start_reader(*words: str, inherited: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *words]
    return subprocess.Popen(command, pass_fds=inherited, stdout=subprocess.PIPE, text=True)


def by_trays(folder: Path) -> None:
    ours, theirs = socket.socketpair()
    schema = stored_schema(SPEC.columns)
    with Trays() as trays:
        words = [str(theirs.fileno()), json.dumps(trays.describe())]
        reader = start_reader("trays", *words, inherited=(theirs.fileno(), trays.descriptor))
        theirs.close()

        def tell(frame: dict[str, Any]) -> None:
            ours.sendall(frames.encode(frame))

        def handle(frame: dict[str, Any]) -> None:
            trays.free(frame["freed"])
            trays.ask()

        listen(ours, handle)
        trays.wait_for_reader()
        began = [time.perf_counter(), time.process_time()]
        with Handover(folder, {"t": schema}, tell, trays) as handover:
            tell({"kind": "spill", "folder": str(folder)})
            for block in make_blocks():
                handover.put("t", block)
            handover.finish()
        tell({"kind": "fed"})
        report(reader, began)
    ours.close()


def read_trays(descriptor: str, described: str) -> None:
    link = socket.socket(fileno=int(descriptor))
    tell = threading.Lock()

    def send(frame: dict[str, Any]) -> None:
        with tell:
            link.sendall(frames.encode(frame))

    feed = Feed([SPEC.to_dict()], (), TrayReader(json.loads(described)), send)
    listen(link, feed.handle)
    look(feed.tables["t"].blocks(0, None))


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """Streams the blocks, and writes them meanwhile."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"grpc+unix://{folder}/socket")
        self._writer = SpillWriter(folder / "t.arrow", stored_schema(SPEC.columns))
        self._memory = mmap.mmap(-1, 16 << 20)
        #: The time, and the processor time, at the first block.
        self.began: list[float] = []

    def do_get(self, context: Any, ticket: Any) -> Any:
        self.began += [time.perf_counter(), time.process_time()]
        return flight.GeneratorStream(stored_schema(SPEC.columns), self._stream())

    def _stream(self) -> Iterator[pa.RecordBatch]:
        memory = memoryview(self._memory)
        with ThreadPoolExecutor(1) as pool:
            for block in make_blocks():
                entry = self._writer.place(block, memory)
                storing = pool.submit(self._writer.write, entry, memory)
                yield block
                storing.result()
        self._writer.close()


def by_flight(folder: Path) -> None:
    with Server(folder) as server:
        report(start_reader("flight", str(folder)), server.began)


def read_flight(folder: str) -> None:
    with flight.connect(f"grpc+unix://{folder}/socket") as client:
        look(chunk.data for chunk in client.do_get(flight.Ticket(b"t")))


def report(reader: subprocess.Popen[str], began: list[float]) -> None:
    """Waits for the trainer; prints the seconds, and the processor time of both."""
    with reader:
        assert reader.stdout is not None
        theirs = float(reader.stdout.readline())
        wall, own = time.perf_counter() - began[0], time.process_time() - began[1]
    print(json.dumps([wall, own + theirs]))


def compare(rounds: int) -> None:
    """Each in a process of its own, in turns."""
    found: dict[str, list[list[float]]] = {"trays": [], "flight": []}
    for _ in range(rounds):
        for way, results in found.items():
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, "write", way, folder]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
            results.append(json.loads(done.stdout))
    gigabytes = NUM_BLOCKS * ROWS * 408 / 1e9
    print("\n| agent to trainer, with the spill | GB/s | processor time, s/GB |\n|---|---|---|")
    for way, results in found.items():
        seconds, cpu = (statistics.median(values) for values in zip(*results, strict=True))
        print(f"| {way} | {gigabytes / seconds:.2f} | {cpu / gigabytes:.2f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        {"trays": by_trays, "flight": by_flight}[sys.argv[2]](Path(sys.argv[3]))
    else:
        reads: dict[str, Callable[..., None]] = {"trays": read_trays, "flight": read_flight}
        reads[sys.argv[1]](*sys.argv[2:])
