"""Every public name of TensorFlowOnSpark 2.2.5 is here, with its arguments and defaults."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

import tfos_api
from tensorflowonspark import TFSparkNode


def find(name: str) -> Any:
    module, *path = name.split(".")
    found = importlib.import_module(f"tensorflowonspark.{module}")
    for part in path:
        found = getattr(found, part)
    return found


def describe(function: Any) -> tuple[list[str], list[inspect.Parameter]]:
    """Arguments as text, and those parameters, without self."""
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name == "self":
        del parameters[0]
    texts = [
        one.name if one.default is one.empty else f"{one.name}={one.default!r}"
        for one in parameters
    ]
    return texts, parameters


@pytest.mark.parametrize("name", tfos_api.SIGNATURES)
def test_arguments_and_defaults(name: str) -> None:
    texts, parameters = describe(find(name))
    expected = tfos_api.SIGNATURES[name]
    count = expected.count(",") + 1 if expected else 0
    # Lists among the defaults have commas too: look for the length that fits.
    fits = [n for n in range(count + 1) if ", ".join(texts[:n]) == expected]
    assert fits, f"expected ({expected}), got ({', '.join(texts)})"
    # What is new may be left out.
    assert all(one.default is not one.empty for one in parameters[fits[0] :])


@pytest.mark.parametrize("module", tfos_api.NAMES)
def test_names(module: str) -> None:
    for name in tfos_api.NAMES[module]:
        find(f"{module}.{name}")


def test_parts_of_the_old_inside_say_what_to_call_instead() -> None:
    with pytest.raises(NotImplementedError, match=r"Call TFCluster\.run\(\)"):
        TFSparkNode.run(print, {}, {}, False, None, ["input"], True)
    for name, args in {"train": ([], {}), "inference": ([],), "shutdown": ([],)}.items():
        with pytest.raises(NotImplementedError, match=rf"Call {name}\(\) of the TFCluster"):
            getattr(TFSparkNode, name)(*args)
    with pytest.raises(Exception, match="No TFManager found on this node"):
        TFSparkNode._get_manager([], "host", 0)
    assert TFSparkNode._has_spark_resource_api()
