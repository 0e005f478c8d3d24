"""The front door: `run` takes a function to the cluster and brings its result back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktrain.spec import NodeResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Result:
    """What a run gave.

    Attributes:
        value: What rank 0's function returned.
        metrics: One dict an epoch, or a call of ctx.report(), in order.
        model_path: What ctx.export() wrote; None if it was not called.
        nodes: For each node: role, index, host, seconds, exit, rows and steps where known, and
            how its input was.
        run_dir: Logs, spec, checkpoints, TensorBoard events.
        num_restarts: How often the group was started again.
        tensorboard_command: What shows the run's events later, in a terminal.
        tensorboard_url: Where a TensorBoard is that was kept; None if there is none.
    """

    value: Any
    metrics: list[dict[str, float]]
    model_path: str | None
    nodes: tuple[NodeResult, ...]
    run_dir: str
    num_restarts: int = 0
    tensorboard_command: str = ""
    tensorboard_url: str | None = None


def run(
    train_fn: Callable[..., Any],
    *,
    num_workers: int,
    num_ps: int = 0,
    args: Any = None,
    data: Any = None,
    evaluator: bool = False,
    spark: SparkSession | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    max_restarts: int = 0,
    timeout_s: float | None = None,
    env: Mapping[str, str] | None = None,
    tensorboard: bool | str | os.PathLike[str] = False,
    **settings: Any,
) -> Result:
    """Runs a function on several Spark executors at once, as one training.

        def train(ctx):
            with ctx.strategy.scope():
                model = build(); model.compile(...)
            history = model.fit(make_dataset(), epochs=5, callbacks=ctx.callbacks())
            ctx.export(model)
            return history.history

        result = run(train, num_workers=2)

    Args:
        train_fn: Called on every node with its context.
        num_workers: How many nodes train together: the chief and the workers.
        num_ps: How many more nodes hold parameters. The workers then train alone, and meet there
            every few steps, with ctx.parameter_server(). Defaults to 0: they train together.
        args: Anything picklable; the function finds it as ctx.args. Defaults to None.
        data: What ctx.dataset() gives out: a DataFrame (named "train"), sparktrain.table(df, ...)
            with declarations, sparktrain.files(path, ...), or a dict of them by name. Defaults
            to None.
        evaluator: Whether one more node runs the function as an evaluator. Defaults to False.
        spark: A SparkSession, classic or Connect. Defaults to the active one, else to the
            embedded one of `session()`.
        run_dir: Where everything of this run is written; a folder that all hosts share. An
            unfinished run in it is gone on with. Defaults to a new folder in
            ./sparktrain-runs.
        max_restarts: How often to start the group again after a lost node; with num_ps, a lost
            worker alone. Defaults to 0.
        timeout_s: After this many seconds the run ends with RunTimeoutError. Defaults to None.
        env: Environment variables for the nodes, set before TensorFlow is loaded. Defaults to
            None.
        tensorboard: Whether TensorBoard runs as long as the run does; the path of what it shows,
            if that is not the run's own events. Defaults to False. See docs/tensorboard.md.
        **settings: See docs/settings.md; for example progress=False.

    Raises:
        ConfigError: Something asked for cannot be; nothing was started.
        LaunchError: The nodes did not come up.
        TrainingError: A node failed; the first cause, with the node's traceback and last lines.
    """
    # Here, not above: importing sparktrain must not load pyspark.
    from sparktrain.driver.arguments import check_num_ps, check_numbers
    from sparktrain.driver.boards import add_board, find_command
    from sparktrain.driver.launch import launch
    from sparktrain.driver.plan import make_plan

    check_numbers(num_workers, max_restarts, timeout_s)
    check_num_ps("run", num_ps)
    num_nodes = num_workers + bool(evaluator) + num_ps
    plan = make_plan(
        session := spark if spark is not None else find_session(num_nodes),
        train_fn,
        num_workers=num_workers,
        num_ps=num_ps,
        args=args,
        data=data,
        evaluator=bool(evaluator),
        run_dir=run_dir,
        max_restarts=max_restarts,
        timeout_s=timeout_s,
        env=env,
        settings=settings,
    )
    plan = add_board(plan, tensorboard, "run")
    outcome = launch(session, plan)
    return Result(
        value=outcome.value,
        metrics=[dict(row) for row in outcome.metrics],
        model_path=outcome.model_path,
        nodes=outcome.nodes,
        run_dir=str(Path(plan.run_dir)),
        num_restarts=outcome.num_restarts,
        tensorboard_command=find_command(plan),
        tensorboard_url=outcome.board_url,
    )


def find_session(num_nodes: int) -> SparkSession:
    from sparktrain.embedded import session

    return session(num_executors=max(2, num_nodes))
