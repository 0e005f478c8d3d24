"""Keras 3 on two workers against the same on one process."""

from __future__ import annotations

from typing import Any

import cloudpickle
import pytest

import keras_cases as cases
import keras_checks as checks

# Sent by value: the nodes need not find this folder.
cloudpickle.register_pickle_by_value(cases)


#: The first test waits for all cases, on one worker and on two: two minutes on two quiet cores.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def results(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> checks.Results:
    return checks.collect(spark_session, tmp_path_factory.mktemp("keras"))


@pytest.mark.parametrize("name", checks.EQUAL)
def test_two_workers_equal_one_process(results: checks.Results, name: str) -> None:
    checks.check_equal(results, name)


@pytest.mark.parametrize("name", checks.SOUND)
def test_workers_agree(results: checks.Results, name: str) -> None:
    checks.check_agreement(results, name)


@pytest.mark.parametrize("name", checks.WITH_ROWS)
def test_every_row_is_trained_on_once_an_epoch(results: checks.Results, name: str) -> None:
    checks.check_rows(results, name)


def test_uneven_rows_add_no_step_without_data(results: checks.Results) -> None:
    # 45 and 19 rows in pieces of 8: the longer worker needs 6 steps an epoch, and no 7th.
    assert checks.get(results, "two-0", "fit_own_rows_uneven")["steps"] == 6 * cases.EPOCHS


def test_model_checkpoint_has_the_trained_weights(results: checks.Results) -> None:
    assert checks.get(results, "two-0", "keras_callbacks")["saved_like_trained"]


def test_early_stopping_stops_all(results: checks.Results) -> None:
    for who in ("one-0", "two-0", "two-1"):
        assert len(checks.get(results, who, "fit_early_stopping")["history"]["loss"]) == 2


def test_datasets_that_would_lose_rows_are_refused(results: checks.Results) -> None:
    off, sharded = checks.get(results, "two-0", "refused_datasets")["texts"]
    assert "known length of 4" in off and "ctx.local_dataset" in off
    assert ".shard(2" in sharded and "ctx.local_dataset" in sharded
    assert checks.get(results, "one-0", "refused_datasets")["texts"] == ["taken", "taken"]


def test_several_steps_per_execution_are_refused(results: checks.Results) -> None:
    text = checks.get(results, "two-0", "refused_steps_per_execution")["text"]
    assert "steps_per_execution=2" in text and "steps_per_execution=1" in text
    assert checks.get(results, "one-0", "refused_steps_per_execution")["text"] == "taken"


def test_training_goes_on_behind_an_export(results: checks.Results) -> None:
    """The chief saves alone; nobody may wait for it."""
    for who in ("two-0", "two-1"):
        assert checks.get(results, who, "export_in_between")["epochs"] == 2
