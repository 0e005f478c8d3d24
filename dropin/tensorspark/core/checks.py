"""What a run refuses before anything is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np

from sparktrain.errors import ConfigError
from sparktrain.wire.layout import Variable
from tensorspark.core.session_util import read_variables
from tensorspark.core.weight_combiner import WeightCombiner


def check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ConfigError(
            problem=f"SparkSession got {name}={value!r}.",
            advice="Expected a whole number of at least 1.",
        )


def check_combiner(combiner: Any) -> None:
    # A class has compute as well, and nobody to call it on.
    is_class = isinstance(combiner, type)
    if combiner is not None and (is_class or not callable(getattr(combiner, "compute", None))):
        raise ConfigError(
            problem=f"run() got weight_combiner={combiner!r}.",
            advice=f"Expected an instance of a subclass of {WeightCombiner.__name__}.",
        )
    try:
        cloudpickle.dumps(combiner)
    # Whatever the objects that it has raise.
    except Exception as error:
        raise ConfigError(
            problem=f"run() got the weight_combiner {type(combiner).__name__}, which cannot be sent"
            f" to the parameter server: {type(error).__name__}: {error}.",
            advice="It must not have a session, a graph, a SparkContext, an open file or a lock:"
            " make such things in compute().",
        ) from error


def find_feeds(graph: Any, names: Any) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    """The names of the placeholders, and the types that numpy has for them."""
    if not names:
        raise ConfigError(
            problem="run() got feed_rdd and no feed_name_list.",
            advice="Give the names of the placeholders, in the order of the RDD's tuples.",
        )
    found, dtypes = [], []
    for name in names:
        tensor = _find_tensor(
            graph, name, "feed_name_list", "Expected names of tensors, such as x.name."
        )
        found.append(str(tensor.name))
        dtypes.append(_find_dtype(tensor.dtype))
    return tuple(found), tuple(dtypes)


def _find_tensor(graph: Any, wanted: Any, argument: str, advice: str) -> Any:
    try:
        return graph.as_graph_element(wanted, allow_operation=False)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            problem=f"{argument} has {wanted!r}, which the session's graph has not: {error}.",
            advice=advice,
        ) from error


def find_constants(graph: Any, given: Any, feeds: Sequence[str]) -> dict[str, Any]:
    """What feed_dict has for every mini-batch, by name; what rows have goes before it."""
    found = {}
    for key, value in (given or {}).items():
        advice = "Expected tensors of it, such as placeholders, or their names."
        tensor = _find_tensor(graph, key, "feed_dict", advice)
        if tensor.name not in feeds:
            try:
                found[str(tensor.name)] = np.asarray(value)
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    problem=f"The value for {tensor.name} in feed_dict is no array: {error}.",
                    advice="Expected values of one shape.",
                ) from error
    return found


def _find_dtype(dtype: Any) -> str | None:
    try:
        name = np.dtype(dtype.as_numpy_dtype).name
    except TypeError:
        return None
    # Text is an object of Python's; types that numpy has not, such as bfloat16, are TensorFlow's.
    return name if name in np.sctypeDict and name != "object" else None


def find_parameters(
    session: Any, known: Mapping[str, Any], wished: Sequence[Any] | None
) -> tuple[Variable, ...]:
    """The variables that workers share, as they travel."""
    if not wished:
        raise ConfigError(
            problem="run() got feed_rdd and no param_list.",
            advice="Give the variables that the workers shall share, such as [W, b].",
        )
    found = []
    for one in wished:
        name = str(getattr(one, "name", one))
        if name not in known:
            raise ConfigError(
                problem=f"param_list has {name!r}, which is no variable of the session's graph.",
                advice=f"Expected some of: {', '.join(known) or 'there are none'}.",
            )
        values = read_variables(session, {name: known[name]})
        if name not in values:
            raise ConfigError(
                problem=f"The variable {name!r} has no value in the session.",
                advice="Run its initializer first: sess.run(tf.global_variables_initializer()).",
            )
        value = values[name]
        if value.dtype.name not in ("float16", "float32", "float64"):
            raise ConfigError(
                problem=f"The variable {name!r} is of type {value.dtype.name}.",
                advice="Parameters are numbers that can be averaged: float16, float32, float64."
                " Leave it out of param_list, and each worker has its own.",
            )
        found.append(Variable(name, value.shape, value.dtype.name))
    if len({one.name for one in found}) < len(found):
        raise ConfigError(
            problem=f"param_list has a variable twice: {', '.join(one.name for one in found)}.",
            advice="Name each once.",
        )
    return tuple(found)
