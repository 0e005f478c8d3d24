"""Runs the Keras cases with one worker and with two, and compares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import keras_cases as cases
import sparktrain as st

#: Where two workers must give what one process gives.
EQUAL = [
    "fit_sgd",
    "fit_adam",
    "fit_numpy",
    "fit_own_rows_sgd",
    "fit_own_rows_adam",
    "fit_validation",
    "fit_weights_and_classes",
    "fit_regularized",
    "fit_batch_norm_synchronized",
    "fit_steps_per_epoch",
    "fit_dict_inputs",
    "evaluate_and_predict",
    "keras_callbacks",
    "custom_loop",
]
#: Where the split of a batch over workers matters to the mathematics: the workers must agree.
SOUND = [
    "fit_odd_last_batch",
    "fit_own_rows_uneven",
    "fit_batch_norm",
    "fit_dropout",
    "fit_mixed_precision",
    "fit_mixed_float16",
    "fit_early_stopping",
]
#: These use models that do not note their rows.
WITHOUT_ROWS = {"fit_dict_inputs", "evaluate_and_predict", "custom_loop"}
WITH_ROWS = sorted({*EQUAL, *SOUND} - WITHOUT_ROWS)
NEAR = 1e-5

Results = dict[str, Any]


def collect(spark: Any, folder: Path, env: dict[str, str] | None = None) -> Results:
    """Results of all cases: "one-0" of one process, "two-0" and "two-1" of two workers."""
    found = {}
    for name, num_workers in (("one", 1), ("two", 2)):
        st.run(
            cases.run_all,
            num_workers=num_workers,
            spark=spark,
            run_dir=folder / name,
            args={"cases": list(cases.CASES), "go_on": True},
            env=env,
            slot_wait_s=60,
            progress=False,
        )
        for rank in range(num_workers):
            text = (folder / name / f"rank-{rank}.json").read_text()
            found[f"{name}-{rank}"] = json.loads(text)
    return found


def get(results: Results, who: str, name: str) -> Any:
    found = results[who][name]
    assert "error" not in found, f"{who}: {found['error']}"
    return found


def check_equal(results: Results, name: str) -> None:
    one = _numbers(get(results, "one-0", name))
    for who in ("two-0", "two-1"):
        assert _numbers(get(results, who, name)) == pytest.approx(one, rel=NEAR, abs=NEAR)


def check_agreement(results: Results, name: str) -> None:
    first, second = (get(results, who, name) for who in ("two-0", "two-1"))
    assert _numbers(first) == pytest.approx(_numbers(second), rel=NEAR, abs=NEAR)
    assert all(abs(number) < 1e6 for number in _numbers(first))  # neither NaN nor infinite
    if name != "fit_own_rows_uneven":  # there the longer worker decides
        assert first["steps"] == get(results, "one-0", name)["steps"]


def check_rows(results: Results, name: str) -> None:
    one = get(results, "one-0", name)["seen"]
    parts = [get(results, who, name)["seen"] for who in ("two-0", "two-1")]
    assert one and all(parts), "everybody had some to do"
    assert sorted(parts[0] + parts[1]) == one


def _numbers(value: Any) -> list[float]:
    """All numbers of a result in a fixed order, without the notes on rows."""
    if isinstance(value, dict):
        names = sorted(set(value) - {"seen", "saved_like_trained"})
        return [number for name in names for number in _numbers(value[name])]
    if isinstance(value, list):
        return [number for item in value for number in _numbers(item)]
    return [float(value)]
