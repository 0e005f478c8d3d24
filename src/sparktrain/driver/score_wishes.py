"""What predict() was asked for, against what the model is: names and shapes, no jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktrain.errors import ConfigError, ModelError
from sparktrain.scoring.spec import ModelInfo, Pick

#: The column of a model's one output.
DEFAULT_COLUMN = "prediction"


def name_feeds(
    model: str, inputs: Any, info: ModelInfo, columns: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """For each input of the model its columns; raises ModelError."""
    names = [one.name for one in info.inputs]
    if inputs is None:
        found = _guess(model, names, columns)
    elif isinstance(inputs, Mapping):
        found = {str(name): _listed(value) for name, value in inputs.items()}
        # The one input of a model need not be called as Keras has named it.
        if len(found) == len(names) == 1:
            found = {names[0]: next(iter(found.values()))}
    else:
        listed = _listed(inputs)
        if len(names) == 1:
            found = {names[0]: listed}
        elif set(listed) == set(names):
            found = {name: (name,) for name in names}
        elif len(listed) == len(names):
            found = {name: (column,) for name, column in zip(names, listed, strict=True)}
        else:
            raise _refuse(model, f"inputs names {len(listed)} columns", names)
    unknown = [name for name in found if name not in names]
    missing = [name for name in names if not found.get(name)]
    if unknown or missing:
        what = f"has no input {unknown[0]!r}" if unknown else f"has no column for {missing[0]!r}"
        raise _refuse(model, f"it {what}", names)
    absent = [c for listed in found.values() for c in listed if c not in columns]
    if absent:
        raise ConfigError(
            problem=f"inputs names the column {absent[0]!r}, which is not in the DataFrame.",
            advice=f"The columns are {', '.join(columns)}.",
        )
    return {name: found[name] for name in names}


def _guess(model: str, names: Sequence[str], columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    if set(names) <= set(columns):
        return {name: (name,) for name in names}
    if len(names) == len(columns) == 1:
        return {names[0]: (columns[0],)}
    raise _refuse(model, f"none of its inputs is named like a column ({', '.join(columns)})", names)


def _refuse(model: str, problem: str, names: Sequence[str]) -> ModelError:
    return ModelError(
        model=model,
        problem=f"Columns and inputs do not fit: {problem}.",
        advice=f"Expected inputs={{input: column or list of columns}} for the model's inputs"
        f" {', '.join(repr(name) for name in names)}.",
    )


def _listed(value: Any) -> tuple[str, ...]:
    listed = (value,) if isinstance(value, str) else tuple(value)
    for one in listed:
        if not isinstance(one, str):
            raise ConfigError(
                problem=f"inputs has {one!r} of type {type(one).__name__}.",
                advice="Expected names of columns.",
            )
    return listed


def name_picks(outputs: Any, known: Sequence[str]) -> list[Pick]:
    """The columns that are asked for; those of outputs that are not known may be layers.

    Args:
        outputs: None for all; a column's name or a choice for the one output; or names of
            outputs to columns, choices, or lists of them.
    """
    if outputs is None:
        single = len(known) == 1
        return [Pick(name, DEFAULT_COLUMN if single else name) for name in known]
    if not isinstance(outputs, Mapping):
        if len(known) != 1:
            raise ConfigError(
                problem=f"predict() got outputs={outputs!r} for a model of {len(known)} outputs.",
                advice=f"Expected outputs={{output: column}} of: {', '.join(known)}.",
            )
        outputs = {known[0]: outputs}
    picks = []
    for name, value in outputs.items():
        listed = list(value) if isinstance(value, (list, tuple)) else [value]
        for one in listed:
            picks.append(_make_pick(str(name), one))
    if not picks:
        raise ConfigError(
            problem="predict() got no outputs.", advice="Leave outputs out to get all of them."
        )
    return picks


def _make_pick(output: str, value: Any) -> Pick:
    if isinstance(value, Pick):
        return replace(value, output=output)
    if isinstance(value, str) and value:
        return Pick(output, value)
    raise ConfigError(
        problem=f"outputs has {value!r} for {output!r}.",
        advice="Expected a column's name, sparktrain.argmax(...), sparktrain.top_k(...), or a list"
        " of them.",
    )
