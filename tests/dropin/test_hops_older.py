"""Programs written for older versions of hops: names of arguments, and resources that are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hops import by_hand, experiment, gpu_room, hdfs, place, records, tensorboard, together, trials
from hops.old_names import takes_old
from sparktrain.errors import ConfigError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Without a session of Spark."""
    monkeypatch.setenv(place.VARIABLE, str(tmp_path))
    monkeypatch.setattr(records, "find_app_id", lambda spark: "app")
    monkeypatch.setattr(together, "check_no_servers", lambda *told: None)
    for module in (by_hand, experiment):
        monkeypatch.setattr(module, "find_session", lambda: None)
    return tmp_path


def read_state(folder: str) -> Any:
    return json.loads((Path(folder) / ".experiment.json").read_text())


def train(x: int) -> int:
    return x


def test_names_of_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(experiment, "_search", lambda *told: seen.append(told[1:3]))
    experiment.grid_search(train, args_dict={"x": [1, 2]})
    experiment.grid_search(map_fun=train, grid_dict={"x": [1, 2]})
    assert seen == [(train, [{"x": 1}, {"x": 2}])] * 2
    experiment.random_search(map_fun=train, boundary_dict={"x": [1, 2]}, samples=1)
    with pytest.raises(TypeError, match=r"grid_search\(\) got args_dict=.* and grid_dict="):
        experiment.grid_search(train, args_dict={"x": [1]}, grid_dict={"x": [1]})


def test_collective_all_reduce_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def run(*told: Any) -> tuple[str, dict[str, Any]]:
        seen.append(told)
        return "/folder", {"metric": 1}

    monkeypatch.setattr(together, "run_mirrored", run)
    assert experiment.collective_all_reduce(train, "n", True, None, "d", True) == "/folder"
    experiment.collective_all_reduce(train_fn=train, name="n", local_logdir=True, description="d")
    wished = ("collective_all_reduce", train, "n", True, "d")
    assert seen == [(*wished, True, None), (*wished, False, None)]


def test_begin_is_as_it_was(project: Path) -> None:
    hdfs.dump("rows", "Resources/a.csv")
    hdfs.dump("rows", "Resources/deep/b.csv")
    folder = experiment.begin("n", False, ["Resources/a.csv", "/Resources/deep"], "d")
    assert folder == f"{project}/Experiments/app_{folder.rpartition('_')[2]}"
    assert tensorboard.logdir() == folder
    experiment.end(0.5)
    state = read_state(folder)
    assert (state["name"], state["description"], state["metric"]) == ("n", "d", 0.5)
    assert state["versioned_resources"] == [f"{folder}/a.csv", f"{folder}/deep"]
    assert Path(folder, "a.csv").read_text() == Path(folder, "deep/b.csv").read_text() == "rows"


def test_resources_of_any_experiment_are_kept(project: Path) -> None:
    @takes_old()
    def launch(train_fn: Any) -> str:
        with records.Record(None, "launch", "n", None) as record:
            return record.folder

    hdfs.dump("rows", "Resources/a.csv")
    folder = launch(map_fun=train, versioned_resources=["Resources/a.csv"])
    assert Path(folder, "a.csv").read_text() == "rows"
    assert not (Path(launch(train)) / "a.csv").exists()
    before = list((project / "Experiments").iterdir())
    with pytest.raises(ConfigError, match=r"none\.csv, which does not exist"):
        launch(train, versioned_resources=["Resources/none.csv"])
    with pytest.raises(ConfigError, match=r"Expected a list of paths"):
        launch(train, versioned_resources="Resources/a.csv")
    assert list((project / "Experiments").iterdir()) == before


def test_an_experiment_stays_where_it_began(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project is the working directory, and the program goes to another one."""
    monkeypatch.delenv(place.VARIABLE)
    monkeypatch.setattr("hops.place.find_active", lambda: None)
    (tmp_path / "one").mkdir()
    (tmp_path / "deep" / "two").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "one")
    monkeypatch.setattr(by_hand, "find_run_dir", lambda *told: "events")
    folder = experiment.begin(local_logdir=True)
    Path(tensorboard.logdir(), "one").touch()
    monkeypatch.chdir(tmp_path / "deep" / "two")
    experiment.end(0.5)
    assert read_state(folder)["state"] == "FINISHED" and Path(folder, "one").exists()
    assert not list((tmp_path / "deep" / "two").iterdir())


class EnoughError(Exception):
    """Seen what was to be seen."""


def test_generations_share_gpus_by_the_population(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one may have fewer trials than those behind it: none is run twice."""

    def find_room(spark: Any, settings: Any, num_trials: int) -> None:
        raise EnoughError(num_trials)

    monkeypatch.setattr(gpu_room, "find_room", find_room)
    monkeypatch.setattr(trials, "find_settings", lambda spark: None)
    monkeypatch.setattr(trials, "make_env", lambda *told: {})
    with pytest.raises(EnoughError) as caught:
        experiment.differential_evolution(train, {"x": [1, 2]}, population=6)
    assert caught.value.args == (6,)
