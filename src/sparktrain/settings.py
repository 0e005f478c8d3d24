"""The one table of settings: name, type, default and meaning, and how a value is found.

    argument of run() > spark.sparktrain.camelCase > SPARKTRAIN_UPPER_CASE > default

All settings are resolved once, on the driver; the values travel inside the run's spec.
`docs/settings.md` is written from this table (`python -m sparktrain.settings`).
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparktrain.errors import ConfigError

_CHOICES = {
    "progress": ("auto", "live", "plain", "off"),
    "distribution": ("auto", "none", "periodic"),
    "tensorboard_at": ("driver", "chief"),
}
_LIMITS: dict[str, float] = {
    "control_port": 65535,
    "gpu_memory_fraction": 1,
    "tensorboard_port": 65535,
}
#: Settings that are a whole number, or this.
_AUTO = "auto"
_AUTO_NUMBERS = ("gpus_per_worker",)
#: Further names of settings in Spark's configuration.
_ALIASES = {"driver_timeout_s": "spark.sparktrain.driverTimeout"}
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _row(default: Any, doc: str) -> Any:
    return dataclasses.field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Resolved settings of one run."""

    progress: str = _row(
        "auto",
        "What the driver shows on standard error: `live` rows for each node, `plain` lines,"
        " `off` for nothing; `auto` is live on a terminal and plain elsewhere."
        " `True` means auto, `False` means off.",
    )
    runs_dir: str = _row(
        "sparktrain-runs", "Where run directories are made when `run_dir` is not given."
    )
    distribution: str = _row(
        "auto",
        "`auto`: with more than one worker TensorFlow is loaded and the multi-worker strategy"
        " is ready before the function is called. `none`: no strategy is made and TensorFlow"
        " is not loaded, for functions that do not train together. `periodic`: each worker trains"
        " alone, and they meet at parameter servers now and then (`ctx.parameter_server`);"
        " `run(num_ps=...)` means it without saying so.",
    )
    restart_on_error: bool = _row(
        False, "Let `max_restarts` also cover errors raised by the training function itself."
    )
    slot_wait_s: float = _row(
        4.0, "How long to look for enough task slots before refusing to start."
    )
    restart_wait_s: float = _row(
        60.0,
        "How long to look for enough task slots before a restart, while Spark replaces"
        " a lost executor.",
    )
    launch_timeout_s: float = _row(
        120.0, "How long the nodes may take to come up once the job is submitted."
    )
    stop_grace_s: float = _row(
        2.0,
        "How long a function may go on after `ctx.should_stop` turned true (at `timeout_s` and"
        " Ctrl-C) before its node is ended.",
    )
    spill_dir: str = _row(
        "",
        "Where rows of a DataFrame are kept on the executors' hosts while a run needs them;"
        " empty for Spark's own local folders.",
    )
    driver_timeout_s: float = _row(
        60.0,
        "How long the nodes of a cluster stay without a word of the driver before they end"
        " themselves. The Spark configuration may also be called `spark.sparktrain.driverTimeout`.",
    )
    gpus_per_worker: str = _row(
        _AUTO,
        "How many GPUs the chief and each worker get for themselves: a number, or `auto` for what"
        " Spark gives to its task, else an even share of the host's free ones.",
    )
    gpus_at_most: int = _row(
        0,
        "With `gpus_per_worker=auto`, the most of a host's own GPUs that the chief and each worker"
        " take, so that other runs on the host find some; 0 for no such limit.",
    )
    gpus_per_evaluator: int = _row(0, "How many GPUs an evaluator gets; 0 for none.")
    gpu_resource: str = _row("gpu", "What GPUs are called among Spark's resources.")
    gpu_memory_fraction: float = _row(
        0.0,
        "The share of a GPU's memory that a node takes, such as 0.1 for ten nodes on one device;"
        " 0: a device is one node's alone, and its memory is taken as it is needed.",
    )
    gpu_memory_mb: int = _row(0, "The same as a number of megabytes; 0 for no such limit.")
    gpu_claims_dir: str = _row(
        "",
        "A folder of the executors' hosts, mounted at the same path into all containers that see a"
        " host's GPUs: devices are claimed there, so that containers with networks of their own do"
        " not take the same; empty where executors share the network of their host.",
    )
    control_port: int = _row(
        0, "The port the driver listens on for logs and progress; 0 takes any free one."
    )
    kept_log_lines: int = _row(
        10_000,
        "How many output lines a node keeps while the driver cannot be reached; older ones"
        " are dropped and counted.",
    )
    max_result_bytes: int = _row(
        64 * 1024 * 1024, "The largest pickled return value that is sent back to the driver."
    )
    events: str = _row(
        "",
        "What `ctx.callbacks()` writes for TensorBoard beside scalars: some of `graph`,"
        " `histograms` and `profile`, with commas.",
    )
    events_dir: str = _row(
        "",
        "Any path of fsspec: events are copied there after each epoch, into a folder with the"
        " run's id, and TensorBoard reads them there.",
    )
    tensorboard_at: str = _row(
        "driver", "Where `tensorboard=True` starts it: `driver`, or `chief` for the chief's host."
    )
    tensorboard_host: str = _row(
        "127.0.0.1",
        "The address TensorBoard listens on; `0.0.0.0` for every one. It asks for no password.",
    )
    tensorboard_port: int = _row(0, "The port of TensorBoard; 0 takes any free one.")
    tensorboard_keep: bool = _row(
        False,
        "Keep TensorBoard when the run is over, until `tensorboard.json` is removed from the run"
        " directory (`sparktrain tensorboard --end RUN_DIR`).",
    )


