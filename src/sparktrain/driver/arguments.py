"""Refuses plain arguments of run(), cluster() and feed() that cannot be; knows nothing of Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sparktrain.errors import ConfigError
from sparktrain.settings import Settings
from sparktrain.spec import NONE, PERIODIC


def check_num_ps(call: str, num_ps: Any) -> None:
    if not isinstance(num_ps, int) or isinstance(num_ps, bool) or num_ps < 0:
        raise ConfigError(
            problem=f"{call}() got num_ps={num_ps!r}.",
            advice="Expected a whole number, 0 for none.",
        )


def check_ps(call: str, num_ps: Any, settings: Settings) -> Settings:
    """Refuses parameter servers that cannot be; in run(), they mean periodic synchronisation."""
    check_num_ps(call, num_ps)
    if num_ps == 0 and settings.distribution == PERIODIC:
        raise ConfigError(
            problem=f"{call}() got distribution='periodic' and no parameter servers.",
            advice="Give num_ps=1 or more: they hold the parameters that workers synchronise.",
        )
    if num_ps and call == "run":
        if settings.distribution == NONE:
            raise ConfigError(
                problem=f"run() got num_ps={num_ps} and distribution='none'.",
                advice="Leave distribution out: workers then train alone and meet at the parameter"
                " servers. For servers of your own use cluster().",
            )
        return dataclasses.replace(settings, distribution=PERIODIC)
    return settings


def check_feed(
    epochs: Any, name: Any, timeout_s: Any, idle_timeout_s: Any = None, stop_when: Any = "any"
) -> None:
    if stop_when not in ("any", "all"):
        raise ConfigError(
            problem=f"feed() got stop_when={stop_when!r}.", advice="Expected 'any' or 'all'."
        )
    if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
        raise ConfigError(
            problem=f"feed() got epochs={epochs!r}.",
            advice="Expected a whole number of at least 1.",
        )
    if not isinstance(name, str) or not name:
        raise ConfigError(
            problem=f"feed() got name={name!r}.", advice="Expected a name such as 'train'."
        )
    check_limit("feed", "timeout_s", timeout_s)
    check_limit("feed", "idle_timeout_s", idle_timeout_s)


def check_limit(call: str, what: str, value: Any) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (is_number and value > 0):
        raise ConfigError(
            problem=f"{call}() got {what}={value!r}.",
            advice="Expected a number of seconds above zero, or None for no limit.",
        )


def check_numbers(
    num_workers: Any, max_restarts: Any = 0, timeout_s: Any = None, call: str = "run"
) -> None:
    if not isinstance(num_workers, int) or isinstance(num_workers, bool) or num_workers < 1:
        raise ConfigError(
            problem=f"{call}() got num_workers={num_workers!r}.",
            advice="Expected a whole number of at least 1.",
        )
    if not isinstance(max_restarts, int) or isinstance(max_restarts, bool) or max_restarts < 0:
        raise ConfigError(
            problem=f"{call}() got max_restarts={max_restarts!r}.",
            advice="Expected a whole number, 0 for none.",
        )
    is_number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
    if timeout_s is not None and not (is_number and 0 < timeout_s < 1e9):
        raise ConfigError(
            problem=f"{call}() got timeout_s={timeout_s!r}.",
            advice="Expected a number of seconds above zero, or None for no limit.",
        )


def check_env(env: Any, call: str = "run") -> None:
    pairs = list(env.items()) if isinstance(env, Mapping) else []
    wrong = [pair for pair in pairs if not all(isinstance(text, str) for text in pair)]
    if env is not None and (wrong or not isinstance(env, Mapping)):
        names = ", ".join(str(name) for name, _ in wrong)
        raise ConfigError(
            problem=f"{call}() got an env that is not all text: {names or type(env).__name__}.",
            advice="Expected a dict of environment variables, names and values as strings.",
        )
