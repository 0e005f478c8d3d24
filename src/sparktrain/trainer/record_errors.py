"""Says in which file, and where in it, the record is that TensorFlow could not read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import tensorflow as tf

from sparktrain.data.faults import BadFileError, BadRowError
from sparktrain.data.files import ReadOptions
from sparktrain.data.records import find_damage
from sparktrain.data.shards import Shard
from sparktrain.data.spill import SpillError
from sparktrain.data.storage import find_compression, naming, open_plain, open_store

#: Exceptions of ours that go through tf.data.
_KINDS = {kind.__name__: kind for kind in (BadFileError, BadRowError, SpillError)}
_OURS = re.compile(rf"\b({'|'.join(_KINDS)}): ([^\n]+)")
_FEATURE = re.compile(r"(?:Feature|Key): ([^\s.,(]+)[^\n]*")
_ADVICE = "Write the file again, or leave it out of the path."


@contextmanager
def explaining(shards: Sequence[Shard], options: ReadOptions) -> Iterator[None]:
    """Turns what TensorFlow raises about these shards into BadFileError or BadRowError."""
    try:
        yield
    except tf.errors.OpError as error:
        found = explain(error, shards, options)
        if found is None:
            raise
        raise found from error


def explain(error: Exception, shards: Sequence[Shard], options: ReadOptions) -> Exception | None:
    """What is wrong with these shards, if that is what the error is about.

    TensorFlow's error has no file in it, so the files are read again up to the first damage.
    """
    text = str(error)
    ours = find_ours(error)
    if ours is not None:
        return ours
    if isinstance(error, tf.errors.NotFoundError):
        return _find_missing(shards, options)
    if isinstance(error, tf.errors.DataLossError):
        return _find_damage(text, shards, options)
    is_parsing = isinstance(error, tf.errors.InvalidArgumentError)
    # Without these words it is the user's own InvalidArgumentError, from a layer perhaps.
    if is_parsing and ("Feature: " in text or "ParseExample" in text):
        return _describe_parsing(text, shards)
    return None


def find_ours(error: Exception) -> Exception | None:
    """The exception of ours in an error of TensorFlow's, which keeps its text only."""
    if not isinstance(error, tf.errors.OpError):
        return None
    ours = _OURS.search(str(error))
    return None if ours is None else _KINDS[ours[1]](ours[2])


def _find_missing(shards: Sequence[Shard], options: ReadOptions) -> BadFileError | None:
    for shard in shards:
        filesystem, _ = open_store(shard.url, options.storage_options)
        try:
            with naming(shard.path):
                filesystem.info(shard.path)
        except BadFileError as error:
            return error
    return None


def _find_damage(text: str, shards: Sequence[Shard], options: ReadOptions) -> BadFileError | None:
    for shard in shards:
        filesystem, _ = open_store(shard.url, options.storage_options)
        try:
            with naming(shard.path), open_plain(filesystem, shard.path) as stream:
                damage = find_damage(stream)
        except BadFileError as error:
            return error
        if damage is not None:
            offset, reason = damage
            unpacked = " of the uncompressed data" if find_compression(shard.path) else ""
            return BadFileError(
                f"{shard.path} is damaged: in the record at byte {offset}{unpacked} {reason}."
                f" {_ADVICE}"
            )
    if "corrupted record" not in text and "truncated record" not in text:
        return None
    return BadFileError(
        f"TensorFlow found a broken record ({text.splitlines()[0]}), but all"
        f" {len(shards)} files of this worker are whole when read again: a file was written"
        " during the run, or a disk or a network is not sound."
    )


def _describe_parsing(text: str, shards: Sequence[Shard]) -> BadRowError:
    named = _FEATURE.search(text)
    column = f"column {named[1]!r}: " if named is not None else ""
    what = named[0] if named is not None else text.splitlines()[0]
    return BadRowError(
        f"{column}a record of the TFRecord files ({shards[0].path} and so on) does not fit the"
        f" schema: {what.rstrip('.')}. Check the type, give shapes={{...}} for arrays, and"
        " fill={...} for features that some records do not have."
    )
