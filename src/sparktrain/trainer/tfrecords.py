"""Makes a tf.data.Dataset of batches from shards of TFRecord files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from sparktrain.data.files import ReadOptions
from sparktrain.data.schema import Column
from sparktrain.data.shards import Shard
from sparktrain.data.storage import find_compression
from sparktrain.trainer.record_copies import copy_ahead, is_local_shard
from sparktrain.trainer.record_features import finish, make_features

_KINDS = {"": "", "gzip": "GZIP", "zlib": "ZLIB"}
#: Positions in shards: for every pass the same, or asked for at the start of each.
Order = Sequence[int] | Callable[[], Sequence[int]]


@dataclass(frozen=True)
class _Way:
    """How TensorFlow has to read a file."""

    is_local: bool
    compression: str
    num_parts: int
    part: int


def make_record_dataset(
    shards: Sequence[Shard],
    options: ReadOptions,
    columns: Sequence[Column],
    batch_size: int,
    *,
    order: Order | None = None,
    drop_remainder: bool = False,
    window: int = 0,
    seed: int = 0,
    count: Callable[[Any], Any] | None = None,
    pick: Callable[[dict[str, Any]], Any] = lambda row: row,
) -> Any:
    """Batches of the shards' records as dicts of tensors; deterministic.

    Local files are read by TensorFlow, the others from copies made one ahead: TensorFlow 2.21
    itself opens neither hdfs:// nor s3://. Part i of n of a file is every n-th record from the
    i-th on.

    Args:
        shards: What this worker reads.
        options: How to read it.
        columns: Which features, as columns with nothing left to find out about them.
        batch_size: Records in a batch.
        order: Positions in shards, as from file_order(), or a function that is asked for them at
            the start of each pass. Defaults to as listed.
        drop_remainder: Whether to leave out a last batch that is smaller.
        window, seed: Mixes records within a window of so many; another order in every pass.
        count: Makes an operation that notes a batch of serialized records.
        pick: Makes of a dict what a batch shall be.

    Iterate inside record_errors.explaining(): TensorFlow names neither the file nor the place of
    what is broken.
    """
    features = make_features(columns)
    order = range(len(shards)) if order is None else order
    ways = [_find_way(shard, options) for shard in shards]

    def batch(records: Any) -> Any:
        return records.batch(batch_size, drop_remainder=drop_remainder)

    def parse(serialized: Any) -> Any:
        with tf.control_dependencies([count(serialized)] if count is not None else []):
            return pick(finish(tf.io.parse_example(serialized, features), columns))

    if len(set(ways)) == 1 and ways[0].is_local and ways[0].num_parts == 1 and not window:
        batches = _make_whole([shard.path for shard in shards], ways[0], order, batch)
    else:
        records = _make_records(shards, ways, options, order)
        batches = batch(_mix(records, window, seed) if window else records)
    # AutoGraph would rewrite ifs that are about columns, not tensors, and take its time.
    parse = tf.autograph.experimental.do_not_convert(parse)
    return batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _find_way(shard: Shard, options: ReadOptions) -> _Way:
    is_local = is_local_shard(shard, options.storage_options)
    # A copy is decompressed already.
    kind = _KINDS[find_compression(shard.path)] if is_local else ""
    return _Way(is_local, kind, shard.num_parts, shard.part)


def _make_whole(paths: Sequence[str], way: _Way, order: Order, batch: Callable[[Any], Any]) -> Any:
    """Batches of whole local files, the rule: no step of Python's or of flat_map's per record."""

    def open_all(chosen: Any) -> Any:
        return batch(tf.data.TFRecordDataset(chosen, way.compression))

    if not callable(order):
        return open_all(tf.constant([paths[at] for at in order], tf.string))

    def choose() -> Iterator[list[str]]:
        yield [paths[at] for at in order()]

    signature = tf.TensorSpec([None], tf.string)
    passes = tf.data.Dataset.from_generator(choose, output_signature=signature)
    return passes.flat_map(open_all)


def _make_records(
    shards: Sequence[Shard], ways: Sequence[_Way], options: ReadOptions, order: Order
) -> Any:
    """Records file by file: the copy of one may go when the next is asked for."""

    def make_sources() -> Iterator[tuple[Any, ...]]:
        positions = list(order() if callable(order) else order)
        paths = copy_ahead([shards[at] for at in positions], options.storage_options)
        for at, path in zip(positions, paths, strict=True):
            yield path, ways[at].compression, ways[at].num_parts, ways[at].part

    def open_file(path: Any, compression: Any, num_parts: Any, part: Any) -> Any:
        return tf.data.TFRecordDataset(path, compression).shard(num_parts, part)

    text, number = tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)
    signature = (text, text, number, number)
    sources = tf.data.Dataset.from_generator(make_sources, output_signature=signature)
    return sources.flat_map(open_file)


def _mix(records: Any, window: int, seed: int) -> Any:
    """Another order in every pass, the same for the same seed."""
    passes = itertools.count()

    def count() -> Iterator[int]:
        yield next(passes)

    numbers = tf.data.Dataset.from_generator(count, output_signature=tf.TensorSpec([], tf.int64))
    # TensorFlow's own reshuffling begins again with every iterator that is made.
    return numbers.flat_map(
        lambda number: records.shuffle(
            window, seed=seed * 1_000_003 + number, reshuffle_each_iteration=False
        )
    )
