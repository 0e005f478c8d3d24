"""Puts many records at once into the frames of a TFRecord file."""

from __future__ import annotations

import itertools
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa

from sparktrain.data.example_encode import join

_HEAD = np.dtype([("length", "<u8"), ("crc", "<u4")])
#: CRC of lengths, by length: most files have few different ones.
_KNOWN: dict[int, int] = {}


def frame_records(records: pa.Array) -> memoryview:
    """The bytes of a file with these records, which are an array of large_binary."""
    size = len(records)
    offsets = np.frombuffer(records.buffers()[1], np.int64)[records.offset :][: size + 1]
    data = memoryview(records.buffers()[2] or b"")
    heads = np.empty(size, _HEAD)
    heads["length"] = np.diff(offsets)
    heads["crc"] = _mask([_crc_of_length(length) for length in heads["length"].tolist()])
    places = offsets.tolist()
    value = google_crc32c.value
    crcs = [value(bytes(data[start:end])) for start, end in itertools.pairwise(places)]
    framed = join([_fixed(heads, size), records, _fixed(_mask(crcs), size)])
    ends = np.frombuffer(framed.buffers()[1], np.int64)
    return memoryview(framed.buffers()[2] or b"")[int(ends[0]) : int(ends[size])]


def _mask(crcs: list[int]) -> Any:
    """As TFRecord stores them: turned by 15 bits, plus a constant."""
    found = np.array(crcs, np.uint64)
    turned = (found >> np.uint64(15)) | (found << np.uint64(17))
    return ((turned & np.uint64(0xFFFFFFFF)) + np.uint64(0xA282EAD8)).astype("<u4")


def _crc_of_length(length: int) -> int:
    if length not in _KNOWN:
        if len(_KNOWN) > 100_000:
            _KNOWN.clear()
        _KNOWN[length] = int(google_crc32c.value(length.to_bytes(8, "little")))
    return _KNOWN[length]


def _fixed(values: Any, size: int) -> pa.Array:
    """Values of one size each as an array of bytes."""
    offsets = np.arange(size + 1, dtype=np.int64) * values.dtype.itemsize
    return pa.Array.from_buffers(
        pa.large_binary(), size, [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    )
