"""The `sparktrain` command: demo, run, predict, doctor, tfrecord, tensorboard, --version."""

from __future__ import annotations

import dataclasses
import os
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from sparktrain.cli import records
from sparktrain.errors import ConfigError, SparktrainError
from sparktrain.settings import Settings
from sparktrain.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(
    help="TensorFlow and Keras, trained on your Spark cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(records.app, name="tfrecord")

Master = Annotated[
    str | None,
    typer.Option(help="Spark master, or sc://host for Spark Connect; default: embedded Spark."),
]


def main() -> None:
    """The entry point: our own errors and Spark's are shown as text, without a stack."""
    try:
        app()
    except SparktrainError as error:
        _fail(f"{type(error).__name__}: {error}")
    except Exception as error:
        # Of the user's own code the stack is wanted; of Spark's refusals one line says it all.
        if not _is_of_spark(error):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        _fail(f"Spark refused: {lines[0] if lines else 'no reason given'} [{type(error).__name__}]")


def _is_of_spark(error: Exception) -> bool:
    modules = {cls.__module__.split(".")[0] for cls in type(error).__mro__}
    return bool(modules & {"pyspark", "py4j"})


def _fail(text: str) -> NoReturn:
    typer.secho(text, fg="red", err=True)
    sys.exit(1)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sparktrain {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    num_workers: Annotated[int, typer.Option(help="Workers that train together.")] = 2,
    epochs: Annotated[int, typer.Option(help="Passes over the data.")] = 12,
    run_dir: Annotated[str | None, typer.Option(help="Where to write.")] = None,
) -> None:
    """Train on real handwritten digits with two workers on an embedded Spark cluster."""
    from sparktrain.cli.demo import run_demo

    sys.exit(run_demo(num_workers, epochs, run_dir))


@app.command()
def run(
    target: Annotated[str, typer.Argument(help="The function to run, as script.py:function.")],
    num_workers: Annotated[int, typer.Option(help="Workers that train together.")] = 1,
    master: Master = None,
    evaluator: Annotated[bool, typer.Option(help="Add an evaluator node.")] = False,
    run_dir: Annotated[str | None, typer.Option(help="Where to write.")] = None,
    max_restarts: Annotated[int, typer.Option(help="Restarts after a lost node.")] = 0,
    timeout_s: Annotated[float | None, typer.Option(help="Limit for the whole run.")] = None,
    arg: Annotated[list[str] | None, typer.Option(help="name=value for ctx.args.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=value for the nodes.")] = None,
    setting: Annotated[list[str] | None, typer.Option(help="name=value; docs/settings.md.")] = None,
    tensorboard: Annotated[bool, typer.Option(help="Start TensorBoard for the run.")] = False,
) -> None:
    """Run a function of a script on Spark executors."""
    import sparktrain

    function = load_function(target)
    result = sparktrain.run(
        function,
        num_workers=num_workers,
        args=parse_pairs("--arg", arg) or None,
        evaluator=evaluator,
        spark=connect(master) if master else None,
        run_dir=run_dir,
        max_restarts=max_restarts,
        timeout_s=timeout_s,
        env=parse_pairs("--env", env),
        tensorboard=tensorboard,
        **parse_settings(setting),
    )
    typer.echo(f"returned: {result.value!r}")
    if result.model_path:
        typer.echo(f"model: {result.model_path}")
    typer.echo(f"run directory: {result.run_dir}")
    typer.echo(f"curves: {result.tensorboard_command}")


@app.command()
def predict(
    model: Annotated[str, typer.Option(help="A .keras file or a SavedModel folder.")],
    input: Annotated[str, typer.Option(help="What to score: a path that Spark reads.")],
    output: Annotated[str, typer.Option(help="Where to write.")],
    inputs: Annotated[
        list[str] | None, typer.Option(help="model_input=column, or =a,b,c to join columns.")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="A column of the model's only input.")
    ] = None,
    outputs: Annotated[list[str] | None, typer.Option(help="model_output=column.")] = None,
    keep: Annotated[list[str] | None, typer.Option(help="A column to keep; default: all.")] = None,
    batch_size: Annotated[int, typer.Option(help="Rows for a call of the model.")] = 512,
    signature: Annotated[str, typer.Option(help="Of a SavedModel.")] = "serving_default",
    on_error: Annotated[
        str, typer.Option(help="error, or null: rows that fail have the reason in a column.")
    ] = "error",
    nulls: Annotated[
        str, typer.Option(help="error, or null: no answer where a null is.")
    ] = "error",
    input_format: Annotated[str | None, typer.Option(help="Default: by the path.")] = None,
    output_format: Annotated[str | None, typer.Option(help="Default: by the path.")] = None,
    mode: Annotated[str, typer.Option(help="error, overwrite or append.")] = "error",
    master: Master = None,
) -> None:
    """Score a table of files with a model and write the result."""
    from sparktrain.cli.predict import parse_inputs, run_predict
    from sparktrain.embedded import session

    sys.exit(
        run_predict(
            connect(master) if master else session(),
            model=model,
            input=input,
            output=output,
            input_format=input_format,
            output_format=output_format,
            mode=mode,
            inputs=parse_inputs(parse_pairs("--inputs", inputs), columns),
            outputs=parse_pairs("--outputs", outputs) or None,
            keep=keep or None,
            batch_size=batch_size,
            signature=signature,
            on_error=on_error,
            nulls=nulls,
        )
    )