def spark_key(name: str) -> str:
    """The Spark configuration key of a setting: slot_wait_s -> spark.sparktrain.slotWaitS."""
    head, *rest = name.split("_")
    return "spark.sparktrain." + head + "".join(part.capitalize() for part in rest)


def env_key(name: str) -> str:
    """The environment variable of a setting: slot_wait_s -> SPARKTRAIN_SLOT_WAIT_S."""
    return "SPARKTRAIN_" + name.upper()


def resolve(
    arguments: Mapping[str, Any],
    spark_conf: Callable[[str], str | None],
    environ: Mapping[str, str],
) -> Settings:
    """Finds the value of every setting; refuses unknown names and values that do not fit."""
    rows = {field.name: field for field in dataclasses.fields(Settings)}
    unknown = sorted(set(arguments) - set(rows))
    if unknown:
        raise ConfigError(
            problem=f"run() got unknown settings: {', '.join(unknown)}.",
            advice=f"Known settings: {', '.join(sorted(rows))}.",
        )
    values = {}
    for name, row in rows.items():
        sources: tuple[tuple[str, Any], ...] = (
            (f"{name}=", arguments.get(name)),
            (spark_key(name), spark_conf(spark_key(name))),
            (alias := _ALIASES.get(name, ""), spark_conf(alias) if alias else None),
            (env_key(name), environ.get(env_key(name))),
        )
        for source, raw in sources:
            if raw is not None:
                values[name] = _convert(name, source, raw, type(row.default))
                break
    return Settings(**values)


def _convert(name: str, source: str, raw: Any, kind: type) -> Any:
    if name == "progress":
        raw = {True: "auto", False: "off"}.get(raw, raw) if isinstance(raw, bool) else raw
        raw = {"true": "auto", "false": "off"}.get(str(raw).lower(), raw)
    choices = _CHOICES.get(name)
    if choices is not None:
        if raw not in choices:
            raise _misfit(source, raw, f"one of {', '.join(choices)}")
        return raw
    if name in _AUTO_NUMBERS:
        if str(raw).lower() == _AUTO:
            return _AUTO
        if isinstance(raw, bool) or not str(raw).isdecimal():
            raise _misfit(source, raw, f"{_AUTO}, or a whole number, zero or more")
        return str(int(raw))
    if kind is bool:
        if isinstance(raw, bool):
            return raw
        if str(raw).lower() not in _BOOLEANS:
            raise _misfit(source, raw, "true or false")
        return _BOOLEANS[str(raw).lower()]
    if kind is str:
        return str(raw)
    try:
        value = kind(raw)
        fits = not isinstance(raw, bool) and value == float(raw) and 0 <= value < math.inf
    except (TypeError, ValueError, OverflowError):
        fits = False
    limit = _LIMITS.get(name, math.inf)
    if not fits or value > limit:
        number = "a whole number" if kind is int else "a number"
        at_most = f", {limit:g} at most" if limit < math.inf else ""
        raise _misfit(source, raw, f"{number}, zero or more{at_most}")
    return value


def _misfit(source: str, raw: Any, expected: str) -> ConfigError:
    return ConfigError(
        problem=f"The setting {source} has the value {raw!r}.",
        advice=f"Expected {expected}. docs/settings.md lists every setting.",
    )


def to_markdown() -> str:
    """The text of docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Pass a setting to `run()` by its name, or set it for a session as a Spark",
        "configuration, or for a machine as an environment variable. The first one found",
        "wins, in that order. This page is written from `sparktrain/settings.py` by",
        "`python -m sparktrain.settings > docs/settings.md`.",
        "",
        "| setting | Spark configuration | environment | default | meaning |",
        "|---|---|---|---|---|",
    ]
    for row in dataclasses.fields(Settings):
        lines.append(
            f"| `{row.name}` | `{spark_key(row.name)}` | `{env_key(row.name)}` |"
            f" `{row.default}` | {row.metadata['doc']} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(to_markdown())
