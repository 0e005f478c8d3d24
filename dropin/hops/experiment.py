"""Experiments: a function on one node, on many with other arguments each, or on all together."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hops import by_hand, evolution, resources, spaces, together
from hops.hparams import Params, choose_arguments, make_key
from hops.old_names import takes, takes_old
from hops.records import Record
from hops.session import find_session
from hops.trials import Trial, Trials

Pair = tuple[str, dict[str, Any] | None]
Triple = tuple[str, Params, dict[str, Any]]


class Direction:
    """What a search looks for."""

    MAX = "MAX"
    MIN = "MIN"


@takes_old()
def launch(
    train_fn: Callable[..., Any],
    args_dict: dict[str, list[Any]] | None = None,
    name: str = "no-name",
    local_logdir: bool = False,
    description: str | None = None,
    metric_key: str | None = None,
) -> Pair:
    """Calls the function on a node; with lists of arguments, once for each row, in parallel.

    Args:
        args_dict: For each argument a list; all first values are a call, all second ones, ...
        name, description: What the experiment is called.
        local_logdir: Whether events are written to the host first, and copied at the end.
        metric_key: Which of the outputs says how good it is.

    Returns:
        The experiment's folder, and what the function returned; of several calls None.
    """
    spark = find_session()
    together.check_no_servers("launch", spark)
    rows = spaces.list_rows(args_dict) if args_dict else [{}]
    taken = choose_arguments(train_fn, rows[0], "launch")
    with Record(spark, "launch", name, description) as record:
        trials = Trials(spark, record, train_fn, taken, local_logdir)
        done = trials.run(rows)
        for trial in done:
            if trial.error is not None:
                raise trial.error
        if len(done) > 1:
            return record.folder, None
        return record.folder, together.note_metric(record, done[0].outputs, metric_key)


@takes_old(args_dict="grid_dict")
def grid_search(
    train_fn: Callable[..., Any],
    grid_dict: dict[str, list[Any]],
    direction: str = Direction.MAX,
    name: str = "no-name",
    local_logdir: bool = False,
    description: str | None = None,
    optimization_key: str = "metric",
) -> Triple:
    """Tries all combinations of the lists, in parallel.

    Args:
        direction: Direction.MAX or Direction.MIN.
        optimization_key: Which of the outputs is looked at.

    Returns:
        The folder of the best trial, its hyperparameters, and what the function returned.
    """
    rows = spaces.list_grid(grid_dict)
    about = (name, local_logdir, description, optimization_key)
    return _search("grid_search", train_fn, rows, direction, *about)


@takes_old()
def random_search(
    train_fn: Callable[..., Any],
    boundary_dict: dict[str, list[Any]],
    direction: str = Direction.MAX,
    samples: int = 10,
    name: str = "no-name",
    local_logdir: bool = False,
    description: str | None = None,
    optimization_key: str = "metric",
) -> Triple:
    """Tries random values between bounds [low, high], in parallel; returns as grid_search()."""
    rows = spaces.draw_samples(boundary_dict, samples, random.Random())
    about = (name, local_logdir, description, optimization_key)
    return _search("random_search", train_fn, rows, direction, *about)


@takes_old(objective_function="train_fn")
def differential_evolution(
    train_fn: Callable[..., Any],
    boundary_dict: dict[str, list[Any]],
    direction: str = Direction.MAX,
    generations: int = 4,
    population: int = 6,
    mutation: float = 0.5,
    crossover: float = 0.7,
    name: str = "no-name",
    local_logdir: bool = False,
    description: str | None = None,
    optimization_key: str = "metric",
) -> Triple:
    """Lets hyperparameters evolve, each generation in parallel; returns as grid_search().

    Args:
        boundary_dict: For each argument [low, high], or two strings to choose from.
        generations: How many there are; the first is random.
        population: How many trials a generation has, 4 or more.
        mutation: How much of the difference of two others is added to a third, 0 to 2.
        crossover: How likely each value is the mutant's, 0 to 1.
    """
    spaces.check_count("differential_evolution", "generations", generations, 2)
    evolved = evolution.Evolution(
        boundary_dict, population, mutation, crossover, direction, random.Random()
    )
    record, trials = _begin_search(
        "differential_evolution",
        train_fn,
        boundary_dict,
        direction,
        name,
        local_logdir,
        description,
        optimization_key,
        most=population,
    )
    known: dict[str, Trial] = {}
    with record:
        for number in range(generations):
            rows = evolved.ask()
            fresh = {make_key(row): row for row in rows if make_key(row) not in known}
            done = trials.run(list(fresh.values()), f"generation.{number}") if fresh else []
            known.update(zip(fresh, done, strict=True))
            evolved.tell([known[make_key(row)].score for row in rows])
        return _end_search(record, trials, direction)


def _begin_search(
    kind: str,
    train_fn: Callable[..., Any],
    names: Any,
    direction: str,
    name: str,
    local_logdir: bool,
    description: str | None,
    key: str,
    most: int | None = None,
) -> tuple[Record, Trials]:
    """Refuses what cannot be, before there is a folder or a job."""
    direction = spaces.check_direction(kind, direction)
    spaces.check_key(kind, key)
    taken = choose_arguments(train_fn, names, kind)
    spark = find_session()
    together.check_no_servers(kind, spark)
    about = {"direction": direction, "optimization_key": key}
    record = Record(spark, kind, name, description, **about)
    return record, Trials(spark, record, train_fn, taken, local_logdir, key, most)


def _search(
    kind: str,
    train_fn: Callable[..., Any],
    rows: list[Params],
    direction: str,
    name: str,
    local_logdir: bool,
    description: str | None,
    key: str,
) -> Triple:
    record, trials = _begin_search(
        kind, train_fn, rows[0], direction, name, local_logdir, description, key
    )
    with record:
        trials.run(rows)
        return _end_search(record, trials, direction)


def _end_search(record: Record, trials: Trials, direction: str) -> Triple:
    """The best trial; the first error if there is none."""
    done = trials.done
    place_ = spaces.find_best([t.score for t in done], spaces.check_direction("", direction))
    if place_ is None:
        error = next(trial.error for trial in done if trial.error is not None)
        error.add_note(f"All {len(done)} trials failed; this is the first of their errors.")
        raise error
    best = done[place_]
    record.note(best_dir=best.folder, best_params=best.params, metric=best.score)
    return best.folder, dict(best.params), dict(best.outputs or {})


@takes_old()
def mirrored(
    train_fn: Callable[..., Any],
    name: str = "no-name",
    local_logdir: bool = False,
    description: str | None = None,
    evaluator: bool = False,
    metric_key: str | None = None,
) -> Pair:
    """Calls the function on all executors at once, as a chief and workers of one training.

    Args:
        evaluator: Whether the last of them evaluates instead.

    Returns:
        The experiment's folder, and what the chief's function returned.
    """
    about = (name, local_logdir, description, evaluator, metric_key)
    return together.run_mirrored("mirrored", train_fn, *about)


@takes(train_fn="map_fun")
def collective_all_reduce(
    map_fun: Callable[..., Any],
    name: str = "no-name",
    local_logdir: bool = False,
    versioned_resources: list[str] | None = None,
    description: str | None = None,
    evaluator: bool = False,
) -> str:
    """What mirrored() was called before, with its arguments of then; needs two executors.

    Args:
        versioned_resources: Files and folders that the experiment keeps a copy of.

    Returns:
        The experiment's folder.
    """
    with resources.wishing(versioned_resources):
        folder, _ = together.run_mirrored(
            "collective_all_reduce", map_fun, name, local_logdir, description, evaluator, None
        )
    return folder


@takes_old()
def parameter_server(
    train_fn: Callable[..., Any],
    name: str = "no-name",
    local_logdir: bool = False,
    description: str | None = None,
    evaluator: bool = False,
    metric_key: str | None = None,
) -> Pair:
    """Calls the function on all executors at once, of which some are parameter servers.

    A worker that joins its tf.distribute.Server serves the chief until that returns.

    Returns:
        The experiment's folder, and what the chief's function returned.
    """
    about = (name, local_logdir, description, evaluator, metric_key)
    return together.run_with_servers(train_fn, *about)


def begin(
    name: str = "no-name",
    local_logdir: bool = False,
    versioned_resources: list[str] | None = None,
    description: str | None = None,
) -> str:
    """An experiment in the program itself; tensorboard.logdir() is its folder until end().

    Args:
        versioned_resources: Files and folders that the experiment keeps a copy of.
    """
    with resources.wishing(versioned_resources):
        return by_hand.begin(name, local_logdir, description)


def end(metric: Any = None) -> None:
    """Ends what begin() began.

    Args:
        metric: How good it was.
    """
    by_hand.end(metric)
