"""Graphs and variables of a tf.compat.v1 session: named, read and written.

Nothing here adds an operation to a graph: a program may run thousands of times on one, and may
have finalized it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def extract_fetch(fetches: Any) -> Any:
    """Operations and tensors by their names, in lists and dicts as they were."""
    return _map(fetches, lambda one: one if isinstance(one, str) else str(one.name))


def find_fetch(graph: Any, names: Any) -> Any:
    """What extract_fetch() named, on another copy of the graph."""
    return _map(names, graph.as_graph_element)


def _map(fetches: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(fetches, Mapping):
        return {key: _map(one, change) for key, one in fetches.items()}
    if isinstance(fetches, (list, tuple)):
        return [_map(one, change) for one in fetches]
    return change(fetches)


def find_variables(graph: Any) -> dict[str, Any]:
    """All variables by name: those that are saved, and local ones."""
    found = [*graph.get_collection("variables"), *graph.get_collection("local_variables")]
    return {str(variable.name): variable for variable in found}


def read_variables(session: Any, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Their values; those without one are left out."""
    import tensorflow as tf

    try:
        values = session.run(dict(variables))
    except tf.errors.FailedPreconditionError:
        values = {}
        for name, variable in variables.items():
            try:
                values[name] = session.run(variable)
            except tf.errors.FailedPreconditionError:
                continue
    return {name: _to_array(value) for name, value in values.items()}


def _to_array(value: Any) -> Any:
    # Text as objects: numpy's own type for it takes zeros at the end for nothing.
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)


def apply_parameters(session: Any, variables: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Gives variables their values, by way of their own initializers."""
    wished = [variables[name] for name in values]
    initializers = [variable.initializer for variable in wished]
    fed = {one.inputs[1]: value for one, value in zip(initializers, values.values(), strict=True)}
    if len(fed) == len(initializers):
        session.run(initializers, fed)
        return
    # Some have one tensor to begin with in common, which can be one value only.
    for one, value in zip(initializers, values.values(), strict=True):
        session.run(one, {one.inputs[1]: value})
