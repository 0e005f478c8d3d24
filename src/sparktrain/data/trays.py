"""Memory that an agent and its trainer share: fresh blocks go through it from hand to hand.

There is a fixed number of trays, used again and again. The agent puts a block on a free tray,
writes it to the spill and tells the trainer. The tray is free again when nobody in the trainer
looks at it any more. A block that finds no free tray is read from the spill, where every block
is anyway.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections import deque
from collections.abc import Iterable, Mapping

import pyarrow as pa

#: The largest block, and room for the words around its values.
BLOCK_BYTES = 8 << 20
TRAY_BYTES = BLOCK_BYTES + (256 << 10)
NUM_TRAYS = 16


class Trays:
    """The agent's end; use as a context manager.

    The memory has no name, and goes when the agent and the trainer have let go of it.
    """

    def __init__(self, num_trays: int = NUM_TRAYS, tray_bytes: int = TRAY_BYTES) -> None:
        self._num_trays = num_trays
        self.tray_bytes = tray_bytes
        self._lock = threading.Lock()
        # The last one freed is taken first: its memory is still in the processor's cache.
        self._free = list(reversed(range(num_trays)))
        self._asked = threading.Event()
        #: For the trainer to inherit.
        self.descriptor = os.memfd_create("sparktrain-trays")
        os.ftruncate(self.descriptor, num_trays * tray_bytes)
        self._memory = mmap.mmap(self.descriptor, num_trays * tray_bytes)

    def __enter__(self) -> Trays:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self.descriptor)
        # A feeder that is stuck in a read of Spark's may hold a tray: the memory goes with it.
        with contextlib.suppress(BufferError):
            self._memory.close()

    def describe(self) -> dict[str, int]:
        """What TrayReader needs to know."""
        return {
            "descriptor": self.descriptor,
            "num_trays": self._num_trays,
            "tray_bytes": self.tray_bytes,
        }

    def take(self) -> int | None:
        """A free tray; None if there is none."""
        with self._lock:
            return self._free.pop() if self._free else None

    def free(self, trays: Iterable[int]) -> None:
        """Nobody looks at these trays any more."""
        with self._lock:
            self._free += trays

    def ask(self) -> None:
        """Somebody reads, or nobody ever will."""
        self._asked.set()

    def is_asked(self) -> bool:
        return self._asked.is_set()

    def wait_for_reader(self) -> None:
        self._asked.wait()

    def view(self, tray: int) -> memoryview:
        """The memory of a tray; begins at a page."""
        start = tray * self.tray_bytes
        return memoryview(self._memory)[start : start + self.tray_bytes]


class TrayReader:
    """The trainer's end. For many threads at once."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self._num_trays = values["num_trays"]
        self.tray_bytes = values["tray_bytes"]
        self._lock = threading.Lock()
        memory = mmap.mmap(values["descriptor"], self._num_trays * self.tray_bytes)
        os.close(values["descriptor"])
        self._whole = pa.py_buffer(memory)
        self._num_lent = 0
        #: Trays that nobody looks at any more. Filled by a destructor, which may run anywhere.
        self._freed: deque[int] = deque()

    def lend(self, tray: int, start: int, size: int) -> pa.Buffer:
        """Bytes on a tray. It is free again when all that looks at them is gone."""
        with self._lock:
            self._num_lent += 1
            is_scarce = 2 * self._num_lent > self._num_trays
        address = self._whole.address + tray * self.tray_bytes + start
        lent = pa.foreign_buffer(address, size, base=_Loan(tray, self._freed, self._whole))
        # A copy if somebody keeps blocks, perhaps to mix their rows: the trays are needed.
        return pa.py_buffer(lent.to_pybytes()) if is_scarce else lent

    def take_freed(self) -> list[int]:
        """Trays to give back to the agent."""
        with self._lock:
            found = [self._freed.popleft() for _ in range(len(self._freed))]
            self._num_lent -= len(found)
        return found


class _Loan:
    """What the bytes of a tray hold on to."""

    def __init__(self, tray: int, freed: deque[int], memory: pa.Buffer) -> None:
        self._tray = tray
        self._freed = freed
        self._memory = memory  # stays mapped as long as somebody looks at it

    def __del__(self) -> None:
        self._freed.append(self._tray)
