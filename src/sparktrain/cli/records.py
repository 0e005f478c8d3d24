"""`sparktrain tfrecord`: looks into TFRecord files without Spark and without TensorFlow.

What it takes to do so is imported when it is asked for: `sparktrain --version` needs none of it.
"""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Look into TFRecord files.", no_args_is_help=True)

Paths = Annotated[
    list[str], typer.Argument(help="Files, folders or globs, in any store of fsspec.")
]


@app.command()
def show(
    paths: Paths,
    number: Annotated[int, typer.Option("-n", help="How many records of each file.")] = 5,
) -> None:
    """Print the first records: features with their kinds and values."""
    from sparktrain.cli import look

    for path, stream in look.open_all(paths):
        typer.echo(path)
        for line in look.describe_records(path, stream, number):
            typer.echo(f"  {line}")


@app.command()
def schema(paths: Paths) -> None:
    """Print columns and their types, of all records of all files."""
    from sparktrain.cli import look

    inference = look.infer(paths)
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
    from sparktrain.cli import look

    total = num_files = 0
    for path, stream in look.open_all(paths):
        found = look.count(path, stream)
        typer.echo(f"{found:>12,}  {path}")
        total, num_files = total + found, num_files + 1
    if num_files > 1:
        typer.echo(f"{total:>12,}  in all {num_files} files")


@app.command()
def verify(paths: Paths) -> None:
    """Check every CRC; print all damage, and fail if there is any."""
    from sparktrain.cli import look

    num_damaged = 0
    for path, stream in look.open_all(paths):
        found, damages = look.verify(stream)
        typer.echo(f"{'damaged' if damages else 'ok':<8} {found:>12,} records  {path}")
        for damage in damages:
            typer.secho(f"  byte {damage.offset}: {damage.problem}", fg="red")
        num_damaged += bool(damages)
    if num_damaged:
        raise typer.Exit(1)