@app.command()
def doctor(
    master: Master = None,
    spark: Annotated[bool, typer.Option(help="Also start Spark and ask its executors.")] = True,
) -> None:
    """Check this machine and the executors; each line says ok or what to do."""
    from sparktrain.cli.doctor import run_doctor

    sys.exit(run_doctor((lambda: connect(master)) if master else None, with_spark=spark))


@app.command()
def tensorboard(
    path: Annotated[str, typer.Argument(help="Events, or a run directory; any path of fsspec.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes any free one.")] = 6006,
    end: Annotated[bool, typer.Option("--end", help="End the one that a run has kept.")] = False,
) -> None:
    """Show the events of a run, or end the TensorBoard that it has kept."""
    from sparktrain.cli.board import end_board, run_board

    if end:
        typer.echo(end_board(path))
    else:
        sys.exit(run_board(path, host, port))


def load_function(target: str) -> Any:
    """The function named by script.py:function."""
    path, _, name = target.rpartition(":")
    if not path or not name:
        raise ConfigError(
            problem=f"{target!r} does not name a function.",
            advice="Expected script.py:function, for example train.py:train.",
        )
    if not Path(path).is_file():
        raise ConfigError(problem=f"There is no file {path!r}.", advice="Check the path.")
    # As `python script.py` does; the nodes on this machine inherit the import path.
    sys.path.insert(0, str(Path(path).resolve().parent))
    # Not "__main__": the script's own `if __name__ == "__main__"` part must not run.
    names = runpy.run_path(path, run_name="__sparktrain__")
    if not callable(names.get(name)):
        known = [key for key, value in names.items() if callable(value) and key[0] != "_"]
        raise ConfigError(
            problem=f"{path} has no function {name!r}.",
            advice=f"It has: {', '.join(known) or 'none'}.",
        )
    return names[name]


def parse_pairs(option: str, pairs: list[str] | None) -> dict[str, str]:
    """name=value texts as a dict."""
    found = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise ConfigError(
                problem=f"{option} got {pair!r}.", advice=f"Expected {option} name=value."
            )
        found[name] = value
    return found


def parse_settings(pairs: list[str] | None) -> dict[str, Any]:
    """Like parse_pairs, for names that are settings."""
    found = parse_pairs("--setting", pairs)
    known = {field.name for field in dataclasses.fields(Settings)}
    unknown = sorted(set(found) - known)
    if unknown:
        raise ConfigError(
            problem=f"--setting got unknown names: {', '.join(unknown)}.",
            advice=f"Known settings: {', '.join(sorted(known))}.",
        )
    return dict(found)


def connect(master: str) -> SparkSession:
    """A session for a master URL, or for sc:// a Spark Connect one."""
    from pyspark.sql import SparkSession

    if master.startswith("local"):  # the executors are on this machine: the same Python will do
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("sparktrain")
    is_remote = master.startswith("sc://")
    return (builder.remote(master) if is_remote else builder.master(master)).getOrCreate()
