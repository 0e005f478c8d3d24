"""What an estimator is saved with: loaded without its code, opened only for who asks."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sparktrain as st
from sparktrain.ml.kept import Kept
from sparktrain.ml.mlflow_log import describe_params
from sparktrain.ml.packing import pack_model, pickle_value, repack
from sparktrain.ml.same_fit import identify
from sparktrain.ml.wishes import make_candidate

keras = pytest.importorskip("keras")

CODE = """
import keras


class Twice(keras.layers.Layer):
    def call(self, values):
        return values * 2


def build(units=1):
    return keras.Sequential([keras.Input((4,)), Twice(), keras.layers.Dense(units)])


class Far(keras.metrics.Mean):
    pass


def near(y_true, y_pred):
    return keras.ops.abs(y_true - y_pred)


class Quiet(keras.callbacks.Callback):
    pass


def make_callbacks():
    return [Quiet()]
"""

#: In a process that has none of the code: what its models and callbacks are.
ELSEWHERE = """
import json, pickle, sys
import sparktrain as st

found = {}
for name, parts in pickle.load(open("parts.pickle", "rb")).items():
    est = st.KerasRegressor()
    est._from_parts(parts, "there")
    is_unopened = "keras" not in sys.modules or bool(found)
    model = est.getModel()
    model = model(units=1) if not hasattr(model, "layers") else model
    callbacks = est.getCallbacks()
    callbacks = callbacks() if callable(callbacks) else callbacks
    kinds = [type(one).__name__ for one in [*model.layers, *callbacks]]
    found[name] = [is_unopened, *kinds]
print(json.dumps(found))
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module beside the user's script."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own_kept.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    import own_kept  # type: ignore[import-not-found]

    yield own_kept
    del sys.modules["own_kept"]


def load(parts: dict[str, bytes]) -> st.KerasRegressor:
    est = st.KerasRegressor(loss="mse")
    est._from_parts(parts, "there")
    return est


def test_own_code_is_opened_where_nobody_has_it(code: Any, tmp_path: Path) -> None:
    given: dict[str, dict[str, Any]] = {
        "functions": {"model": code.build, "callbacks": code.make_callbacks},
        "objects": {"model": code.build(), "callbacks": [code.Quiet()]},
    }
    parts = {name: st.KerasRegressor(**one)._to_parts() for name, one in given.items()}
    (tmp_path / "parts.pickle").write_bytes(pickle.dumps(parts))
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {name: [True, "Twice", "Dense", "Quiet"] for name in given}


def test_what_was_saved_is_trained_as_it_is(code: Any) -> None:
    for model in (code.build, code.build()):
        est = st.KerasRegressor(model=model, callbacks=code.make_callbacks, loss="mse")
        again = load(est._to_parts())
        made, first = (make_candidate(one.peek, False) for one in (again, est))
        assert made.model.name == first.model.name and made.callbacks
        assert bool(made.model.file) == bool(first.model.file)
        assert isinstance(again.peek("model"), Kept) and "there" in again.explainParams()
        assert again._to_parts() == load(again._to_parts())._to_parts()  # saved again, unopened
        assert describe_params(again)["model"] == first.model.name.strip("'")
        assert again.getCallbacks()()[0].__class__.__name__ == "Quiet"
        assert not isinstance(again.peek("callbacks"), Kept)  # opened once
    assert pack_model(load(st.KerasRegressor(model=code.build)._to_parts()).peek("model"), {
        "units": 3}).args == {"units": 3}  # fmt: skip


def test_losses_of_ones_own_are_saved_with_their_code(code: Any, tmp_path: Path) -> None:
    est = st.KerasRegressor(loss={"a": code.near, "b": "mse"}, metrics=[code.near])
    saved = repack(est.getLoss())
    assert saved["b"] == "mse" and repack(est.getMetrics())[0]["name"] == "own_kept.near"
    named, whole = (base64.b64decode(one["a"]["pickled"]) for one in (est.getLoss(), saved))
    assert b"keras" not in named and b"keras" in whole
    metrics = st.KerasRegressor(metrics=[code.Far(name="far")]).getMetrics()
    (tmp_path / "parts.pickle").write_bytes(pickle.dumps(repack(metrics)))
    program = "import pickle, keras; from sparktrain.trainer.fit_model import open_value\n"
    program += "made = open_value(pickle.load(open('parts.pickle', 'rb')), keras.metrics.get)\n"
    program += "print(type(made[0]).__name__, made[0].name)"
    command = [sys.executable, "-c", program]
    assert subprocess.check_output(command, cwd=tmp_path, text=True) == "Far far\n"
    assert identify(saved) == identify(est.getLoss())
    # What was loaded is saved again unopened.
    unknown = {**saved["a"], "pickled": base64.b64encode(b"damaged").decode()}
    assert repack([unknown]) == [unknown]


def test_what_cannot_be_opened_does_not_hinder_loading(tmp_path: Path) -> None:
    parts = st.KerasRegressor(model=len)._to_parts()
    est = load({**parts, "model.pickle": b"damaged"})
    with pytest.raises(st.ConfigError, match=r"The model of the estimator at 'there' cannot be"):
        est.getModel()
    est.setModel(tmp_path / "model.keras")
    assert est.getModel() == str(tmp_path / "model.keras") and est._to_parts() == {}


def test_values_of_broadcasts_travel_with_model_functions() -> None:
    class Broadcast:
        value = 3

        def __reduce__(self) -> Any:
            raise AssertionError("files of Spark's, which nodes do not have")

    Broadcast.__module__ = "pyspark.core.broadcast"
    body = pickle_value("The model function", {"held": Broadcast()})
    assert pickle.loads(body) == {"held": SimpleNamespace(value=3)}
