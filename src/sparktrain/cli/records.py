"""`sparktrain tfrecord`: looks into TFRecord files without Spark and without TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Annotated, Any

import pyarrow as pa
import typer

from sparktrain.data.example_columns import Problems, make_column
from sparktrain.data.example_infer import Inference
from sparktrain.data.example_scan import BYTES, FLOAT, INT64, KIND_NAMES, Block, scan
from sparktrain.data.record_blocks import Damage, read_blocks
from sparktrain.data.shards import list_paths
from sparktrain.data.storage import open_plain, open_store
from sparktrain.tfrecord import describe

app = typer.Typer(help="Look into TFRecord files.", no_args_is_help=True)

Paths = Annotated[
    list[str], typer.Argument(help="Files, folders or globs, in any store of fsspec.")
]
_ELEMENTS = {BYTES: pa.binary(), FLOAT: pa.float32(), INT64: pa.int64()}
#: Values of a list, and bytes of a value, that `show` prints.
_SHOWN_VALUES, _SHOWN_BYTES = 8, 60


@app.command()
def show(
    paths: Paths,
    number: Annotated[int, typer.Option("-n", help="How many records of each file.")] = 5,
) -> None:
    """Print the first records: features with their kinds and values."""
    for path, stream in _open_all(paths):
        typer.echo(path)
        left = number
        for block, base in _blocks(path, stream):
            for row in range(min(len(block), left)):
                offset = base + int(block.starts[row]) - 12
                size = int(block.ends[row] - block.starts[row])
                typer.echo(f"  record at byte {offset}, {size} bytes")
                for line in _describe_record(block, row):
                    typer.echo(f"    {line}")
            left -= len(block)
            if left <= 0:
                break


@app.command()
def schema(paths: Paths) -> None:
    """Print columns and their types, of all records of all files."""
    inference = Inference()
    for path, stream in _open_all(paths):
        for block, _ in _blocks(path, stream):
            inference.add(block)
    for name, kind in inference.types().items():
        typer.echo(f"{name}: {kind}")
    if inference.num_malformed:
        typer.secho(
            f"{inference.num_malformed} of {inference.num_rows} records are no Examples.",
            fg="red",
            err=True,
        )
        raise typer.Exit(1)


@app.command()
def count(paths: Paths) -> None:
    """Print the number of records of each file, and of all."""
    total = num_files = 0
    for path, stream in _open_all(paths):
        found = sum(len(block) for block, _ in _blocks(path, stream, verify=False))
        typer.echo(f"{found:>12,}  {path}")
        total, num_files = total + found, num_files + 1
    if num_files > 1:
        typer.echo(f"{total:>12,}  in all {num_files} files")


@app.command()
def verify(paths: Paths) -> None:
    """Check every CRC; print all damage, and fail if there is any."""
    num_damaged = 0
    for path, stream in _open_all(paths):
        damages: list[Damage] = []
        found = sum(len(block) for block, _ in read_blocks(stream, on_damage=damages.append))
        typer.echo(f"{'damaged' if damages else 'ok':<8} {found:>12,} records  {path}")
        for damage in damages:
            typer.secho(f"  byte {damage.offset}: {damage.problem}", fg="red")
        num_damaged += bool(damages)
    if num_damaged:
        raise typer.Exit(1)


def _open_all(paths: list[str]) -> Iterator[tuple[str, IO[bytes]]]:
    for info in list_paths(paths, {}):
        filesystem, _ = open_store(info.url, {})
        with open_plain(filesystem, info.path) as stream:
            yield info.path, stream


def _blocks(path: str, stream: IO[bytes], *, verify: bool = True) -> Iterator[tuple[Block, int]]:
    try:
        yield from read_blocks(stream, verify=verify)
    except Damage as damage:
        raise describe(path, damage) from None


def _describe_record(block: Block, row: int) -> Iterator[str]:
    alone = Block(block.data, block.starts[row : row + 1], block.ends[row : row + 1])
    spans, malformed = scan(alone)
    if malformed[0]:
        raw = block.row(row)
        yield f"no Example: {raw[:_SHOWN_BYTES]!r}{'...' if len(raw) > _SHOWN_BYTES else ''}"
        return
    for name in sorted(spans):
        kind = int(spans[name].kinds[0])
        if kind not in _ELEMENTS:
            yield f"{name}: no kind"
            continue
        problems = Problems()
        column = make_column(alone, name, spans[name], pa.list_(_ELEMENTS[kind]), problems)
        if problems.by_row:
            yield f"{name}: {problems.by_row[0]}"
            continue
        values = column[0].as_py()
        shown = ", ".join(_shorten(value) for value in values[:_SHOWN_VALUES])
        more = f", ... ({len(values)} values)" if len(values) > _SHOWN_VALUES else ""
        yield f"{name}: {KIND_NAMES[kind]} [{shown}{more}]"


def _shorten(value: Any) -> str:
    if not isinstance(value, bytes):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    try:
        text = json.dumps(value.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        text = repr(value[:_SHOWN_BYTES])
    if len(text) <= _SHOWN_BYTES:
        return text
    return f"{text[:_SHOWN_BYTES]}... ({len(value)} bytes)"
