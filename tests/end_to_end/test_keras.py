"""Keras 3 on two workers against the same on one process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import sparktrain as st

sys.path.append(str(Path(__file__).parent))
import keras_cases as cases

# Sent by value: the nodes need not find this folder.
cloudpickle.register_pickle_by_value(cases)

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
NEAR = 1e-5


@pytest.fixture(scope="module")
def results(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of all cases: of one process, and of both ranks of two workers."""
    found = {}
    for name, num_workers in (("one", 1), ("two", 2)):
        run_dir = tmp_path_factory.mktemp(name)
        st.run(
            cases.run_all,
            num_workers=num_workers,
            spark=spark_session,
            run_dir=run_dir,
            args={"cases": list(cases.CASES), "go_on": True},
            slot_wait_s=60,
            progress=False,
        )
        for rank in range(num_workers):
            text = (run_dir / f"rank-{rank}.json").read_text()
            found[f"{name}-{rank}"] = json.loads(text)
    return found


def get(results: dict[str, Any], who: str, name: str) -> Any:
    found = results[who][name]
    assert "error" not in found, f"{who}: {found['error']}"
    return found


def flatten(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in flatten(value[key])]
    if isinstance(value, list):
        return [number for item in value for number in flatten(item)]
    return [float(value)]


def without_rows(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key not in ("seen", "saved_like_trained")}


@pytest.mark.parametrize("name", EQUAL)
def test_two_workers_equal_one_process(results: dict[str, Any], name: str) -> None:
    one = get(results, "one-0", name)
    for who in ("two-0", "two-1"):
        two = get(results, who, name)
        assert without_rows(two).keys() == without_rows(one).keys()
        assert flatten(without_rows(two)) == pytest.approx(
            flatten(without_rows(one)), rel=NEAR, abs=NEAR
        )


@pytest.mark.parametrize("name", SOUND)
def test_workers_agree(results: dict[str, Any], name: str) -> None:
    first, second = (get(results, who, name) for who in ("two-0", "two-1"))
    numbers = flatten(without_rows(first))
    assert numbers == pytest.approx(flatten(without_rows(second)), rel=NEAR, abs=NEAR)
    assert all(abs(number) < 1e6 for number in numbers)  # neither NaN nor infinite
    assert first["steps"] == get(results, "one-0", name)["steps"] or name == "fit_own_rows_uneven"


#: These use models that do not note their rows.
WITHOUT_ROWS = {"fit_dict_inputs", "evaluate_and_predict", "custom_loop"}


@pytest.mark.parametrize("name", sorted({*EQUAL, *SOUND} - WITHOUT_ROWS))
def test_every_row_is_trained_on_once_an_epoch(results: dict[str, Any], name: str) -> None:
    one = get(results, "one-0", name)["seen"]
    both = get(results, "two-0", name)["seen"] + get(results, "two-1", name)["seen"]
    assert sorted(both) == one
    # Both had some to do.
    assert get(results, "two-0", name)["seen"] and get(results, "two-1", name)["seen"]


def test_uneven_rows_add_no_step_without_data(results: dict[str, Any]) -> None:
    # 45 and 19 rows in pieces of 8: the longer worker needs 6 steps an epoch, and no 7th.
    assert get(results, "two-0", "fit_own_rows_uneven")["steps"] == 6 * cases.EPOCHS


def test_model_checkpoint_has_the_trained_weights(results: dict[str, Any]) -> None:
    assert get(results, "two-0", "keras_callbacks")["saved_like_trained"]


def test_early_stopping_stops_all(results: dict[str, Any]) -> None:
    for who in ("one-0", "two-0", "two-1"):
        assert len(get(results, who, "fit_early_stopping")["history"]["loss"]) == 2


def test_datasets_that_would_lose_rows_are_refused(results: dict[str, Any]) -> None:
    off, sharded = get(results, "two-0", "refused_datasets")["texts"]
    assert "known length of 4" in off and "ctx.local_dataset" in off
    assert ".shard(2" in sharded and "ctx.local_dataset" in sharded
    assert get(results, "one-0", "refused_datasets")["texts"] == ["taken", "taken"]


def test_several_steps_per_execution_are_refused(results: dict[str, Any]) -> None:
    text = get(results, "two-0", "refused_steps_per_execution")["text"]
    assert "steps_per_execution=2" in text and "steps_per_execution=1" in text
    assert get(results, "one-0", "refused_steps_per_execution")["text"] == "taken"
