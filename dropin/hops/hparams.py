"""Hyperparameters: what they must be for a function, and what their folder is called. No I/O."""

from __future__ import annotations

import hashlib
import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from sparktrain.errors import ConfigError, FunctionError

Params = dict[str, Any]
#: Names of files may have 255 bytes in most stores.
MAX_NAME = 200


def check_function(train_fn: Any) -> None:
    if not callable(train_fn):
        raise FunctionError(
            problem=f"An experiment got {train_fn!r} of type {type(train_fn).__name__} to run.",
            advice="Expected a function.",
        )


def choose_arguments(train_fn: Callable[..., Any], names: Mapping[str, Any], call: str) -> set[str]:
    """The hyperparameters that the function takes; refuses a function that needs others."""
    check_function(train_fn)
    try:
        signature = inspect.signature(train_fn)
    except (TypeError, ValueError):  # of C
        return set(names)
    known = signature.parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    taken = {one.name for one in known if one.kind in kinds}
    missing = [
        one.name
        for one in known
        if one.default is one.empty
        and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        and (one.name not in names or one.name not in taken)
    ]
    if missing:
        function = getattr(train_fn, "__name__", type(train_fn).__name__)
        raise ConfigError(
            problem=f"{call}() got values for {', '.join(names) or 'no argument'}, and"
            f" {function}{signature} also needs {', '.join(missing)}.",
            advice="Give values for all arguments of the function, under their names.",
        )
    if any(one.kind is one.VAR_KEYWORD for one in known):
        return set(names)
    if extra := [name for name in names if name not in taken]:
        warnings.warn(
            f"{call}() got values for {', '.join(extra)}, which the function does not take; they"
            " only show in the names of folders.",
            stacklevel=4,
        )
    return taken & set(names)


def make_folder_name(params: Mapping[str, Any]) -> str:
    """a=1&b=2; what a folder's name cannot have is escaped, and one too long is cut."""
    text = "&".join(f"{name}={quote(str(value), safe=' ,()[]+')}" for name, value in params.items())
    # A name that begins with a dot or an underscore would be hidden from listings.
    text = re.sub(r"^[._]", "-", text)
    if len(text) <= MAX_NAME:
        return text
    return f"{text[: MAX_NAME - 17]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def make_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of several folders; rows that are equal get different ones."""
    found: list[str] = []
    for row in rows:
        name = wished = make_folder_name(row)
        number = 1
        while name in found:
            number += 1
            name = f"{wished}-{number}"
        found.append(name)
    return found


def make_key(params: Mapping[str, Any]) -> str:
    """Equal for equal hyperparameters."""
    return repr(sorted((name, repr(value)) for name, value in params.items()))
