"""Experiments whose nodes train together: mirrored, or with parameter servers."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sparktrain
from hops import outputs, stores, util
from hops.hparams import choose_arguments
from hops.node import TrainNode
from hops.plain import from_json
from hops.records import Record
from hops.session import find_session
from hops.trials import describe, find_run_dir, keep_logs, make_env
from sparktrain.errors import ConfigError

Pair = tuple[str, dict[str, Any] | None]


def check_no_servers(call: str, spark: Any) -> None:
    if count := util.num_param_servers(spark):
        raise ConfigError(
            problem=f"{call}() was called, and {count} parameter servers are asked for.",
            advice=f"Unset {util.SERVERS} and spark.tensorflow.num.ps, or call"
            " experiment.parameter_server().",
        )


def run_mirrored(
    kind: str,
    train_fn: Callable[..., Any],
    name: str,
    local_logdir: bool,
    description: str | None,
    evaluator: bool,
    metric_key: str | None,
) -> Pair:
    spark = find_session()
    check_no_servers(kind, spark)
    choose_arguments(train_fn, {}, kind)
    count = util.count_executors(spark)
    least = 1 + (kind == "collective_all_reduce") + bool(evaluator)
    if count < least:
        raise ConfigError(
            problem=f"{kind}() was called with evaluator={evaluator} on {count} executors.",
            advice=f"Give the session {least} executors at least.",
        )
    with Record(spark, kind, name, description) as record:
        record.begin_trial(record.folder, {})
        run_dir = find_run_dir(spark, record.id, "nodes")
        try:
            result = sparktrain.run(
                _make_node(train_fn, record, local_logdir, count > 1),
                num_workers=count - bool(evaluator),
                evaluator=evaluator,
                spark=spark,
                run_dir=run_dir,
                env=make_env(spark, record.project),
                distribution="none",
            )
        except Exception as error:
            record.end_trial(record.folder, {}, None, describe(error), str(error))
            raise
        finally:
            _keep_logs(run_dir, record.folder, count > 1)
        record.end_trial(record.folder, {}, result.value)
        return record.folder, note_metric(record, result.value, metric_key)


def run_with_servers(
    train_fn: Callable[..., Any],
    name: str,
    local_logdir: bool,
    description: str | None,
    evaluator: bool,
    metric_key: str | None,
) -> Pair:
    spark = find_session()
    choose_arguments(train_fn, {}, "parameter_server")
    count, num_ps = util.count_executors(spark), util.num_param_servers(spark)
    if not 0 < num_ps < count:
        raise ConfigError(
            problem=f"parameter_server() was called with {num_ps} parameter servers among {count}"
            " executors.",
            advice=f"Set {util.SERVERS} or spark.tensorflow.num.ps to 1 or more, and give the"
            " session more executors than that.",
        )
    num_workers = count - num_ps - bool(evaluator)
    if evaluator and num_workers < 2:
        raise ConfigError(
            problem=f"parameter_server() was called with evaluator=True on {count} executors, of"
            f" which {num_ps} are parameter servers.",
            advice="Give the session executors for a chief, a worker and the evaluator at least.",
        )
    with Record(spark, "parameter_server", name, description) as record:
        record.begin_trial(record.folder, {})
        run_dir = find_run_dir(spark, record.id, "nodes")
        try:
            cluster = sparktrain.cluster(
                _make_node(train_fn, record, local_logdir, True),
                num_workers=num_workers,
                num_ps=num_ps,
                evaluator=evaluator,
                spark=spark,
                run_dir=run_dir,
                env=make_env(spark, record.project, num_ps),
                distribution="none",
            )
            with cluster:
                cluster.wait()
        except Exception as error:
            record.end_trial(record.folder, {}, None, describe(error), str(error))
            raise
        finally:
            _keep_logs(run_dir, record.folder, True)
        # A cluster's functions hand nothing back; the chief has written it.
        found = from_json(stores.read(posixpath.join(record.folder, outputs.OUTPUTS)))
        record.end_trial(record.folder, {}, found)
        return record.folder, note_metric(record, found, metric_key)


def note_metric(
    record: Record, found: dict[str, Any] | None, key: str | None
) -> dict[str, Any] | None:
    """Keeps what says how good the experiment was; returns the outputs."""
    if key is None:
        return found
    if found is None or key not in found:
        raise ConfigError(
            problem=f"metric_key is {key!r}, and the function returned"
            f" {', '.join(sorted(set(found or {}) - {'log'})) or 'nothing'}.",
            advice="Return a dict that has it.",
        )
    record.note(metric=outputs.find_metric(found, key))
    stores.write(posixpath.join(record.folder, outputs.METRIC), str(found[key]))
    return found


def _make_node(
    train_fn: Callable[..., Any], record: Record, local_logdir: bool, is_together: bool
) -> TrainNode:
    return TrainNode(
        train_fn=train_fn,
        folder=record.folder,
        project=record.project,
        local_logdir=local_logdir,
        is_together=is_together,
    )


def _keep_logs(run_dir: str, folder: str, is_together: bool) -> None:
    names = {}
    for log in sorted(Path(run_dir).glob("logs/*.log")):
        role, _, index = log.stem.rpartition("-")
        names[log.name] = f"{role}_{index}_{outputs.LOG}" if is_together else outputs.LOG
    keep_logs(run_dir, folder, names)
