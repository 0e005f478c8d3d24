"""How candidates are trained through run(): which fit a folder belongs to, and who has failed."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from sparktrain.fit_spec import (
    DONE_FOLDER,
    Candidate,
    DataSpec,
    Fitted,
    LabelSpec,
    ModelPart,
    Moments,
)
from sparktrain.ml import fitting
from sparktrain.ml.fitting import pick_history
from sparktrain.ml.packing import to_json
from sparktrain.ml.prepare import Prepared
from sparktrain.ml.same_fit import FIT_FILE, fingerprint, take_up
from sparktrain.scoring.keras_files import digest_keras
from sparktrain.trainer.fit import write_fitted


def test_history_is_that_of_one_fit() -> None:
    rows = [
        {"epoch": 1, "loss": 3.0},
        {"fit": 2, "epoch": 1, "loss": 2.0},
        {"epoch": 2, "loss": 1.0},
    ]
    assert pick_history(rows, 1) == ({"epoch": 1, "loss": 3.0}, {"epoch": 2, "loss": 1.0})
    assert pick_history(rows, 2) == ({"epoch": 1, "loss": 2.0},)


def test_another_fit_has_another_fingerprint() -> None:
    prepared = Prepared({}, DataSpec(("x",), (LabelSpec("y"),)))
    one = Candidate(ModelPart("f", function=b"1"), 32, 1, 0)
    longer = dataclasses.replace(one, epochs=9, model=ModelPart("f", function=b"2"))
    other = dataclasses.replace(one, learning_rate=0.1)
    assert fingerprint(prepared, [one]) == fingerprint(prepared, [longer])
    assert fingerprint(prepared, [one]) != fingerprint(prepared, [other])


def test_a_fit_is_known_again_with_objects_of_ones_own() -> None:
    """Pickled again they have other bytes, and Keras counts the names that it gives."""
    keras = pytest.importorskip("keras")

    class Far(keras.losses.Loss):  # type: ignore[misc]
        def __init__(self, power: int = 1, **options: Any) -> None:
            super().__init__(**options)
            self.power = power

        def call(self, y_true: Any, y_pred: Any) -> Any:
            return keras.ops.abs(y_true - y_pred) ** self.power

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "power": self.power}

    class Mine(keras.metrics.Mean):  # type: ignore[misc]
        pass

    def find(power: int, threshold: float, **names: Any) -> str:
        metrics = [Mine(), {"out": keras.metrics.AUC(**names)}]
        metrics.append(keras.metrics.BinaryAccuracy(threshold=threshold))
        wishes = {"loss": Far(power), "metrics": metrics, "optimizer": keras.optimizers.SGD(0.1)}
        given = {name: to_json(name, one) for name, one in wishes.items()}
        prepared = Prepared({}, DataSpec(("x",), (LabelSpec("y"),)))
        return fingerprint(prepared, [Candidate(ModelPart("f"), 32, 1, 0, **given)])

    first = find(1, 0.5)
    assert find(1, 0.5) == first
    assert len({first, find(2, 0.5), find(1, 0.6), find(1, 0.5, name="mine")}) == 4


def standardised(mean: float, **wishes: Any) -> Prepared:
    moments = {"x": Moments((mean, 2.0), (1.0, 1.0))}
    return Prepared({}, DataSpec(("x",), (LabelSpec("y"),), moments=moments), wishes)


def test_means_of_the_same_rows_are_the_same_fit() -> None:
    """Merged in another order they differ in their last digits."""
    one = [Candidate(ModelPart("f"), 32, 1, 0)]
    exact = fingerprint(standardised(0.1 + 0.2), one)
    assert fingerprint(standardised(0.3), one) == exact
    plain = Prepared({}, DataSpec(("x",), (LabelSpec("y"),)))
    assert fingerprint(plain, one) != exact
    wide = DataSpec(("x",), (LabelSpec("y"),), moments={"x": Moments((1.0,) * 3, (1.0,) * 3)})
    assert fingerprint(Prepared({}, wide), one) != exact


@pytest.mark.parametrize(
    "wishes",
    [
        {"validation": 0.3, "seed": 0},
        {"validation": 0.2, "seed": 1},
        {"validation": "held", "seed": 0},
        {"validation": SimpleNamespace(mapInArrow=None), "seed": 0},
        {"validation": 0.2, "seed": 0, "fill": {"x": 0}},
        {"validation": 0.2, "seed": 0, "pad": {"x": b"-"}},
        {"validation": 0.2, "seed": 0, "shapes": {"x": (2, 1)}},
    ],
)
def test_other_wishes_about_the_rows_are_another_fit(wishes: dict[str, Any]) -> None:
    one = [Candidate(ModelPart("f"), 32, 1, 0)]
    before = fingerprint(standardised(0.0, validation=0.2, seed=0), one)
    assert fingerprint(standardised(0.0, **wishes), one) != before
    assert fingerprint(standardised(0.0, **wishes), one) == fingerprint(
        standardised(0.0, **wishes), one
    )


def test_equal_wishes_are_equal_however_they_are_written() -> None:
    one = [Candidate(ModelPart("f"), 32, 1, 0)]
    ways: list[dict[str, Any]] = [
        {"fill": {"a": 1, "b": 2}, "shapes": {"a": (3,)}},
        {"fill": {"b": np.int64(2), "a": np.int64(1)}, "shapes": {"a": [np.int32(3)]}},
    ]
    for way in ways:
        way["validation"] = SimpleNamespace(mapInArrow=object())
    found = [fingerprint(standardised(0.0, **way), one) for way in ways]
    assert found[0] == found[1]


def test_a_fit_goes_on_with_the_moments_it_began_with(tmp_path: Path) -> None:
    one = [Candidate(ModelPart("f"), 32, 1, 0)]
    first, again = standardised(0.1 + 0.2), standardised(0.3)
    assert take_up(tmp_path, first, one) is first
    assert take_up(tmp_path, again, one) is again  # nothing was trained: nothing to go on with
    take_up(tmp_path, first, one)
    checkpoint = tmp_path / "checkpoints" / "fit-1" / "latest.json"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_text("{}")
    for _ in range(2):
        assert take_up(tmp_path, again, one).spec == first.spec
    assert checkpoint.exists()
    other = standardised(0.3, validation=0.5)
    assert take_up(tmp_path, other, one) is other
    assert not checkpoint.exists()
    (tmp_path / FIT_FILE).write_text("no json")
    assert take_up(tmp_path, other, one) is other


def stand_in(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    """The given function in the place of run()."""
    monkeypatch.setattr(fitting, "run", run)
    monkeypatch.setattr(fitting.spark_facts, "count_slots", lambda spark: None)
    monkeypatch.setattr(fitting.spark_facts, "get_conf", lambda spark, key: None)


def train(folder: Path, num_candidates: int, is_grid: bool = True, **settings: Any) -> list[Any]:
    candidates = [Candidate(ModelPart("m"), 32, 1, seed + 1) for seed in range(num_candidates)]
    wishes = fitting.RunWishes(1, 0, str(folder), None, settings, None)
    prepared = Prepared({}, DataSpec(("x",), (LabelSpec("y"),)))
    return fitting.train(None, prepared, candidates, wishes, is_grid=is_grid)  # type: ignore[arg-type]


def save(path: Path, config: str, weights: bytes, date: str) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"date_saved": date}))
        archive.writestr("config.json", config)
        archive.writestr("model.weights.h5", weights)
    return path.read_bytes()


def test_a_model_saved_again_is_the_same_fit(tmp_path: Path) -> None:
    prepared = Prepared({}, DataSpec(("x",), (LabelSpec("y"),)))
    files = [
        save(tmp_path / "one.keras", "{}", b"1", "monday"),
        save(tmp_path / "two.keras", "{}", b"1", "tuesday"),
        save(tmp_path / "three.keras", "{}", b"2", "tuesday"),
    ]
    assert len(set(files)) == 3
    found = [
        fingerprint(prepared, [Candidate(ModelPart("m", file=one), 32, 1, 0)]) for one in files
    ]
    assert found[0] == found[1] != found[2]
    assert digest_keras(b"no zip") != digest_keras(b"other")


def test_who_cannot_see_what_is_done_trains_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of three fails, on a disk that is not the driver's: only it is blamed."""
    runs: list[list[int]] = []

    def run(function: Any, *, args: Any, **_: Any) -> Any:
        seeds = [one.seed for one in args.candidates]
        runs.append(seeds)
        if 2 in seeds:
            raise st.NodeFailedError(node="chief:0", host="h", what="the second")
        models = [Fitted(b"", {}, str(seed)) for seed in seeds]
        return SimpleNamespace(
            run_dir=str(tmp_path), value=models, metrics=[], tensorboard_command="tensorboard"
        )

    stand_in(monkeypatch, run)
    found = train(tmp_path, 3)
    assert runs == [[1, 2, 3], [1], [2], [3]]
    assert [getattr(one, "fitted", None) and one.fitted.summary for one in found] == [
        "1",
        None,
        "3",
    ]  # type: ignore[union-attr]


