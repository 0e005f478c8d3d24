"""Puts many records at once into the frames of a TFRecord file."""

from __future__ import annotations

import ctypes

import numpy as np
import pyarrow as pa

from sparktrain.data.example_encode import Pieces, from_offsets, offsets_of
from sparktrain.data.record_blocks import mask_crcs

_HEAD = np.dtype([("length", "<u8"), ("crc", "<u4")])
#: Filled in when the record is there.
_FOOT = pa.scalar(bytes(4), pa.large_binary())


def frame_records(records: Pieces) -> memoryview:
    """The bytes of a file with these records."""
    size = len(records.sizes)
    if not size:
        return memoryview(b"")
    heads = np.empty(size, _HEAD)
    heads["length"] = records.sizes
    lengths, places = np.unique(heads["length"], return_inverse=True)
    eighths = range(0, 8 * len(lengths) + 1, 8)
    heads["crc"] = mask_crcs(lengths.tobytes(), eighths[:-1], eighths[1:])[places]
    head = from_offsets(heads, np.arange(size + 1) * _HEAD.itemsize)
    framed = Pieces((head, *records.parts, _FOOT), records.sizes + _HEAD.itemsize + 4).join()
    offsets = offsets_of(framed)
    starts, ends = offsets[:-1] + _HEAD.itemsize, offsets[1:] - 4
    buffer = framed.buffers()[2]
    # Arrow made this memory a moment ago, and nobody else knows it.
    memory = (ctypes.c_uint8 * buffer.size).from_address(buffer.address)
    feet = mask_crcs(buffer, starts.tolist(), ends.tolist()).view(np.uint8).reshape(-1, 4)
    np.frombuffer(memory, np.uint8)[ends[:, None] + np.arange(4)] = feet
    return memoryview(buffer)[int(offsets[0]) : int(offsets[-1])]
