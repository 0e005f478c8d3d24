"""What tensorspark keeps between runs and mini-batches, without a cluster."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tensorspark.core.sent_files import SentFiles
from tensorspark.core.session_files import SessionFiles
from tensorspark.core.session_worker import Task
from tensorspark.core.spark_session import SparkSession
from tensorspark.core.weight_combiner import MeanWeightCombiner


def test_what_is_fed_with_every_batch_travels_once(tmp_path: Path) -> None:
    """A task goes with every mini-batch; the values of feed_dict are in files beside it."""
    conf = SimpleNamespace(get=lambda key, default=None: None)
    sent = SentFiles(SimpleNamespace(conf=conf), "name", "")
    values = {"rate:0": np.ones(100_000), "text:0": np.asarray("word")}
    with sent.lend(str(tmp_path), values) as files:
        task = Task(SessionFiles(""), None, (), (), "space", "own", 1.0, 1, constants=files)
        assert len(pickle.dumps(task)) < 2_000
        assert files is not None
        _, found = files.read()
        np.testing.assert_array_equal(found["rate:0"], values["rate:0"])
        assert found["text:0"][()] == b"word"
    assert not list(tmp_path.iterdir())
    with sent.lend(str(tmp_path), {}) as files:
        assert files is None and not list(tmp_path.iterdir())


class Server:
    """A parameter server, as far as its session asks it; a dead one says why."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem
        self.num_workers = 2
        self.said: list[str] = []

    def find_problem(self) -> Exception | None:
        return self.problem

    def can_combine(self, combiner: Any) -> bool:
        return True

    def abort(self, error: BaseException) -> None:
        self.said.append(f"abort: {error}")


@pytest.mark.parametrize("combiner", [None, MeanWeightCombiner(2)])
def test_a_server_that_died_is_not_used_again(
    combiner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "tensorspark.core.spark_session"
    monkeypatch.setattr(f"{module}.ParameterServer", lambda *told: Server())
    monkeypatch.setattr(f"{module}.count_slots", lambda spark: 2)
    rdd = SimpleNamespace(getNumPartitions=lambda: 2)
    session = SparkSession(SimpleNamespace(), None)
    dead = Server(OSError("it was killed"))
    session._server = dead  # type: ignore[assignment]
    with pytest.warns(UserWarning, match=r"of the last run is gone.*\(it was killed\)\. New"):
        fresh = session._find_server(rdd, combiner)
    assert fresh is not dead and dead.said == ["abort: it was killed"]
    assert session._find_server(rdd, combiner) is fresh


def test_reset_is_that_of_tensorflow() -> None:
    """Of a target, of which there is none here."""
    with pytest.raises(tf.errors.NotFoundError, match="nothing://here"):
        SparkSession.reset("nothing://here")
