"""Makes the tf.data.Dataset that ctx.dataset() hands out, from blocks of Arrow data."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import tensorflow as tf

from sparktrain.data.batches import cut
from sparktrain.data.schema import MASK_SUFFIX, Column
from sparktrain.data.shuffle import shuffle_window
from sparktrain.data.views import Ragged, to_numpy
from sparktrain.errors import ConfigError
from sparktrain.trainer.autotune import leave_autotuning_out
from sparktrain.trainer.feed import FileTable
from sparktrain.trainer.meter import FeedMeter
from sparktrain.trainer.stream import StreamTable


class Source(Protocol):
    """Where blocks come from."""

    @property
    def columns(self) -> Sequence[Column]: ...

    def blocks(
        self, pass_number: int, seed: int | None, is_again: bool = False
    ) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True)
class Choice:
    """What ctx.dataset() was asked for."""

    name: str
    batch_size: int
    features: tuple[str, ...] | None
    label: str | None
    weight: str | None
    #: Rows of the window; 0 for none.
    window: int
    seed: int
    drop_remainder: bool

    @property
    def wanted(self) -> set[str]:
        names = {*(self.features or ()), self.label, self.weight}
        return {name for name in names if name is not None}


def make_choice(
    name: str,
    columns: Sequence[Column],
    *,
    batch_size: Any,
    features: Any,
    label: Any,
    weight: Any,
    shuffle: Any,
    seed: Any,
    drop_remainder: Any,
) -> Choice:
    """Checks what ctx.dataset() was given."""

    def refuse(what: str, value: Any, advice: str) -> ConfigError:
        return ConfigError(problem=f"ctx.dataset({name!r}) got {what}={value!r}.", advice=advice)

    is_count = isinstance(batch_size, int) and not isinstance(batch_size, bool)
    if not is_count or batch_size < 1:
        raise refuse("batch_size", batch_size, "Expected a whole number of at least 1.")
    if isinstance(features, str):
        features = [features]
    if features is not None and not features:
        raise refuse("features", features, "Expected column names; None means all.")
    known = _names(columns)
    for what, names in (("features", features or ()), ("label", [label]), ("weight", [weight])):
        for one in names:
            if one is not None and one not in known:
                raise refuse(what, one, f"The columns are {', '.join(known)}.")
    if weight is not None and label is None:
        raise refuse("weight", weight, "Expected a label as well: fit takes (x, y, weight).")
    if shuffle is True:
        shuffle = 10_000
    if not isinstance(shuffle, int) or shuffle < 0:
        advice = "Expected how many rows to mix within, or True for 10,000."
        if shuffle == "spark":
            advice = 'Give it to run(): data=st.table(df, shuffle="spark").'
        raise refuse("shuffle", shuffle, advice)
    if not isinstance(seed, int) or seed < 0:
        raise refuse("seed", seed, "Expected a whole number, zero or more.")
    return Choice(
        name=name,
        batch_size=batch_size,
        features=tuple(features) if features is not None else None,
        label=label,
        weight=weight,
        window=int(shuffle),
        seed=seed,
        drop_remainder=bool(drop_remainder),
    )


def make_dataset(source: Source, choice: Choice, meter: FeedMeter, num_looks: int = 0) -> Any:
    """Batches as fit takes them; a new pass over the source with every iteration.

    Args:
        num_looks: How many passes are left early before the first one is read to its end.
    """
    if isinstance(source, FileTable) and source.options.format == "tfrecord":
        dataset = _make_from_records(source, choice, meter)
    else:
        dataset = _make_from_blocks(source, choice, meter, num_looks)
    return leave_autotuning_out(dataset.prefetch(tf.data.AUTOTUNE))


def _make_from_records(table: FileTable, choice: Choice, meter: FeedMeter) -> Any:
    from sparktrain.trainer.tfrecords import make_record_dataset

    passes = itertools.count()
    seed = choice.seed if choice.window else None
    return make_record_dataset(
        table.shards,
        table.options,
        _choose(table.columns, choice),
        choice.batch_size,
        order=lambda: table.order(next(passes), seed),
        drop_remainder=choice.drop_remainder,
        window=choice.window,
        seed=choice.seed,
        count=meter.make_counter(),
        pick=lambda row: _pick(row, choice),
    )


def _choose(columns: Sequence[Column], choice: Choice) -> list[Column]:
    """The columns that are asked for, also those of which only the mask is."""
    wanted = choice.wanted if choice.features is not None else set(_names(columns))
    return [column for column in columns if {column.name, column.name + MASK_SUFFIX} & wanted]


def _make_from_blocks(source: Source, choice: Choice, meter: FeedMeter, num_looks: int) -> Any:
    wanted = choice.wanted
    if choice.features is None:
        wanted = set(_names(source.columns))
    chosen = _choose(source.columns, choice)
    passes = itertools.count()
    is_ragged = any(not column.is_dense for column in chosen)
    has_ended = False

    def generate() -> Iterator[dict[str, Any]]:
        nonlocal has_ended
        number = next(passes)
        seed = choice.seed if choice.window else None
        blocks = source.blocks(number, seed, has_ended)
        if choice.window:
            blocks = shuffle_window(blocks, choice.window, choice.seed, number)
        if is_ragged:
            blocks = cut(blocks, choice.batch_size, choice.drop_remainder)
        for block in blocks:
            meter.add(block.num_rows, block.nbytes)
            flat = _flatten(to_numpy(block, chosen), wanted)
            yield flat if is_ragged else _pick(flat, choice)
        # Whether a look comes to the end is a matter of how far tf.data happens to read ahead.
        has_ended = has_ended or number >= num_looks

    signature = _signature(chosen, wanted, choice)
    if is_ragged:
        dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
        return dataset.map(_as_it_is(lambda flat: _pick(_unflatten(flat, chosen), choice)))
    # Picked here, once for a block, and not once for every batch.
    dataset = tf.data.Dataset.from_generator(generate, output_signature=_pick(signature, choice))
    return dataset.rebatch(choice.batch_size, drop_remainder=choice.drop_remainder)


def make_stream_dataset(table: StreamTable, choice: Choice, meter: FeedMeter) -> Any:
    """Batches of a stream: made here, because only the stream knows when to wait for rows."""
    wanted = choice.wanted if choice.features is not None else set(_names(table.columns))
    chosen = _choose(table.columns, choice)

    def generate() -> Iterator[dict[str, Any]]:
        batches = table.batches(
            choice.batch_size, choice.drop_remainder, choice.window, choice.seed
        )
        for batch in batches:
            if not table.is_look:
                meter.add(batch.num_rows, batch.nbytes)
            yield _flatten(to_numpy(batch, chosen), wanted)

    # Steps without rows, and those of a flush, are shorter than the others.
    signature = _signature(chosen, wanted, dataclasses.replace(choice, drop_remainder=False))
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    dataset = dataset.map(_as_it_is(lambda flat: _pick(_unflatten(flat, chosen), choice)))
    # No prefetch: what is in a buffer when an iteration ends would be lost.
    return leave_autotuning_out(dataset)


def to_tensors(arrays: dict[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    """The columns of a block with ragged tensors where lengths vary, or padded ones."""
    return _unflatten(_flatten(arrays, set(_names(columns))), columns)


def _as_it_is(function: Any) -> Any:
    """TensorFlow would rewrite our Python into graph code, which it does not need."""
    return tf.autograph.experimental.do_not_convert(function)


def _names(columns: Sequence[Column]) -> list[str]:
    names = []
    for column in columns:
        names += [column.name] + [column.name + MASK_SUFFIX] * column.is_masked
    return names


def _signature(columns: Sequence[Column], wanted: set[str], choice: Choice) -> dict[str, Any]:
    """Of the flat arrays: TensorFlow cannot take Ragged from a generator as it is."""
    is_ragged = any(not column.is_dense for column in columns)
    rows = choice.batch_size if is_ragged and choice.drop_remainder else None
    found = {}
    for column in columns:
        dtype = tf.as_dtype(column.dtype)
        if column.name in wanted and column.is_dense:
            found[column.name] = tf.TensorSpec((rows, *column.shape), dtype)
        elif column.name in wanted:
            found[column.name] = tf.TensorSpec((None,), dtype)
            for level in range(column.depth):
                found[_split_name(column.name, level)] = tf.TensorSpec((None,), tf.int64)
        if column.name + MASK_SUFFIX in wanted and column.is_masked:
            found[column.name + MASK_SUFFIX] = tf.TensorSpec((rows,), tf.bool)
    return found


def _flatten(arrays: dict[str, Any], wanted: set[str]) -> dict[str, Any]:
    flat = {}
    for name, value in arrays.items():
        if name not in wanted:
            continue
        if isinstance(value, Ragged):
            flat[name] = value.values
            splits = enumerate(value.splits)
            flat.update({_split_name(name, level): split for level, split in splits})
        else:
            flat[name] = value
    return flat


def _split_name(name: str, level: int) -> str:
    """Under which the splits of a ragged column travel: no column of the user's has such a name."""
    return f"{name}\0{level}"


def _unflatten(flat: dict[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    row = dict(flat)
    for column in columns:
        if not column.is_dense and column.name in row:
            splits = [row.pop(_split_name(column.name, level)) for level in range(column.depth)]
            ragged = tf.RaggedTensor.from_nested_row_splits(row[column.name], splits)
            shape = (None, *column.shape)
            row[column.name] = (
                ragged if column.pad is None else ragged.to_tensor(column.pad, shape=shape)
            )
    return row


def _pick(row: dict[str, Any], choice: Choice) -> Any:
    """(x, y) or (x, y, weight); x alone where no label is asked for, all where nothing is."""
    if choice.features is None:
        rest = {choice.label, choice.weight}
        x: Any = {name: value for name, value in row.items() if name not in rest}
    elif len(choice.features) == 1:
        x = row[choice.features[0]]
    else:
        x = {name: row[name] for name in choice.features}
    if choice.label is None:
        return x
    if choice.weight is None:
        return x, row[choice.label]
    return x, row[choice.label], row[choice.weight]
