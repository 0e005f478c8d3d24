"""Opens files of any store through fsspec, decompressed, with errors that name the file."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO, Any, cast

import pyarrow as pa

from sparktrain.data.faults import BadFileError, BadRowError
from sparktrain.errors import ConfigError

#: Extension -> compression. Hadoop's .deflate is zlib's format too.
COMPRESSIONS = {".gz": "gzip", ".zz": "zlib", ".zlib": "zlib", ".deflate": "zlib"}
#: Known, and refused on the driver instead of read as text.
_UNREAD = (".bz2", ".xz", ".zst", ".lz4", ".snappy")
#: Of compressed data: what is damaged takes with it what was read together with it.
_READ_BYTES = 1 << 16


def open_store(url: str, storage_options: Mapping[str, Any]) -> tuple[Any, str]:
    """The filesystem of a URL, which fsspec keeps, and the path on it; raises ConfigError.

    A worker opens the filesystem from the user's own URL again: a path alone has lost the
    namenode or the account that the URL names.
    """
    import fsspec  # here: listing files is the first thing that needs it

    try:
        filesystem, path = fsspec.core.url_to_fs(url, **storage_options)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            problem=f"The store of {url!r} cannot be opened: {str(error).rstrip('.')}.",
            advice="Expected a local path or a protocol of fsspec whose package is installed on"
            " the driver and on every executor: s3fs for s3, gcsfs for gs, adlfs for abfs,"
            " aiohttp for http.",
        ) from error
    return filesystem, str(path)


def is_local(filesystem: Any) -> bool:
    """Whether its paths are paths of this machine."""
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(filesystem, LocalFileSystem)


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is not data, as Spark and Hadoop have it."""
    # A folder of a partition may begin with an underscore: _part=1.
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def find_compression(path: str) -> str:
    """gzip, zlib or nothing, by the extension; raises ConfigError for one that is not read."""
    suffix = PurePosixPath(path.split("?")[0]).suffix.lower()
    if suffix in _UNREAD:
        raise ConfigError(
            problem=f"{path!r} is compressed in a way that is not read ({suffix}).",
            advice=f"Expected no compression, or one of {', '.join(COMPRESSIONS)}.",
        )
    return COMPRESSIONS.get(suffix, "")


@contextmanager
def open_plain(filesystem: Any, path: str) -> Iterator[IO[bytes]]:
    """A file to read from its start to its end, decompressed by its extension."""
    compression = find_compression(path)
    # Over HTTP as one answer: not every server sends the ranges that seeking needs.
    options = {"block_size": 0} if _is_http(filesystem) else {}
    with filesystem.open(path, "rb", **options) as stored:
        if compression == "gzip":
            with gzip.GzipFile(fileobj=stored, mode="rb") as plain:
                yield cast(IO[bytes], plain)
        elif compression == "zlib":
            with io.BufferedReader(_Inflated(stored), _READ_BYTES) as plain:
                yield plain
        else:
            yield stored


@contextmanager
def open_seekable(filesystem: Any, path: str) -> Iterator[IO[bytes]]:
    """A file to read here and there, as it is stored."""
    if _is_http(filesystem) and not filesystem.info(path).get("partial"):
        # The server sends no ranges: the whole file, in memory.
        yield io.BytesIO(filesystem.cat_file(path))
        return
    if is_local(filesystem):
        # Read by Arrow itself: a file of Python's takes the interpreter for every read.
        with pa.OSFile(path) as stored:
            yield stored
        return
    with filesystem.open(path, "rb") as stored:
        yield stored


def _is_http(filesystem: Any) -> bool:
    return "http" in filesystem.protocol


class _Inflated(io.RawIOBase):
    """A zlib stream, decompressed as it is read."""

    def __init__(self, stored: IO[bytes]) -> None:
        self._stored = stored
        self._inflate = zlib.decompressobj()
        self._left = b""
        self._has_begun = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills part of the buffer; 0 at the end."""
        while not self._inflate.eof:
            packed = self._left or self._stored.read(_READ_BYTES)
            if not packed:
                if self._has_begun:
                    raise EOFError("the compressed data ends early")
                return 0  # an empty file
            self._has_begun = True
            data = self._inflate.decompress(packed, len(buffer))
            self._left = self._inflate.unconsumed_tail
            if data:
                buffer[: len(data)] = data
                return len(data)
        return 0


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Turns whatever goes wrong with a file into a BadFileError that names it."""
    try:
        yield
    except (BadFileError, BadRowError, ConfigError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise BadFileError(
            f"{name} is not there any more. It was there when the driver listed the files:"
            " do not move or rewrite files while a run reads them, and check that every"
            " executor sees the same store."
        ) from error
    # Each store has errors of its own, and none has a base that fsspec knows.
    except Exception as error:
        raise BadFileError(
            f"{name} cannot be read: {type(error).__name__}: {str(error).rstrip('.')}. Check the"
            " file with its own tools and write it again, or leave it out of the path."
        ) from error


@contextmanager
def naming_early(name: str) -> Iterator[None]:
    """The same on the driver, before any job: a ConfigError."""
    try:
        with naming(name):
            yield
    except (BadFileError, BadRowError) as error:
        raise ConfigError(
            problem=str(error), advice="It was opened to find the columns and parts of the files."
        ) from error