@pytest.mark.parametrize("error", [st.NodeFailedError, KeyboardInterrupt])
def test_a_run_that_fails_leaves_no_copies_of_its_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def run(function: Any, *, args: Any, run_dir: Path, **_: Any) -> Any:
        done = run_dir / DONE_FOLDER
        for number, one in enumerate(args.candidates):
            if one.seed == 2:
                if error is KeyboardInterrupt:
                    raise error
                raise st.NodeFailedError(node="chief:0", host="h", what="the second")
            write_fitted(done / str(number), Fitted(b"model", {}, str(one.seed)))
        models = [Fitted(b"", {}, str(one.seed)) for one in args.candidates]
        return SimpleNamespace(
            run_dir=str(run_dir), value=models, metrics=[], tensorboard_command=""
        )

    stand_in(monkeypatch, run)
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, 4)
    else:
        found = train(tmp_path, 4)
        assert [isinstance(one, fitting.Trained) for one in found] == [True, False, True, True]
        assert found[0].fitted.model == b"model"
    assert not list(tmp_path.rglob(DONE_FOLDER))


def test_fits_of_a_search_over_a_pipeline_wait_for_evaluators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody says that they are of a search: they come from other threads, or beside others."""
    limits: list[Any] = []

    def run(function: Any, **given: Any) -> Any:
        limits.append(given.get("launch_timeout_s"))
        return SimpleNamespace(
            run_dir="", value=[Fitted(b"", {}, "")], metrics=[], tensorboard_command=""
        )

    def fit(**settings: Any) -> None:
        train(tmp_path, 1, is_grid=False, **settings)

    stand_in(monkeypatch, run)
    fit()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(fit).result()
        pool.submit(fit, launch_timeout_s=7).result()
    with fitting.GATE.passing(1, None):
        monkeypatch.setattr(fitting.spark_facts, "count_slots", lambda spark: 2)
        fit()
    train(tmp_path, 1)
    fit()
    assert limits == [None, 3600.0, 7, 3600.0, 3600.0, None]
