"""Spark ML's vectors in Arrow: structs of a type, a size, indices and values.

A dense vector has values only; a sparse one has the values that are not zero, and their places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NAMES = ["type", "size", "indices", "values"]
_DENSE = 1


def is_vector(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind) or [field.name for field in kind] != _NAMES:
        return False
    lists = [field.type.value_type for field in kind if pa.types.is_list(field.type)]
    return lists == [pa.int32(), pa.float64()] and kind[0].type == pa.int8()


def count_values(column: pa.StructArray) -> int:
    """How many values the vectors have, zeros included."""
    given = pc.sum(column.field("values").value_lengths()).as_py() or 0
    return int(given) + int(pc.sum(column.field("size")).as_py() or 0)


def densify(column: pa.StructArray) -> pa.ListArray:
    """Lists of float64, null where the vector is."""
    is_there = column.is_valid().to_numpy(zero_copy_only=False)
    parts = dict(zip(_NAMES, column.flatten(), strict=True))
    is_dense = pc.fill_null(pc.equal(parts["type"], _DENSE), True).to_numpy(zero_copy_only=False)
    sizes = pc.fill_null(parts["size"], 0).to_numpy().astype(np.int64)
    given = pc.fill_null(parts["values"].value_lengths(), 0).to_numpy().astype(np.int64)
    counts = np.where(is_there, np.where(is_dense, given, sizes), 0)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    flat = np.zeros(int(offsets[-1]))
    places = np.repeat(offsets[:-1], given) + _count_within(given)
    is_sparse_value = np.repeat(~is_dense, given)
    indices = parts["indices"].flatten().to_numpy()
    places[is_sparse_value] = np.repeat(offsets[:-1][~is_dense], given[~is_dense]) + indices
    flat[places] = parts["values"].flatten().to_numpy()
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)),
        pa.array(flat),
        mask=None if is_there.all() else pa.array(~is_there),
    )


def make_dense(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with lists of float32 in the place of vectors."""
    if not any(is_vector(field.type) for field in batch.schema):
        return batch
    arrays = [
        densify(column).cast(pa.list_(pa.float32())) if is_vector(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _count_within(counts: Any) -> Any:
    """0, 1, 2 ... within each group of that many."""
    starts = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) - np.repeat(starts, counts)


def make_vectors(lists: pa.ListArray, kind: pa.StructType) -> pa.StructArray:
    """Dense vectors of lists of float64, null where the list is."""
    size = len(lists)
    arrays = [
        pa.repeat(pa.scalar(_DENSE, kind[0].type), size),
        pa.nulls(size, kind[1].type),
        pa.nulls(size, kind[2].type),
        lists.cast(kind[3].type),
    ]
    return pa.StructArray.from_arrays(
        arrays, fields=list(kind), mask=lists.is_null() if lists.null_count else None
    )
