"""The parts of the drop-in for hops that need no cluster."""

from __future__ import annotations

import inspect
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hops import (
    devices,
    evolution,
    experiment,
    hdfs,
    hparams,
    outputs,
    place,
    spaces,
    tensorboard,
    work_folder,
)
from hops import util as hops_util
from hops.experiment import Direction
from hops.parallel import work_all
from sparktrain.errors import ConfigError

#: As hops-util-py 4.0 has them: names and defaults.
SIGNATURES = {
    "launch": "train_fn args_dict=None name='no-name' local_logdir=False description=None"
    " metric_key=None",
    "random_search": "train_fn boundary_dict direction='MAX' samples=10 name='no-name'"
    " local_logdir=False description=None optimization_key='metric'",
    "differential_evolution": "train_fn boundary_dict direction='MAX' generations=4 population=6"
    " mutation=0.5 crossover=0.7 name='no-name' local_logdir=False description=None"
    " optimization_key='metric'",
    "grid_search": "train_fn grid_dict direction='MAX' name='no-name' local_logdir=False"
    " description=None optimization_key='metric'",
    "parameter_server": "train_fn name='no-name' local_logdir=False description=None"
    " evaluator=False metric_key=None",
    "mirrored": "train_fn name='no-name' local_logdir=False description=None evaluator=False"
    " metric_key=None",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    known = inspect.signature(getattr(experiment, name)).parameters.values()
    shown = [
        one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in known
    ]
    assert " ".join(shown) == SIGNATURES[name]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "projects" / "demo"
    folder.mkdir(parents=True)
    monkeypatch.setenv(place.VARIABLE, str(folder))
    return folder


# What searches try.


def test_grid_and_rows() -> None:
    assert spaces.list_grid({"a": [1, 2], "b": [5, 3]}) == [
        {"a": 1, "b": 5},
        {"a": 1, "b": 3},
        {"a": 2, "b": 5},
        {"a": 2, "b": 3},
    ]
    assert spaces.list_rows({"a": [1, 2], "b": [5, 3]}) == [{"a": 1, "b": 5}, {"a": 2, "b": 3}]
    with pytest.raises(ValueError, match=r"Length of each function argument list must be equal"):
        spaces.list_rows({"a": [1, 2], "b": [5]})


def test_random_samples() -> None:
    rows = spaces.draw_samples({"n": [1, 3], "rate": [0, 1.0]}, 40, random.Random(1))
    assert len(rows) == 40
    assert {row["n"] for row in rows} == {1, 2, 3}
    assert all(isinstance(row["n"], int) and 0 <= row["rate"] <= 1 for row in rows)
    # Of three whole numbers there are no four.
    rows = spaces.draw_samples({"n": [1, 3]}, 10, random.Random(1))
    assert sorted(row["n"] for row in rows) == [1, 2, 3]


@pytest.mark.parametrize(
    "bounds",
    [{}, {"a": 1}, {"a": []}, {"a": [1]}, {"a": [2, 1]}, {"a": [1, 2, 3]}, {"a": ["x", "y"]}],
)
def test_bounds_that_are_none(bounds: Any) -> None:
    with pytest.raises(ConfigError, match=r"random_search\(\) got"):
        spaces.draw_samples(bounds, 3, random.Random(1))


@pytest.mark.parametrize("direction", [Direction.MAX, Direction.MIN, "max", "min"])
def test_best_of_negative_scores(direction: str) -> None:
    found = spaces.check_direction("grid_search", direction)
    best = spaces.find_best([-3.0, None, -1.0, -7.0], found)
    assert best == (2 if found == "MAX" else 3)
    assert spaces.find_best([None, None], found) is None


@pytest.mark.parametrize("direction", [Direction.MAX, Direction.MIN])
def test_evolution_finds_what_random_search_does_not(direction: str) -> None:
    """All scores are below zero; a third of all trials fail."""
    sign = -1 if direction == Direction.MAX else 1
    bounds = {"x": [-5.0, 5.0], "y": [-5.0, 5.0], "n": [1, 9], "kind": ["bad", "good"]}
    rng = random.Random(7)

    def score(row: dict[str, Any]) -> float:
        far = (row["x"] - 1.25) ** 2 + (row["y"] + 2.5) ** 2 + (row["n"] - 4) ** 2
        return sign * (far + (0 if row["kind"] == "good" else 5)) + (-1 if sign < 0 else -100)

    evolved = evolution.Evolution(bounds, 20, 0.5, 0.7, direction, rng)
    for _ in range(40):
        rows = evolved.ask()
        assert all(-5 <= row["x"] <= 5 and 1 <= row["n"] <= 9 for row in rows)
        evolved.tell([None if rng.random() < 0.3 else score(row) for row in rows])
    best = evolved.best_score
    assert best is not None and abs(best - (-1 if sign < 0 else -100)) < 0.05


def test_evolution_keeps_who_is_better() -> None:
    evolved = evolution.Evolution({"x": [0.0, 1.0]}, 4, 0.5, 0.7, "MAX", random.Random(1))
    first = evolved.ask()
    evolved.tell([1.0, None, 3.0, 4.0])
    evolved.ask()
    evolved.tell([2.0, 0.0, None, 3.0])
    assert evolved._scores == [2.0, 0.0, 3.0, 4.0]
    assert evolved._vectors[3] == [first[3]["x"]]


@pytest.mark.parametrize(
    "changes", [{"population": 3}, {"mutation": -1}, {"crossover": 2}, {"direction": "up"}]
)
def test_evolution_refuses(changes: dict[str, Any]) -> None:
    values = {"population": 6, "mutation": 0.5, "crossover": 0.7, "direction": "MAX", **changes}
    with pytest.raises(ConfigError, match=rf"{next(iter(changes))}="):
        evolution.Evolution({"x": [0, 1]}, **values, rng=random.Random(1))


def test_categories_of_evolution() -> None:
    bounds: Any = {"kind": ("a", "b"), "n": (1, 2), "rate": (0.0, 4.0)}
    assert evolution.decode(bounds, [0.2, 0.4, 0.5]) == {"kind": "a", "n": 1, "rate": 2.0}
    assert evolution.decode(bounds, [1.0, 1.0, 1.0]) == {"kind": "b", "n": 2, "rate": 4.0}


# Arguments and names of folders.


def test_arguments() -> None:
    def train(a: int, b: int = 2, *, c: int) -> None: ...

    assert hparams.choose_arguments(train, {"a": 1, "c": 2}, "launch") == {"a", "c"}
    with pytest.raises(ConfigError, match=r"launch\(\) got values for a.*also needs c"):
        hparams.choose_arguments(train, {"a": 1}, "launch")
    with pytest.warns(UserWarning, match=r"values for d, which"):
        hparams.choose_arguments(train, {"a": 1, "c": 1, "d": 1}, "launch")
    with pytest.raises(ConfigError, match=r"Expected a function"):
        hparams.choose_arguments(3, {}, "launch")  # type: ignore[arg-type]


def test_names_of_folders() -> None:
    assert hparams.make_folder_name({"a": 1, "b": 0.5}) == "a=1&b=0.5"
    assert hparams.make_folder_name({"path": "x/y"}) == "path=x%2Fy"
    long = [hparams.make_folder_name({"a": "x" * 500 + tail}) for tail in "yz"]
    assert len(set(long)) == 2 and max(map(len, long)) <= hparams.MAX_NAME
    assert hparams.make_names([{"a": 1}, {"a": 1}]) == ["a=1", "a=1-2"]


# What a function returns.


@pytest.mark.parametrize(
    ("value", "key", "expected"),
    [
        (None, None, {}),
        (0.0, None, {"metric": 0.0}),
        (-0.5, "metric", {"metric": -0.5}),
        (np.float32(0.5), "accuracy", {"metric": 0.5}),
        (
            {"accuracy": np.int64(3), "rows": np.arange(2)},
            "accuracy",
            {"accuracy": 3, "rows": [0, 1]},
        ),
    ],
)
def test_outputs(value: Any, key: str | None, expected: dict[str, Any]) -> None:
    assert outputs.make_outputs(value, key) == expected
    json.dumps(outputs.make_outputs(value, key))


@pytest.mark.parametrize("value", [None, {}, {"loss": 1}, "much", float("nan"), {"metric": None}])
def test_outputs_without_a_metric(value: Any) -> None:
    with pytest.raises(ValueError, match=r"metric|Metric"):
        outputs.make_outputs(value, "metric")


def test_returned_files_are_kept(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("diagram.png").write_bytes(b"png")
    own = project / "Experiments/app_1/a=1"
    own.mkdir(parents=True)
    (own / "model.keras").write_bytes(b"model")
    value = {"picture": "diagram.png", "model": str(own / "model.keras"), "metric": -1, "name": ""}
    found = outputs.keep(value, str(own), f"{project}/", "output.log", "metric")
    assert found == {
        "picture": "Experiments/app_1/a=1/diagram.png",
        "model": "Experiments/app_1/a=1/model.keras",
        "metric": -1,
        "name": "",
        "log": "Experiments/app_1/a=1/output.log",
    }
    assert not Path("diagram.png").exists() and (own / "diagram.png").read_bytes() == b"png"
    assert (own / "model.keras").read_bytes() == b"model"
    assert json.loads((own / ".outputs.json").read_text()) == found
    assert (own / ".metric").read_text() == "-1.0"
    assert outputs.keep_file(str(tmp_path), str(own), f"{project}/") == str(
        tmp_path
    )  # not all here
    with pytest.raises(FileNotFoundError, match=r"Could not find file or directory on path"):
        outputs.keep({"a": "no/such"}, str(own), f"{project}/", "output.log", None)


@pytest.mark.parametrize(
    "text",
    [
        "precision recall f1 " * 30,
        '{"a":"b/c"}' + "x" * 300,
        "a/" * 3000,
        "a/" * 2047,
        "\0/none",
        "3/4 of rows",
        "https://host/run",
    ],
)
def test_returned_text_is_no_file(project: Path, text: str) -> None:
    value = {"report": text, "metric": 1.0}
    found = outputs.keep(value, f"{project}/E", f"{project}/", "output.log", "metric")
    assert found["report"] == text
    assert json.loads((project / "E/.outputs.json").read_text())["report"] == text


def test_returned_files_of_one_name(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = project / "E"
    own.mkdir()
    (own / "a.txt").write_text("written there")
    Path("other").mkdir()
    for name in ("a.txt", "other/a.txt", "output.log"):
        Path(name).write_text(name)
    value = {
        "x": "a.txt",
        "y": "other/a.txt",
        "again": "./a.txt",
        "n": "",
        "d": ".",
        "l": "output.log",
    }
    found = outputs.keep(value, str(own), f"{project}/", "output.log", None)
    assert [found[name] for name in ("x", "y", "again", "l", "n", "d")] == [
        "E/a-2.txt",
        "E/a-3.txt",
        "E/a-2.txt",
        "E/output-2.log",
        "",
        ".",
    ]
    texts = [(own / name).read_text() for name in ("a.txt", "a-2.txt", "a-3.txt", "output-2.log")]
    assert texts == ["written there", "a.txt", "other/a.txt", "output.log"]


def test_a_working_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, work = tmp_path / "home", tmp_path / "run/work/chief-0"
    home.mkdir()
    (home / "input.csv").write_text("rows")
    monkeypatch.chdir(home)
    with work_folder.entered(work):
        assert Path("input.csv").read_text() == "rows"
        Path("model.keras").write_text("model")
    assert Path.cwd() == home
    assert [path.name for path in home.iterdir()] == ["input.csv"]
    assert [path.name for path in work.iterdir()] == ["model.keras"]
    with work_folder.entered(tmp_path / "other/work/chief-0"):
        pass
    assert not (tmp_path / "other/work").exists()


UNENDED = """
from pathlib import Path
from hops import by_hand, records
by_hand.find_session = lambda: None
by_hand.find_run_dir = lambda *names: "events"
records.find_app_id = lambda spark: "app"
by_hand.begin(name="never ended", local_logdir=True)
Path("events").mkdir()
Path("events/one").touch()
"""


def test_an_experiment_that_is_never_ended_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNENDED], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert not done.stderr
    state = json.loads((tmp_path / "Experiments/app_1/.experiment.json").read_text())
    assert (state["state"], state["name"]) == ("KILLED", "never ended")
    assert "before experiment.end()" in state["error"]
    assert (tmp_path / "Experiments/app_1/one").exists()


# Where things are.


@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
def test_files_of_the_project(
    project: Path, tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(place.VARIABLE, f"{scheme}{project}")
    monkeypatch.chdir(tmp_path)
    assert hdfs.project_name() == "demo"
    assert hdfs.project_path().endswith("/projects/demo/")
    assert hdfs.project_path(exclude_nn_addr=True) == f"{project}/"
    assert hdfs.project_path("other").endswith("/projects/other/")
    hdfs.mkdir("Resources/deep")
    hdfs.dump("hello", "Resources/deep/a.txt")
    assert hdfs.load("Resources/deep/a.txt") == b"hello"
    assert hdfs.exists("Resources/deep/a.txt") and not hdfs.exists("Resources/b.txt")
    assert hdfs.isfile("Resources/deep/a.txt") and hdfs.isdir("Resources")
    with hdfs.open_file("Resources/b.txt", flags="w") as stream:
        stream.write(b"bytes")
    assert [Path(name).name for name in hdfs.ls("Resources")] == ["b.txt", "deep"]
    assert len(hdfs.ls("Resources", recursive=True)) == 3
    assert [Path(name).name for name in hdfs.glob("Resources/*.txt")] == ["b.txt"]
    assert len(hdfs.glob("Resources/*.txt", recursive=True)) == 2
    assert hdfs.load(hdfs.ls("Resources")[0]) == b"bytes"
    assert {entry["kind"] for entry in hdfs.lsl("Resources")} == {"file", "directory"}
    Path("local.txt").write_text("local")
    hdfs.copy_to_hdfs("local.txt", "Resources")
    with pytest.raises(OSError, match=r"overwrite=True"):
        hdfs.copy_to_hdfs("local.txt", "Resources")
    Path("local.txt").write_text("other")
    hdfs.copy_to_hdfs("local.txt", "Resources", overwrite=True)
    assert hdfs.load("Resources/local.txt") == b"other"
    Path("down").mkdir()
    path = hdfs.copy_to_local("Resources/local.txt", "down")
    assert Path(path).read_text() == "other" and Path(path).parent == tmp_path / "down"
    assert (Path(hdfs.copy_to_local("Resources", "down")) / "deep/a.txt").read_text() == "hello"
    Path(path).write_text("longer than it was")
    with pytest.raises(OSError, match=r"another size"):
        hdfs.copy_to_local("Resources/local.txt", "down")
    hdfs.cp("Resources/b.txt", "Resources/c.txt")
    hdfs.move("Resources/c.txt", "Resources/deep")
    hdfs.rename("Resources/deep/c.txt", "Resources/deep/d.txt")
    assert hdfs.load("Resources/deep/d.txt") == b"bytes"
    hdfs.delete("Resources/b.txt")
    hdfs.rmr("Resources/deep")
    assert [Path(name).name for name in hdfs.ls("Resources")] == ["local.txt"]


#: Of a list of hyperparameters; to fsspec, a pattern.
ODD = "layers=[64, 32]&act=relu*"


@pytest.fixture(params=["path", "memory"])
def store(
    request: pytest.FixtureRequest, project: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The project is a folder of this machine, or in a store without names for copying."""
    if request.param == "memory":
        monkeypatch.setenv(place.VARIABLE, "memory://projects/demo")
    yield hdfs.project_path()
    if request.param == "memory":
        hdfs.rmr("memory://projects")


def test_names_are_no_patterns(store: str, tmp_path: Path) -> None:
    hdfs.dump("log", f"E/{ODD}/output.log")
    hdfs.dump("events", f"E/{ODD}/deep[1]/events")
    hdfs.dump("another", "E/layers=6&act=relu/output.log")
    local = Path(hdfs.copy_to_local(f"E/{ODD}", str(tmp_path)))
    assert (local / "deep[1]/events").read_text() == "events"
    file = hdfs.copy_to_local(f"E/{ODD}/output.log", str(tmp_path))
    assert Path(file).read_text() == "log"
    hdfs.cp(f"E/{ODD}/output.log", "copied.log")
    hdfs.cp(f"E/{ODD}", "copied")
    hdfs.cp(f"E/{ODD}", "copied")
    assert hdfs.load("copied.log") == hdfs.load(f"copied/{ODD}/output.log") == b"log"
    hdfs.cp(f"E/{ODD}", "copied", overwrite=True)
    assert len(hdfs.ls("copied", recursive=True)) == 7
    hdfs.move(f"E/{ODD}", "moved[1]")
    hdfs.rename("moved[1]", "renamed[1]")
    assert hdfs.load("renamed[1]/deep[1]/events") == b"events"
    assert not hdfs.exists("moved[1]") and not hdfs.exists(f"E/{ODD}")
    hdfs.delete("renamed[1]/output.log")
    hdfs.rmr("renamed[1]")
    assert not hdfs.exists("renamed[1]")
    assert hdfs.load("E/layers=6&act=relu/output.log") == b"another"


def test_nothing_is_copied_over_itself(store: str) -> None:
    hdfs.dump("one", "E/a/a/one.txt")
    for source, target in (("E/a/a/one.txt", "E/a/a"), ("E/a/a", "E")):
        with pytest.raises(OSError, match="cannot be copied over"):
            hdfs.cp(source, target, overwrite=True)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        hdfs.cp("E/none", "E/a/a/one.txt", overwrite=True)
    if not place.has_scheme(store):
        with pytest.raises(OSError, match="cannot be copied over"):
            hdfs.copy_to_hdfs(f"{store}E/a", "E", overwrite=True)
    hdfs.cp("E/a", "E/a/b")
    hdfs.rename("E/a/b", "E/a/b")
    assert hdfs.load("E/a/b/a/one.txt") == hdfs.load("E/a/a/one.txt") == b"one"


@pytest.mark.parametrize("name", ["plain", ODD])
def test_from_store_to_store(project: Path, name: str) -> None:
    hdfs.dump("one", f"{name}/deep/one.txt")
    hdfs.mkdir(f"{name}/empty")
    hdfs.cp(name, "memory://box/copied")
    assert len(hdfs.ls("memory://box/copied", recursive=True)) == 3
    hdfs.move(f"{name}/deep/one.txt", "memory://box")
    assert hdfs.load("memory://box/one.txt") == b"one"
    assert not (project / name / "deep/one.txt").exists()
    hdfs.rename("memory://box/copied", "back")
    assert (project / "back/deep/one.txt").read_text() == "one"
    assert not hdfs.exists("memory://box/copied")
    hdfs.cp("memory://box/one.txt", "back/two.txt")
    assert (project / "back/two.txt").read_text() == "one"
    hdfs.rmr("memory://box")


def test_paths_of_another_store() -> None:
    project = "hdfs://nn:8020/Projects/demo/"
    assert place.make_absolute("x/y", project) == "hdfs://nn:8020/Projects/demo/x/y"
    assert place.make_absolute("/x", project) == "hdfs://nn:8020/x"
    assert place.make_absolute("s3://b/x", project) == "s3://b/x"
    assert hdfs.get_plain_path("hdfs://nn:8020/x/y") == "/x/y"


def test_logdir_needs_an_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tensorboard.VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=r"where no experiment runs"):
        tensorboard.logdir()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"EXECUTOR_GPUS": "2", "CUDA_VISIBLE_DEVICES": ""}, 2),
        ({"CUDA_VISIBLE_DEVICES": "0,3"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1f,GPU-2e"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({"PATH": "/nowhere"}, 0),
    ],
)
def test_gpus(variables: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EXECUTOR_GPUS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert devices.get_num_gpus() == expected


class Conf:
    """A session's configuration, in the shape of a session."""

    def __init__(self, **values: str) -> None:
        self.conf = {name.replace("_", "."): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"spark_executor_instances": "3"}, 3),
        (
            {
                "spark_dynamicAllocation_enabled": "true",
                "spark_dynamicAllocation_maxExecutors": "5",
            },
            5,
        ),
        (
            {
                "spark_dynamicAllocation_enabled": "false",
                "spark_dynamicAllocation_maxExecutors": "5",
                "spark_executor_instances": "2",
            },
            2,
        ),
        ({"spark_master": "local-cluster[4,2,1024]"}, 4),
        ({"spark_master": "local[3]"}, 3),
    ],
)
def test_numbers_of_executors(values: dict[str, str], expected: int) -> None:
    assert hops_util.num_executors(Conf(**values)) == expected


def test_numbers_of_parameter_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUM_TF_PS", raising=False)
    assert hops_util.num_param_servers(Conf()) == 0
    assert hops_util.num_param_servers(Conf(spark_tensorflow_num_ps="2")) == 2
    monkeypatch.setenv("NUM_TF_PS", "1")
    assert hops_util.num_param_servers(Conf(spark_tensorflow_num_ps="2")) == 1
    monkeypatch.setenv("NUM_TF_PS", "many")
    with pytest.raises(ConfigError, match=r"NUM_TF_PS is 'many'"):
        hops_util.num_param_servers(Conf())


# Several at a time.


def test_work_is_done_in_parallel_up_to_a_limit() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def work(item: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.05)
        with lock:
            now -= 1
        return item * 2

    assert work_all(work, range(7), 3) == [0, 2, 4, 6, 8, 10, 12]
    assert most == 3


def test_an_error_ends_what_is_on_its_way() -> None:
    begun, ended = [], []

    def work(item: int) -> None:
        begun.append(item)
        if item == 1:
            time.sleep(0.2)
            raise OSError("no more")
        try:
            for _ in range(600):
                time.sleep(0.05)
        except KeyboardInterrupt:
            ended.append(item)
            raise

    started = time.monotonic()
    with pytest.raises(OSError, match="no more"):
        work_all(work, range(9), 2)
    assert time.monotonic() - started < 10
    assert sorted(begun) == [0, 1] and ended == [0]
